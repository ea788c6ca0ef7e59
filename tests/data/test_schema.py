from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gmlfm import Schema
from gmlfm.data.schema import Field, ReadOptions
from gmlfm.errors import DataError, GmlfmError, SchemaError

CONTRACT = """
name = "my-shop"
[interactions]
path = "purchases.parquet"
user = "buyer_id"
item = "sku"
time = "bought_at"
label = "stars"
positive = "stars >= 4"
weight = "quantity"
context = { device = "category" }
[users]
path = "buyers.csv"
id = "buyer_id"
fields = { city = "category", age = "number" }
[items]
path = "catalogue.jsonl"
id = "sku"
fields = { category = "category", tags = { kind = "set", separator = "|", weighting = "mean" }, price = "number" }
title = "name"
[encoding]
min_count = { item = 2, tags = 5 }
read = { separator = ";", encoding = "latin-1", null = ["NULL", ""] }
"""


def test_the_contracts_example_is_read(tmp_path: Path) -> None:
    (tmp_path / "dataset.toml").write_text(CONTRACT)
    schema = Schema.from_toml(tmp_path / "dataset.toml")
    assert schema.interactions.positive == "stars >= 4"
    assert schema.interactions.context == (Field("device", "category"),)
    assert schema.items is not None
    assert schema.items.fields[1] == Field("tags", "set", "|", "mean")
    assert schema.items.title == "name"
    assert schema.items.read == ReadOptions(separator=";", encoding="latin-1", null=("NULL", ""))
    assert schema.min_count_of("item", "tags") == 5
    assert schema.min_count_of("user", "city") == 1


def test_a_tables_read_options_go_before_the_shared_ones(tmp_path: Path) -> None:
    text = CONTRACT.replace('title = "name"', 'title = "name"\nread = { separator = "," }')
    (tmp_path / "dataset.toml").write_text(text)
    schema = Schema.from_toml(tmp_path / "dataset.toml")
    assert schema.items is not None
    assert (schema.items.read.separator, schema.items.read.encoding) == (",", "latin-1")


def test_a_header_is_declared_in_the_table_or_in_its_read(tmp_path: Path) -> None:
    for line in ("header = false", "read = { header = false }", "header = false\nread = { header = false }"):
        (tmp_path / "dataset.toml").write_text(CONTRACT.replace('title = "name"', f'title = "name"\n{line}'))
        schema = Schema.from_toml(tmp_path / "dataset.toml")
        assert schema.items is not None
        assert schema.items.read.header is False
        assert schema.items.read.separator == ";"
        assert schema.interactions.read.header is None


