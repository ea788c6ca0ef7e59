from __future__ import annotations

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from gmlfm import Schema
from gmlfm.data.schema import Field, InteractionsSchema, ReadOptions, SideSchema
from gmlfm.data.schema_toml import to_toml

names = st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=8)
fields = st.builds(Field, names, st.sampled_from(["category", "number"])) | st.builds(
    Field, names, st.just("set"), st.none() | st.sampled_from(["|", "\t", '"', "\\"]), st.sampled_from(["none", "mean", "sqrt"])
)
field_tuples = st.lists(fields, max_size=3, unique_by=lambda field: field.name).map(tuple)
read_options = st.builds(
    ReadOptions,
    separator=st.none() | st.sampled_from([";", "\t", "::"]),
    encoding=st.none() | st.just("latin-1"),
    header=st.none() | st.booleans(),
    null=st.none() | st.lists(st.text(max_size=4), max_size=3).map(tuple),
    columns=st.none() | st.lists(names, max_size=3, unique=True).map(tuple),
    tolerate=st.integers(0, 5),
)
sides = st.builds(SideSchema, id=names, path=names, fields=field_tuples, title=st.none() | names, read=read_options)


@given(
    st.builds(
        Schema,
        name=names,
        interactions=st.builds(
            InteractionsSchema,
            user=names,
            item=names.map(lambda name: name + " item"),
            path=names,
            where=st.none() | names,
            time=st.none() | names,
            weight=st.none() | names,
            repeats=st.sampled_from(["merge", "keep"]),
            ties=st.sampled_from(["strict", "shuffle", "file"]),
            context=field_tuples,
            read=read_options,
        ),
        users=st.none() | sides,
        items=st.none() | sides,
    )
)
def test_a_schema_written_as_toml_reads_back_the_same(schema: Schema) -> None:
    reasons = {
        "interactions.user": "two\nlines # and a mark",
        "items.unused": "not used:\nsome: text",
        "users.notes": "a\nb\x01",
    }
    if schema.users is not None:
        assert "# note: a\n# note: b?\n" in to_toml(schema, reasons)
    assert Schema.from_dict(tomllib.loads(to_toml(schema, reasons))) == schema


def test_kinds_of_events_are_written_with_their_reasons() -> None:
    kinds = ("buy", 'say "x"')
    interactions = InteractionsSchema("u", "i", "t.csv", event="e", targets=kinds, history_events=("see", *kinds), ties="file")
    reasons = {f"interactions.{key}": f"reason of {key}" for key in ("event", "targets", "history_events", "ties")}
    text = to_toml(Schema(interactions), reasons)
    assert Schema.from_dict(tomllib.loads(text)) == Schema(interactions)
    assert all(f"# {reason}" in text for reason in reasons.values())
    assert "ties" not in to_toml(Schema(InteractionsSchema("u", "i", "t.csv")))
