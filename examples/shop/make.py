"""Writes the three files beside it: a small shop's export, as inconsistent as exports are. Run from the repository's root.

python examples/shop/make.py
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from gmlfm.data.sources.bazaar import Market, bazaar_dataset

FOLDER = Path(__file__).parent


def main() -> None:
    data = bazaar_dataset(Market(n_users=80, n_purchases=1_200, seed=7, version=2))
    rows = data.interactions.with_columns(pl.col("time").cast(pl.Datetime("us")).dt.strftime("%d.%m.%Y %H:%M").alias("when"))
    lines = ["Buyer No;SKU;Bought at;Channel"]
    for index, (user, item, when) in enumerate(rows.select("user", "item", "when").rows()):
        channel = ("web", "app", "NULL")[index % 3]
        lines.append(f"{user:05d};{data.items.ids[item].upper()};{when};{channel}")
    lines.insert(400, "00012;T000000123")  # the export was cut here once
    (FOLDER / "purchases.csv").write_bytes("\r\n".join(lines).encode("latin-1"))

    lines = ["Buyer No;City;Age group"]
    for user, (age, region) in enumerate(data.users.fields.rows()):
        city = {"Tokyo": "Tōkyō", "Kyoto": "Kyōto"}.get(region, region)
        lines.append(f'{user:05d};"{city}";{"NULL" if user % 17 == 3 else age}')
    (FOLDER / "buyers.csv").write_text("\ufeff" + "\n".join(lines), encoding="utf-8")

    lines = ["SKU;Name;Kind;Brand;Condition;Sends from;Features;Price"]
    for item, row in enumerate(data.items.fields.rows(named=True)):
        features = "|".join([row["method"], row["duration"], row["payer"]])
        name = f'"{row["category"]} ""{row["brand"]}"", {row["origin"]} \u2013 {row["condition"]}"'
        price = f"{row['price'] / 100:.2f}".replace(".", ",")
        cells = [
            data.items.ids[item].upper(),
            name,
            row["genre"],
            row["brand"],
            row["condition"],
            row["origin"],
            features,
            price,
        ]
        lines.append(";".join(cells))
    (FOLDER / "catalogue.csv").write_bytes("\n".join(lines).encode("cp1252"))


if __name__ == "__main__":
    main()
