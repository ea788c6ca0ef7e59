from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from gmlfm import load_dataset
from gmlfm.data.sources import amazon
from gmlfm.data.sources.amazon import convert_amazon, read_lines
from gmlfm.data.sources.fetch import get_dataset
from gmlfm.errors import DataError

REVIEWS = [
    {"reviewerID": "A1", "asin": "B1", "overall": 5.0, "unixReviewTime": 1400000000, "reviewText": 'It\'s "fine"'},
    {"reviewerID": "A1", "asin": "B2", "overall": 3.0, "unixReviewTime": 1400000001},
    {"reviewerID": "A2", "asin": "B9", "overall": 1.0, "unixReviewTime": 1400000002},
]


PRODUCTS = [
    {"asin": "B1", "title": "Pen", "categories": [["Office", "Pens"], ["Office", "Gifts"]], "brand": "Bic", "price": 2.5},
    {"asin": "B2", "categories": [["Office", "Paper"]], "brand": ""},
    {"asin": "XX", "categories": [["Never reviewed"]]},
]


@pytest.mark.parametrize("write", [json.dumps, repr], ids=["json", "literal"])
def test_amazon_lines_may_be_json_or_python_literals(tmp_path: Path, write: object) -> None:
    assert callable(write)
    for name, rows in (("reviews_Office_Products_5.json.gz", REVIEWS), ("meta_Office_Products.json.gz", PRODUCTS)):
        (tmp_path / name).write_bytes(gzip.compress("".join(write(row) + "\n" for row in rows).encode()))
    get_dataset("amazon-office", tmp_path / "root", files=[tmp_path])
    data = load_dataset("amazon-office", data_root=tmp_path / "root")
    assert (data.n_interactions, len(data.items)) == (3, 3)
    assert data.items.fields["category"].to_list() == ["Office > Pens", "Office > Paper", None]
    assert any("1 items (1 interactions) have no row" in line for line in data.warnings)
    toml = tmp_path / "root" / "amazon-office" / "dataset.toml"
    lines = toml.read_text().splitlines()
    toml.write_text(
        "\n".join(line.removeprefix("# ") if "labels =" in line else line for line in lines if not line.startswith("fields"))
    )
    labelled = load_dataset(toml)
    assert labelled.items.fields["labels"].to_list()[0] == ["Office", "Pens", "Gifts"]
    assert labelled.items.fields["price"].to_list()[0] == 2.5


def test_amazon_reviews_alone_have_no_attributes(tmp_path: Path) -> None:
    (tmp_path / "reviews_Automotive_5.json").write_text("\n".join(json.dumps(row) for row in REVIEWS))
    get_dataset("amazon-auto", tmp_path, files=[tmp_path / "reviews_Automotive_5.json"])
    assert load_dataset("amazon-auto", data_root=tmp_path).items.fields.width == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{'asin': __import__('os').system('true')}", "line 2 is neither JSON nor a Python literal"),
        ("{broken", "line 2 is neither JSON nor a Python literal"),
        ("[1, 2]", "line 2 holds a list"),
        ('{"asin": "B1"}', "line 2 has no 'reviewerID'"),
    ],
)
def test_lines_that_are_no_reviews_are_refused_with_their_number(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "reviews_x.json").write_text(json.dumps(REVIEWS[0]) + "\n" + text + "\n")
    with pytest.raises(DataError) as caught:
        convert_amazon("amazon-x", tmp_path / "reviews_x.json", None, tmp_path / "out")
    assert message in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_truncated_gzip_tells_how_far_it_went(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    text = "".join(json.dumps({**REVIEWS[0], "reviewText": rng.bytes(200).hex()}) + "\n" for _ in range(2000))
    (tmp_path / "r.json.gz").write_bytes(gzip.compress(text.encode())[:-5000])
    with pytest.raises(DataError, match=r"r\.json\.gz is truncated after line 1,\d+"):
        list(read_lines(tmp_path / "r.json.gz"))


def test_each_amazon_set_takes_its_own_files(tmp_path: Path) -> None:
    for raw, reviewer in (("Automotive", "auto"), ("Office_Products", "office")):
        rows = "".join(json.dumps({**row, "reviewerID": reviewer}) + "\n" for row in REVIEWS)
        (tmp_path / f"reviews_{raw}_5.json.gz").write_bytes(gzip.compress(rows.encode()))
    get_dataset("amazon-office", tmp_path / "root", files=[tmp_path])
    assert load_dataset("amazon-office", data_root=tmp_path / "root").users.ids.to_list() == ["office"]


@pytest.mark.parametrize(
    "change", [{"overall": "x"}, {"unixReviewTime": None}, {"overall": [5]}, {"unixReviewTime": 10**50}, {"asin": "\ud800"}]
)
def test_values_of_another_kind_are_refused_with_their_line(tmp_path: Path, change: dict[str, object]) -> None:
    (tmp_path / "reviews_x.json").write_text(json.dumps(REVIEWS[0]) + "\n" + json.dumps({**REVIEWS[1], **change}) + "\n")
    with pytest.raises(DataError, match="line 2 holds a value of another kind"):
        convert_amazon("amazon-x", tmp_path / "reviews_x.json", None, tmp_path / "out")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "(" * 150 + ")" * 150, "-" * 5_000 + "1", "9" * 5_000])
def test_lines_nested_without_end_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "reviews_x.json").write_text(text + "\n")
    with pytest.raises(DataError, match=r"line 1 (is neither JSON nor a Python literal|holds a)"):
        list(read_lines(tmp_path / "reviews_x.json"))


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amazon, "_LONGEST_LINE", 1 << 20)
    (tmp_path / "r.json.gz").write_bytes(gzip.compress(bytes(3 << 20)))
    with pytest.raises(DataError, match="line 1 is longer than 1 MiB; is it a file of lines"):
        list(read_lines(tmp_path / "r.json.gz"))
