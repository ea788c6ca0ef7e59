"""What prepared.json says of a prepared folder, and whether it can be so. docs/prepared.md describes it."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from gmlfm.data.attributes import PARTS, FieldCode, Part
from gmlfm.data.columns import IdType
from gmlfm.data.schema import Field, InteractionsSchema, Repeats, Schema, SideSchema, Ties
from gmlfm.errors import DataError
from gmlfm.reading import READ_ERRORS, file_status, parse_json, reason
from gmlfm.storage import write_text
from gmlfm.streams import read_text
from gmlfm.typed_json import from_json

FORMAT = 4
_FILE = "prepared.json"
_MOST_BYTES = 1 << 28
_LARGEST = 2**31 - 1  # rows and numbers are int32


@dataclass(frozen=True)
class ShardInfo:
    name: str
    rows: int
    train: int = 0
    validation: int = 0
    test: int = 0


@dataclass(frozen=True)
class PreparedInfo:
    """The content of prepared.json. history: of the shards of interactions, by name, those that have rows which count as
    history alone; event: whether kinds of events were declared. checksums: the sha256 of each Parquet file by its path in the
    folder, if it was written."""

    name: str
    source_hash: str
    split: str
    n_users: int
    n_items: int
    n_interactions: int
    fields: tuple[FieldCode, ...]
    widths: dict[str, int]
    columns: tuple[str, ...]
    users: tuple[ShardInfo, ...]
    items: tuple[ShardInfo, ...]
    interactions: tuple[ShardInfo, ...]
    history: tuple[ShardInfo, ...] = ()
    user_id_type: IdType = "text"
    item_id_type: IdType = "text"
    notes: tuple[str, ...] = ()
    sells_once: bool = False
    repeats: Repeats = "merge"
    ties: Ties = "strict"
    event: bool = False
    targets: tuple[str, ...] | None = None
    history_events: tuple[str, ...] | None = None
    min_count: dict[str, int] = field(default_factory=dict)
    checksums: dict[str, str] = field(default_factory=dict)
    format: int = field(default=FORMAT)

    @property
    def schema(self) -> Schema:
        """What is declared, with the names that the folder's columns have."""

        def declared(part: Part) -> tuple[Field, ...]:
            codes = [code for code in self.fields if code.part == part]
            return tuple(Field(code.name, code.kind, weighting=code.weighting) for code in codes if code.kind != "id")

        time, label, weight = (name if name in self.columns else None for name in ("time", "label", "weight"))
        named = InteractionsSchema(user="user", item="item", time=time, label=label, weight=weight)
        event = "event" if self.event else None
        kinds = replace(named, event=event, targets=self.targets, history_events=self.history_events)
        return Schema(
            replace(kinds, repeats=self.repeats, ties=self.ties, context=declared("context")),
            self.name,
            SideSchema(id="user", fields=declared("user")),
            SideSchema(id="item", fields=declared("item"), sells_once=self.sells_once),
            self.min_count,
        )

    def write(self, folder: Path) -> None:
        content = asdict(self)
        text = json.dumps({**content, "sha256": _digest(content)}, indent=1, ensure_ascii=False)
        write_text(folder / _FILE, text + "\n")


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read_info(folder: Path) -> PreparedInfo:
    """The content of a folder's prepared.json; refused where it is damaged, of another format, or contradicts itself."""
    path = folder / _FILE
    if file_status(path) is None:
        raise DataError(f"{folder} is no prepared folder: prepared.json is missing; make one with gmlfm data prepare.")
    try:
        content: dict[str, Any] = parse_json(read_text(path, _MOST_BYTES))
        if content["format"] != FORMAT:
            raise DataError(
                f"{folder} was prepared in format {content['format']}, this version reads {FORMAT}; prepare it again."
            )
        digest = content.pop("sha256", None)
        if digest is not None and digest != _digest(content):
            raise ValueError("it was changed after it was written")
        info: PreparedInfo = from_json(PreparedInfo, content, "it")
        _check(info)
        return info
    except (AttributeError, *READ_ERRORS) as error:
        raise DataError(f"{path} cannot be understood ({reason(error)}); prepare the data again.") from error


def _check(info: PreparedInfo) -> None:
    """Raises ValueError with what contradicts what."""
    _need({"user", "item", "part"} <= set(info.columns), "columns")
    _need(_are_counts(info.min_count.values()), "min_count")
    for name in ("users", "items", "interactions", "history"):
        shards: tuple[ShardInfo, ...] = getattr(info, name)
        owner = "the history's" if name == "history" else f"the {name}'"
        for shard in shards:
            # It becomes part of a path.
            _need(re.fullmatch(r"[\w-]+", shard.name) is not None, f"{owner} shard names")
            _need(_are_counts([shard.rows, shard.train, shard.validation, shard.test]), f"{owner} shard sizes")
        _need(len({shard.name for shard in shards}) == len(shards), f"two shards of {name} have one name")
        if name == "history":
            _need({shard.name for shard in shards} <= {shard.name for shard in info.interactions}, "the history's shard names")
            continue
        total = getattr(info, f"n_{name}")
        _need(_are_counts([total]) and total == sum(shard.rows for shard in shards), f"n_{name} is not what the shards hold")
        _need(total > 0, f"there are no {name}")
    _check_fields(info.fields)
    for part in PARTS:
        singles = [code for code in info.fields if code.part == part and code.kind != "set"]
        sets = [code for code in info.fields if code.part == part and code.kind == "set"]
        width = info.widths[part]
        most = len(singles) + sum(code.n_values + 2 for code in sets)
        _need(_are_counts([width]) and len(singles) <= width <= most, f"the width of {part}")


def _check_fields(codes: Sequence[FieldCode]) -> None:
    offset = 1
    for code in codes:
        _need(_are_counts([code.offset, code.n_values]) and code.offset == offset, f"the rows of {code.name}")
        _need(math.isfinite(code.centre) and math.isfinite(code.scale) and code.scale > 0, f"the scale of {code.name}")
        offset = code.end
    _need(offset <= _LARGEST, "there are more rows than int32 can number")
    ids = [code.part for code in codes if code.kind == "id"]
    _need(sorted(ids) == ["item", "user"], "the fields of ids")


def _are_counts(values: Iterable[int]) -> bool:
    return all(0 <= value <= 2**53 for value in values)


def _need(is_so: bool, what: str) -> None:
    if not is_so:
        raise ValueError(f"it contradicts itself: {what}")
