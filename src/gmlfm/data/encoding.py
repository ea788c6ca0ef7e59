"""The Encoder: the only place that knows both the caller's ids and our rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.attributes import (
    FIRST_VALUE,
    PARTS,
    ROLES,
    UNKNOWN,
    AttributeTable,
    FieldCode,
    Learned,
    Part,
    Role,
    count_values,
    encode_number,
    encode_set,
    frequent_ids,
    lay_out,
    learn_field,
    no_text,
    pack,
    rows_of,
    take,
    with_roles,
)
from gmlfm.data.columns import IdType
from gmlfm.data.dataset import Dataset, Rows
from gmlfm.errors import DataError, OptionError
from gmlfm.reading import READ_ERRORS, parse_json, read_parquet, reason
from gmlfm.storage import new_folder
from gmlfm.typed_json import from_json

_FORMAT = 1
_FEW = 32  # ids that are looked up one by one, instead of joining them with all there are
_FILES = ("encoder.json", "values.parquet", "users.parquet", "items.parquet")


@dataclass(frozen=True)
class Encoded:
    """A dataset's three parts; `context` is by interaction row, the others by entity number."""

    user: AttributeTable
    context: AttributeTable
    item: AttributeTable

    def user_side(self, users: npt.NDArray[np.integer[Any]], rows: Rows | None = None) -> AttributeTable:
        """Users with the context of their interaction rows; without rows the context is left out."""
        ids, values = self.user.ids[users], self.user.values[users]
        if rows is None or self.context.ids.shape[1] == 0:
            return AttributeTable(ids, values)
        context_ids, context_values = self.context.ids[rows], self.context.values[rows]
        return AttributeTable(np.concatenate([ids, context_ids], axis=1), np.concatenate([values, context_values], axis=1))