MINIMAL: dict[str, Any] = {"interactions": {"user": "u", "item": "i"}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"interactoins": {}}, "unknown key 'interactoins'; did you mean 'interactions'?"),
        ({"interactions": {"user": "u", "item": "i", "tme": "t"}}, "unknown key 'tme'; did you mean 'time'?"),
        ({"interactions": {"user": "u"}}, "has no 'item'"),
        ({"interactions": {"user": 3, "item": "i"}}, "user is 3; expected text"),
        ({"interactions": {"user": "u", "item": "i", "ties": "random"}}, "ties is 'random'; expected 'strict', 'shuffle' or 'file'."),
        ({"interactions": {"user": "u", "item": "i", "ties": None}}, "ties is None; expected text"),
        ({"interactions": {"user": "u", "item": "i", "event": "e"}}, "has event but neither targets nor history_events; say what is learned"),
        ({"interactions": {"user": "u", "item": "i", "targets": ["buy"]}}, "has targets but no event; name the column of the kinds"),
        ({"interactions": {"user": "u", "item": "i", "history_events": ["buy"]}}, "has history_events but no event; name the column"),
        ({"interactions": {"user": "u", "item": "i", "event": "e", "targets": "buy"}}, "targets is 'buy'; expected a list of kinds of events"),
        ({"interactions": {"user": "u", "item": "i", "event": "e", "targets": []}}, "targets is []; expected a list of kinds of events"),
        ({"interactions": {"user": "u", "item": "i", "event": "e", "targets": [4]}}, "targets is [4]; expected a list of kinds of events"),
        ({"interactions": {"user": "u", "item": "i", "event": "e", "history_events": ["a", "a"]}}, "history_events names a kind twice"),
        ({"interactions": {"user": "u", "item": "i", "event": "i", "targets": ["a"]}}, "the column 'i' as item and as event"),
        ({"interactions": {"user": "u", "item": "i", "evnt": "e"}}, "unknown key 'evnt'; did you mean 'event'?"),
        ({"interactions": {"user": "u", "item": "i", "where": True}}, "where is True; expected text"),
        ({"interactions": "x"}, "expected a table"),
        ({"items": {"id": "i", "fields": {"a": "categroy"}}}, "kind 'categroy'; expected category, set or number; did you mean"),
        ({"items": {"id": "i", "fields": {"a": {"kind": "number", "separator": "|"}}}}, "separator and weighting belong to a set"),
        ({"items": {"id": "i", "fields": {"a": {"kind": "set", "weighting": "max"}}}}, "expected none, mean or sqrt"),
        ({"items": {"fields": {}}}, "has no 'id'"),
        ({"encoding": {"min_count": {"itm": 2}}}, "names 'itm', no field; did you mean 'item'?"),
        ({"encoding": {"min_count": {"item": 0}}}, "expected a whole number of 1 or more"),
        ({"encoding": {"read": {"tolerate": -1}}}, "tolerate is -1"),
        ({"encoding": {"read": {"header": 1}}}, "header is 1; expected true or false: is the first line one of names?"),
        ({"interactions": {"user": "u", "item": "i", "header": "yes"}}, "header is 'yes'; expected true or false"),
        ({"items": {"id": "i", "header": True, "read": {"header": False}}}, "[items] has header and another header in read; keep one"),
        ({"encoding": {"read": {"null": "NULL"}}}, "expected a list of texts"),
        ({"users": {"id": "u", "fields": {"x": "category"}}, "items": {"id": "i", "fields": {"x": "category"}},
          "encoding": {"min_count": {"x": 2}}}, "write 'user.x' or 'item.x'"),
    ],
)  # fmt: skip
def test_a_wrong_schema_is_refused_in_a_sentence(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        Schema.from_dict({**MINIMAL, **change}, source="dataset.toml")
    assert message in str(caught.value)
    assert "dataset.toml" in str(caught.value)


def test_broken_toml_names_the_file_and_the_place(tmp_path: Path) -> None:
    path = tmp_path / "dataset.toml"
    path.write_text("name = \n")
    with pytest.raises(SchemaError, match=r"dataset\.toml is not a valid TOML file: .*line 1"):
        Schema.from_toml(path)
    with pytest.raises(SchemaError, match="could not be read"):
        Schema.from_toml(tmp_path / "other.toml")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"name = " + b"[" * 10_000, "is not a valid TOML file: it is nested too deeply"),
        (b"a." * 20_000 + b"b = 1", "dataset"),
        (b"n = " + b"9" * 5_000, "is not a valid TOML file: Exceeds the limit"),
        (b"name = \xff", "is not a valid TOML file"),
        (b"\0", "is not a valid TOML file"),
        (b"# " + b"x" * (1 << 24), "is longer than 16 MiB; is it the file that was meant"),
    ],
    ids=["arrays", "tables", "digits", "bytes", "nul", "long"],
)
def test_a_toml_file_of_nonsense_is_one_sentence(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "dataset.toml").write_bytes(content)
    with pytest.raises(GmlfmError) as caught:
        Schema.from_toml(tmp_path / "dataset.toml")
    assert message in str(caught.value)


def test_a_device_is_no_toml_file(tmp_path: Path) -> None:
    (tmp_path / "dataset.toml").symlink_to("/dev/zero")
    with pytest.raises(DataError, match=r"dataset\.toml is a device; expected a file"):
        Schema.from_toml(tmp_path / "dataset.toml")


def test_any_line_end_and_mark_will_do(tmp_path: Path) -> None:
    text = '\ufeffname = "x"\n[interactions]\npath = "t.csv"\nuser = "u"\nitem = "i"\n'
    for end in ("\n", "\r\n", "\r"):
        (tmp_path / "dataset.toml").write_bytes(text.replace("\n", end).encode())
        assert Schema.from_toml(tmp_path / "dataset.toml").name == "x"


def test_keys_are_texts_and_of_few_parts(tmp_path: Path) -> None:
    for content in (3, [1], None, {3: "x"}, {"interactions": {None: "u"}}):
        with pytest.raises(SchemaError, match=r"expected a (table of keys and values|text)\."):
            Schema.from_dict(content)  # type: ignore[arg-type]
    (tmp_path / "dataset.toml").write_text(".".join(["a"] * 1_000_000) + " = 1\n")
    with pytest.raises(SchemaError, match=r"is not a valid TOML file: a key has more than 100 parts"):
        Schema.from_toml(tmp_path / "dataset.toml")
    dots = "." * 200
    text = f'name = "{dots}" # {dots}\n# {dots}\n[interactions]\npath = \'{dots}\'\nuser = "u"\nitem = "i"\n'
    (tmp_path / "dataset.toml").write_text(text)
    assert Schema.from_toml(tmp_path / "dataset.toml").name == dots


def test_kinds_of_events_and_ties_are_read(tmp_path: Path) -> None:
    lines = 'event = "what"\ntargets = ["buy", "rent"]\nhistory_events = ["buy", "view"]\nties = "shuffle"'
    (tmp_path / "dataset.toml").write_text(CONTRACT.replace('time = "bought_at"', f'time = "bought_at"\n{lines}'))
    interactions = Schema.from_toml(tmp_path / "dataset.toml").interactions
    assert (interactions.event, interactions.ties) == ("what", "shuffle")
    assert (interactions.targets, interactions.history_events) == (("buy", "rent"), ("buy", "view"))
    assert interactions.has_targets_beside_history
    assert not Schema.from_dict(MINIMAL).interactions.has_targets_beside_history
    assert Schema.from_dict(MINIMAL).interactions.ties == "strict"
