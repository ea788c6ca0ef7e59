from __future__ import annotations

import zipfile
from pathlib import Path

from gmlfm import load_dataset
from gmlfm.data.sources.fetch import get_dataset


def ml_100k(path: Path) -> None:
    flags = {"Toy Story (1995)": [3, 4, 5], "Été (1994)": [8], "Nameless": []}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("ml-100k/u.data", "1\t1\t5\t874965758\n1\t2\t3\t876893171\n2\t1\t4\t888550871\n")
        archive.writestr("ml-100k/u.user", "1|24|M|technician|85711\n2|53|F|other|94043\n")
        lines = [
            "|".join([str(number), title, "01-Jan-1995", "", "http://x", *("1" if genre in on else "0" for genre in range(19))])
            for number, (title, on) in enumerate(flags.items(), start=1)
        ]
        archive.writestr("ml-100k/u.item", "\n".join(lines).encode("latin-1"))


def test_movielens_100k_genres_become_a_string_and_a_set(tmp_path: Path) -> None:
    ml_100k(tmp_path / "ml-100k.zip")
    folder = get_dataset("ml-100k", tmp_path, files=[tmp_path / "ml-100k.zip"], any_checksum=True)
    data = load_dataset("ml-100k", data_root=tmp_path)
    assert data.items.fields["genres"].to_list() == ["Animation|Children's|Comedy", "Drama", ""]
    assert data.users.fields["age"].to_list() == [24.0, 53.0]
    assert data.items.titles is not None
    assert data.items.titles[1] == "Été (1994)"
    text = (folder / "dataset.toml").read_text().replace('{ genres = "category" }', '{ genre_set = "set" }')
    (folder / "dataset.toml").write_text(text)
    assert load_dataset(folder).items.fields["genre_set"].to_list()[0] == ["Animation", "Children's", "Comedy"]