@dataclass(frozen=True, eq=False)
class Encoder:
    fields: tuple[FieldCode, ...]
    values: tuple[pl.Series, ...]  # by field: the text of each value row, in row order; empty for numbers
    user_ids: pl.Series
    item_ids: pl.Series
    user_id_type: IdType
    item_id_type: IdType
    roles: tuple[Role, ...] = ()

    @classmethod
    def fit(
        cls,
        data: Dataset,
        train_rows: Rows | Sequence[int],
        *,
        all_ids: bool = False,
        user_ids: bool = True,
        roles: tuple[Role, ...] = (),
    ) -> Encoder:
        """Learn the rows from training interactions and the catalogue.

        An id has a row when its training positives number `min_count` or more (so a catalogue id without any has none);
        all_ids: every id has a row, trained or not, as the published procedure has it. user_ids=False: no user has one.
        roles: the items' fields have rows of their own for each of them, by which earlier items stand on the user's side.
        A side field's value is counted over the users or items that carry it, a context field's over training rows.
        """
        train_rows = np.asarray(train_rows, dtype=np.int64)
        if len(train_rows) == 0:
            raise DataError("no training rows are left, so there is nothing to learn from; choose another split.")
        trained = train_rows[data.interactions["positive"].to_numpy()[train_rows]]
        learned: list[Learned] = []
        for part in PARTS:
            if part != "context":
                side, numbers = (data.users, data.user_numbers) if part == "user" else (data.items, data.item_numbers)
                minimum = 0 if all_ids else data.schema.min_count_of(part, part)
                texts = no_text() if part == "user" and not user_ids else frequent_ids(side.ids, numbers[trained], minimum)
                learned.append(Learned(part, part, "id", len(texts), texts))
            for field in data.schema.fields_of(part):
                column = data.columns_of(part)[field.name]
                column = column[train_rows] if part == "context" else column
                is_number = field.kind == "number"
                counts = None if is_number else count_values(column)
                present_numbers = column.drop_nulls().to_numpy() if is_number else np.empty(0)
                minimum = data.schema.min_count_of(part, field.name)
                learned.append(learn_field(part, field, counts, present_numbers, minimum))
        codes, values = lay_out(learned), tuple(field.texts for field in learned)
        encoder = cls(codes, values, data.users.ids, data.items.ids, data.users.id_type, data.items.id_type)
        return encoder.with_roles(roles)

    def with_roles(self, roles: tuple[Role, ...]) -> Encoder:
        """The same encoder with rows for these roles of earlier items, and for no others."""
        base = [(code, texts) for code, texts in zip(self.fields, self.values, strict=True) if code.part in PARTS]
        of_items = tuple(texts for code, texts in base if code.part == "item")
        values = (*(texts for _, texts in base), *(of_items * len(roles)))
        return replace(self, fields=with_roles(self.fields, roles), values=values, roles=roles)

    @property
    def n_rows(self) -> int:
        """Rows of the parameter table: padding, unknown and missing rows included."""
        return self.fields[-1].end

    @property
    def n_attributes(self) -> int:
        """Attributes as the paper counts them: values alone, each once."""
        return sum(field.n_values for field in self.fields if field.part in PARTS)

    def part(self, part: Part) -> list[FieldCode]:
        return [field for field in self.fields if field.part == part]

    def encode(self, data: Dataset) -> Encoded:
        return Encoded(
            user=self.encode_part("user", data.users.ids, data.users.fields, len(data.users)),
            context=self.encode_part("context", None, data.context, data.n_interactions),
            item=self.encode_part("item", data.items.ids, data.items.fields, len(data.items)),
        )

    def encode_part(self, part: Part, ids: pl.Series | None, columns: pl.DataFrame, n: int) -> AttributeTable:
        """Attribute rows of `n` entities. Ids and fields that are not given count as unknown.

        Fields with one value have a column each, in field order; members of sets follow, packed to the left.
        """
        singles: list[tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]] = []
        sets: list[pl.DataFrame] = []
        for field, texts in zip(self.fields, self.values, strict=True):
            if field.part != part:
                continue
            column = ids if field.kind == "id" else columns[field.name] if field.name in columns.columns else None
            if column is None:
                singles.append((np.full(n, field.unknown_row, np.int32), np.ones(n, np.float32)))
            elif field.kind == "number":
                singles.append(encode_number(field, column))
            elif field.kind == "set":
                sets.append(encode_set(field, texts, column))
            else:
                rows = rows_of(field, texts, column).to_numpy().astype(np.int32)
                singles.append((rows, np.ones(n, np.float32)))
        return pack(n, singles, sets)

    def attribute_names(self, rows: Sequence[int] | npt.NDArray[np.integer[Any]]) -> pl.DataFrame:
        """What attribute rows stand for: part, field, value ('(unknown)' and '(missing)' for those rows)."""
        rows = np.asarray(rows, dtype=np.int64)
        starts = np.array([field.offset for field in self.fields])
        field_indices = np.searchsorted(starts, rows, side="right") - 1
        if len(rows) and (rows.min() < 1 or rows.max() >= self.n_rows):
            raise DataError(f"attribute rows go from 1 to {self.n_rows - 1}; got {rows.min()} to {rows.max()}.")
        names = []
        for row, index in zip(rows, field_indices, strict=True):
            field, place = self.fields[index], int(row - self.fields[index].offset)
            if place < FIRST_VALUE:
                value = "(unknown)" if place == UNKNOWN else "(missing)"
            else:
                value = field.name if field.kind == "number" else self.values[index][place - FIRST_VALUE]
            names.append((field.part, field.name, value))
        return pl.DataFrame(names, schema={"part": pl.String, "field": pl.String, "value": pl.String}, orient="row")

    def attribute_values(self, rows: npt.NDArray[np.integer[Any]], x: npt.NDArray[np.floating[Any]]) -> pl.DataFrame:
        """attribute_names with a column `number`: the value that x stands for in a field of numbers, null in other fields."""
        by_row = {field.offset + FIRST_VALUE: field for field in self.fields if field.kind == "number"}
        fields = (by_row.get(int(row)) for row in rows)
        # float32 has some seven digits; more would be those of its rounding.
        numbers = [
            None if field is None else float(f"{field.centre + field.scale * float(number):.6g}")
            for field, number in zip(fields, x, strict=True)
        ]
        return self.attribute_names(rows).with_columns(pl.Series("number", numbers, dtype=pl.Float64))

    def is_number(self, row: int) -> bool:
        """Whether an attribute row is the value of a field of numbers."""
        return any(field.kind == "number" and row == field.offset + FIRST_VALUE for field in self.fields)

    def user_numbers(self, ids: Sequence[Any]) -> npt.NDArray[np.int64]:
        """Entity numbers of the caller's ids, -1 for ids that the dataset does not have."""
        return _few_numbers(self.user_places, ids) if len(ids) <= _FEW else _numbers_of(self._user_lookup, ids)

    def item_numbers(self, ids: Sequence[Any]) -> npt.NDArray[np.int64]:
        return _few_numbers(self.item_places, ids) if len(ids) <= _FEW else _numbers_of(self._item_lookup, ids)

    def texts_of(self, ids: Sequence[Any]) -> list[str]:
        """The caller's ids as tables have them: as text."""
        return _texts(ids) if len(ids) <= _FEW else _id_texts("id", ids).to_list()

    def ids_of_users(self, numbers: npt.NDArray[np.integer[Any]]) -> pl.Series:
        """The caller's ids, in the caller's type; missing for -1."""
        return take(self.user_ids, numbers).cast(self._user_dtype).alias("user")

    def ids_of_items(self, numbers: npt.NDArray[np.integer[Any]]) -> pl.Series:
        return take(self.item_ids, numbers).cast(self._item_dtype).alias("item")

    @cached_property
    def user_places(self) -> dict[str, int]:
        """The number of each id, as text: what a few ids are looked up in, where a join would go over all there are."""
        return {user: number for number, user in enumerate(self.user_ids.to_list())}

    @cached_property
    def item_places(self) -> dict[str, int]:
        return {item: number for number, item in enumerate(self.item_ids.to_list())}

    def ids_given(self, users: Sequence[Any]) -> pl.Series:
        """The caller's user ids, of the dataset or not, in the type of its ids; as text where one cannot be of that type."""
        texts = _id_texts("user", users)
        typed = texts.cast(self._user_dtype, strict=False)
        return texts if typed.null_count() > texts.null_count() else typed

    @cached_property
    def _user_dtype(self) -> pl.DataType:
        return _dtype(self.user_ids, self.user_id_type)

    @cached_property
    def _item_dtype(self) -> pl.DataType:
        return _dtype(self.item_ids, self.item_id_type)

    @cached_property
    def _user_lookup(self) -> pl.DataFrame:
        return pl.DataFrame({"id": self.user_ids, "number": np.arange(len(self.user_ids))})

    @cached_property
    def _item_lookup(self) -> pl.DataFrame:
        return pl.DataFrame({"id": self.item_ids, "number": np.arange(len(self.item_ids))})

    @cached_property
    def hash(self) -> str:
        digest = hashlib.sha256(json.dumps([asdict(field) for field in self._base.fields]).encode())
        digest.update(" ".join(self.roles).encode())
        for texts in (*self._base.values, self.user_ids, self.item_ids):
            digest.update(f"|{len(texts)}|".encode())
            digest.update(texts.str.len_bytes().to_numpy().astype("<u4").tobytes())
            digest.update(str(texts.str.join("").item() if len(texts) else "").encode())
        return digest.hexdigest()[:16]

    @property
    def _base(self) -> Encoder:
        """Without the roles' copies."""
        return self.with_roles(()) if self.roles else self

    def values_table(self) -> pl.DataFrame:
        """field, value: the text of each value row of field number `field`, in row order."""
        fields = np.repeat(np.arange(len(self.values), dtype=np.int32), [len(texts) for texts in self.values])
        return pl.DataFrame({"field": fields, "value": pl.concat([texts.alias("value") for texts in self.values])})

    def save(self, folder: str | Path) -> None:
        """encoder.json beside values.parquet, users.parquet and items.parquet; an existing folder is replaced."""
        with new_folder(Path(folder), holds=_FILES) as new:
            metadata = {
                "format": _FORMAT,
                "hash": self.hash,
                "user_id_type": self.user_id_type,
                "item_id_type": self.item_id_type,
                "fields": [asdict(field) for field in self._base.fields],
                **({"roles": self.roles} if self.roles else {}),
            }
            (new / "encoder.json").write_text(json.dumps(metadata, indent=1, ensure_ascii=False), encoding="utf-8")
            self._base.values_table().write_parquet(new / "values.parquet")
            pl.DataFrame({"id": self.user_ids}).write_parquet(new / "users.parquet")
            pl.DataFrame({"id": self.item_ids}).write_parquet(new / "items.parquet")

    @classmethod
    def load(cls, folder: str | Path) -> Encoder:
        folder = Path(folder)
        try:
            metadata = parse_json((folder / "encoder.json").read_text(encoding="utf-8"))
            if metadata["format"] != _FORMAT:
                raise DataError(
                    f"{folder} holds an encoder of format {metadata['format']}, this version reads {_FORMAT}; update gmlfm."
                )
            fields = from_json(tuple[FieldCode, ...], metadata["fields"], "fields")
            id_types = [from_json(IdType, metadata[f"{side}_id_type"], f"{side}_id_type") for side in ("user", "item")]
            values = read_parquet(folder / "values.parquet")
            by_field = tuple(values.filter(pl.col("field") == index)["value"].alias("value") for index in range(len(fields)))
            users, items = (read_parquet(folder / f"{side}.parquet")["id"] for side in ("users", "items"))
            roles = from_json(tuple[Role, ...], metadata.get("roles", []), "roles")
            if len(set(roles)) < len(roles) or not set(roles) <= set(ROLES):
                raise ValueError(f"the roles {roles}")
            result = cls(fields, by_field, users, items, *id_types).with_roles(roles)
            is_whole = result.hash == metadata["hash"]
        except (AttributeError, *READ_ERRORS) as error:
            raise DataError(f"{folder} holds no readable encoder ({reason(error)}).") from error
        if not is_whole:
            raise DataError(f"{folder} holds a damaged encoder: its content does not fit its hash.")
        return result


