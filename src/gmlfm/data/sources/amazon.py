"""Amazon's product data of 2014: reviews_*_5.json.gz and meta_*.json.gz, one JSON object or Python literal a line."""

from __future__ import annotations

import ast
import gzip
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from gmlfm.errors import DataError
from gmlfm.reading import is_folder, parse_json, reading, reason
from gmlfm.storage import new_folder
from gmlfm.streams import open_bytes

NEEDED_FILES = "reviews_{0}_5.json.gz and, for attributes, meta_{0}.json.gz"
_LONGEST_LINE = 1 << 27
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
    review_table = pl.DataFrame(
        rows, schema={"reviewer": pl.String, "asin": pl.String, "overall": pl.Float64, "time": pl.Int64}, orient="row"
    )
    reviewed = set(review_table["asin"].unique().to_list())
    products = list(_converted(meta, ("asin",), _product, reviewed)) if meta else []
    product_table = pl.DataFrame(products, schema=_PRODUCT, orient="row")
    product_table = product_table.unique("asin", keep="first", maintain_order=True)
    text = _TOML.format(name=name)
    with new_folder(folder, holds=("reviews.parquet", "products.parquet", "dataset.toml")) as new:
        review_table.write_parquet(new / "reviews.parquet")
        if meta:
            product_table.write_parquet(new / "products.parquet")
        else:
            text = text[: text.index("[items]")]
        (new / "dataset.toml").write_text(text, encoding="utf-8")


def amazon_files(name: str, category: str, files: Sequence[Path]) -> tuple[Path, Path | None]:
    """Which of the files (or of a folder's files) are the reviews and the meta data of a category, by their names."""
    with reading(", ".join(map(str, files))):
        paths = [path for file in files for path in (sorted(file.iterdir()) if is_folder(file) else [file])]
    reviews, meta = ([path for path in paths if path.name.startswith(f"{kind}_{category}")] for kind in ("reviews", "meta"))
    if not reviews:
        raise DataError(f"'{name}' needs {NEEDED_FILES.format(category)}; no file named reviews_{category}* was given.")
    return reviews[0], meta[0] if meta else None


def read_lines(path: Path, asins: set[str] | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of each line. A Python literal is parsed, never evaluated: code in it is refused.

    asins: only lines about these products are parsed; the others, most of a meta file, are skipped.
    """
    number = 0
    try:
        with open_bytes(path) as file:
            for number, line in enumerate(iter(lambda: file.readline(_LONGEST_LINE), b""), start=1):
                if len(line) == _LONGEST_LINE:
                    raise DataError(f"{path} line {number:,} is longer than {_LONGEST_LINE >> 20} MiB; is it a file of lines?")
                if not line.strip():
                    continue
                if asins is not None:
                    match = _ASIN.search(line)
                    if match and match[1].decode(errors="replace") not in asins:
                        continue
                yield number, _parse(line, path, number)
    except EOFError as error:
        raise DataError(f"{path} is truncated after line {number:,}; fetch the file again.") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is damaged after line {number:,} ({error}); fetch the file again.") from error
    except OSError as error:
        raise DataError(f"{path} could not be read ({reason(error)}).") from error


def _parse(data: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        text = data.decode()
        value = parse_json(text)
    except UnicodeDecodeError as error:
        raise DataError(f"{path} line {number:,} is not UTF-8.") from error
    except ValueError:
        try:
            value = ast.literal_eval(text.strip())
        except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
            raise DataError(f"{path} line {number:,} is neither JSON nor a Python literal: {text.strip()[:60]!r}.") from error
    if not isinstance(value, dict):
        raise DataError(f"{path} line {number:,} holds a {type(value).__name__}, expected an object with keys and values.")
    return value


def _converted(
    path: Path, keys: tuple[str, ...], convert: Callable[[dict[str, Any]], tuple[Any, ...]], asins: set[str] | None = None
) -> Iterator[tuple[Any, ...]]:
    for number, record in read_lines(path, asins):
        for key in keys:
            if key not in record:
                raise DataError(f"{path} line {number:,} has no '{key}'; is this the 2014 file?")
        try:
            yield convert(record)
        except (TypeError, ValueError, OverflowError) as error:
            raise DataError(
                f"{path} line {number:,} holds a value of another kind than the 2014 files do ({error})."
            ) from error


def _review(record: dict[str, Any]) -> tuple[Any, ...]:
    time = int(record["unixReviewTime"])
    if abs(time) >= 2**63:
        raise OverflowError(f"the time {str(time)[:30]}")
    return _id(record["reviewerID"]), _id(record["asin"]), float(record["overall"]), time


def _product(record: dict[str, Any]) -> tuple[Any, ...]:
    paths = [[_id(label) for label in path] for path in record.get("categories") or [] if path]
    category = " > ".join(paths[0]) if paths else None
    labels = list(dict.fromkeys(label for path in paths for label in path)) if paths else None
    price = record.get("price")
    return (
        _id(record["asin"]),
        category,
        labels,
        _text(record.get("brand")),
        float(price) if isinstance(price, (int, float)) else None,
        _text(record.get("title")),
    )


def _id(value: Any) -> str:
    """As text; half a surrogate pair, which JSON can write, is refused as UnicodeEncodeError."""
    text = str(value)
    text.encode()
    return text


def _text(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{value!r} where a text was expected")
    return _id(value) if value else None
