"""Amazon's product data of 2014: reviews_*_5.json.gz and meta_*.json.gz, one JSON object or Python literal a line."""

from __future__ import annotations

import ast
import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl

from gmlfm.errors import DataError
from gmlfm.storage import new_folder

_ASIN = re.compile(rb"""['"]asin['"]\s*:\s*['"]([^'"]+)['"]""")

_PRODUCT: dict[str, pl.DataType] = {
    "asin": pl.String(),
    "category": pl.String(),
    "labels": pl.List(pl.String()),
    "brand": pl.String(),
    "price": pl.Float64(),
    "title": pl.String(),
}

_TOML = """# The paper's attribute is the path of the first category. The labels of all paths together are offered as a set,
# brand and price beside them: take what you want into fields.
name = "{name}"

[interactions]
path = "reviews.parquet"
user = "reviewer"
item = "asin"
time = "time"
label = "overall"

[items]
path = "products.parquet"
id = "asin"
fields = {{ category = "category" }}
# fields = {{ labels = {{ kind = "set", weighting = "mean" }}, brand = "category", price = "number" }}
title = "title"
"""


def convert_amazon(name: str, reviews: Path, meta: Path | None, folder: Path) -> None:
    """The two raw files -> Parquet tables and a dataset.toml. Products without a line in meta have missing attributes."""
    rows = list(_converted(reviews, ("reviewerID", "asin", "overall", "unixReviewTime"), _review))
    if not rows:
        raise DataError(f"{reviews} holds no review.")
    table = pl.DataFrame(
        rows, schema={"reviewer": pl.String, "asin": pl.String, "overall": pl.Float64, "time": pl.Int64}, orient="row"
    )
    wanted = set(table["asin"].unique().to_list())
    products = list(_converted(meta, ("asin",), _product, wanted)) if meta else []
    listed = pl.DataFrame(products, schema=_PRODUCT, orient="row").unique("asin", keep="first", maintain_order=True)
    text = _TOML.format(name=name)
    with new_folder(folder, holds=("reviews.parquet", "products.parquet", "dataset.toml")) as new:
        table.write_parquet(new / "reviews.parquet")
        if meta:
            listed.write_parquet(new / "products.parquet")
        else:
            text = text[: text.index("[items]")]
        (new / "dataset.toml").write_text(text, encoding="utf-8")


def read_lines(path: Path, wanted: set[str] | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of each line. A Python literal is parsed, never evaluated: code in it is refused.

    wanted: only lines about these products are parsed; the others, most of a meta file, are passed over.
    """
    number = 0
    try:
        opened = gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")
        with opened as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                if wanted is not None:
                    found = _ASIN.search(line)
                    if found and found[1].decode(errors="replace") not in wanted:
                        continue
                yield number, _parse(line, path, number)
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist; check the path.") from error
    except EOFError as error:
        raise DataError(f"{path} is truncated after line {number:,}; fetch the file again.") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is damaged after line {number:,} ({error}); fetch the file again.") from error
    except OSError as error:
        raise DataError(f"{path} could not be read ({error.strerror or error}).") from error


def _parse(line: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        text = line.decode()
        value = json.loads(text)
    except UnicodeDecodeError as error:
        raise DataError(f"{path} line {number:,} is not UTF-8.") from error
    except json.JSONDecodeError:
        try:
            value = ast.literal_eval(text.strip())
        except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
            raise DataError(f"{path} line {number:,} is neither JSON nor a Python literal: {text.strip()[:60]!r}.") from error
    if not isinstance(value, dict):
        raise DataError(f"{path} line {number:,} holds a {type(value).__name__}, expected an object with keys and values.")
    return value


def _converted(
    path: Path, keys: tuple[str, ...], convert: Callable[[dict[str, Any]], tuple[Any, ...]], wanted: set[str] | None = None
) -> Iterator[tuple[Any, ...]]:
    for number, one in read_lines(path, wanted):
        for key in keys:
            if key not in one:
                raise DataError(f"{path} line {number:,} has no '{key}'; is this the 2014 file?")
        try:
            yield convert(one)
        except (TypeError, ValueError, OverflowError) as error:
            raise DataError(
                f"{path} line {number:,} holds a value of another kind than the 2014 files do ({error})."
            ) from error


def _review(one: dict[str, Any]) -> tuple[Any, ...]:
    return str(one["reviewerID"]), str(one["asin"]), float(one["overall"]), int(one["unixReviewTime"])


def _product(one: dict[str, Any]) -> tuple[Any, ...]:
    paths = [[str(label) for label in path] for path in one.get("categories") or [] if path]
    category = " > ".join(paths[0]) if paths else None
    labels = list(dict.fromkeys(label for path in paths for label in path)) if paths else None
    price = one.get("price")
    return (
        str(one["asin"]),
        category,
        labels,
        _text(one.get("brand")),
        float(price) if isinstance(price, (int, float)) else None,
        _text(one.get("title")),
    )


def _text(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{value!r} where a text was expected")
    return value or None