def _numbers_of(lookup: pl.DataFrame, ids: Sequence[Any]) -> npt.NDArray[np.int64]:
    texts = pl.DataFrame({"id": _id_texts("id", ids)})
    numbers = texts.join(lookup, on="id", how="left", maintain_order="left")["number"]
    return numbers.fill_null(-1).to_numpy().astype(np.int64)


def _few_numbers(places: Mapping[str, int], ids: Sequence[Any]) -> npt.NDArray[np.int64]:
    return np.array([places.get(text, -1) for text in _texts(ids)], np.int64)


def _texts(ids: Sequence[Any]) -> list[str]:
    """As `_id_texts`, without a column around them."""
    try:
        texts = [_id_text(value) for value in ids]
        for text in texts:
            text.encode()
    except ValueError as error:
        raise OptionError(f"an id cannot be used ({error}); ids are texts or numbers.") from error
    return texts


def _id_texts(name: str, ids: Sequence[Any]) -> pl.Series:
    try:
        return pl.Series(name, [_id_text(value) for value in ids], dtype=pl.String)
    except ValueError as error:  # half a surrogate pair, as a shell makes of bytes that are no UTF-8; 5,000 digits
        raise OptionError(f"an id cannot be used ({error}); ids are texts or numbers.") from error


def _id_text(value: Any) -> str:
    """As columns.py writes ids: a whole float is written as an integer."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _dtype(ids: pl.Series, id_type: IdType) -> pl.DataType:
    """The same for all ids of a side, so that it does not depend on which of them are returned."""
    if id_type == "text":
        return pl.String()
    dtypes = (pl.Int64(), pl.UInt64())
    return next((dtype for dtype in dtypes if ids.cast(dtype, strict=False).null_count() == ids.null_count()), pl.Int128())
