"""What is ranked: the items of the interactions or the catalogue, those that can be had, a filter, caps for variety.

Where items sell once, what was sold is gone.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.arguments import ids_of, is_text, one_of, shown, whole_number
from gmlfm.data.columns import Origin
from gmlfm.data.conditions import quoted
from gmlfm.data.dataset import Side
from gmlfm.data.expressions import Columns, holds
from gmlfm.errors import DataError, OptionError, did_you_mean
from gmlfm.fitting import FittedRun
from gmlfm.recommender.run_index import Offer, RunIndex
from gmlfm.recommender.stock import Stock
from gmlfm.retrieval import Cap

Ints = npt.NDArray[np.int32]


def candidate_items(
    index: RunIndex, stock: Stock, n: int, filter: str | None, available: Sequence[Any] | None, candidates: str
) -> Ints:
    """Everything is narrowed before ranking, so that n come back whenever n exist."""
    n = whole_number(n, "n", least=1)
    candidates = one_of(candidates, "candidates", ("interactions", "catalogue"))
    if available is not None:
        items = _narrowed(index, stock, _available(index.run, ids_of(available, "available items")), filter)
    else:
        items = _usual_items(index, stock, filter, candidates)
    if len(items) == 0:
        raise DataError(f"no item is left to recommend from; {_narrowed_by(filter, available)}.")
    if n > len(items):
        items_are = "item is" if len(items) == 1 else "items are"
        warnings.warn(f"n is {n}, but only {len(items):,} {items_are} left to recommend; all of them are ranked.", stacklevel=3)
    return items


def _usual_items(index: RunIndex, stock: Stock, filter: str | None, candidates: str) -> Ints:
    """Of one stock they are found once."""
    of_catalogue = candidates == "catalogue"
    offered = index.offers.get(candidates)
    if offered is None or offered.stock is not stock:
        items, note = (np.arange(len(index.run.data.items), dtype=np.int32), "") if of_catalogue else _offered(index, stock)
        offered = index.offers.put(candidates, Offer(stock, _read_only(_narrowed(index, stock, items, None)), note))
    if offered.note:
        warnings.warn(offered.note, stacklevel=4)
    if filter is None:
        return offered.items
    if not isinstance(filter, str):
        return _narrowed(index, stock, offered.items, filter)
    narrowed = index.filtered.get((candidates, filter))
    if narrowed is None or narrowed[0] is not offered:
        items = _read_only(_narrowed(index, stock, offered.items, filter))
        narrowed = index.filtered.put((candidates, filter), (offered, items))
    return narrowed[1]


def _narrowed(index: RunIndex, stock: Stock, items: Ints, filter: str | None) -> Ints:
    """Those that can be had and fulfil the condition."""
    if not stock.is_available.all():
        items = items[stock.is_available[items]]
    return items if filter is None else items[fulfils(index.run.data.items, filter)[items]]


def _read_only(items: Ints) -> Ints:
    """Whoever keeps something by such items need not compare them number by number."""
    items = items.view()
    items.flags.writeable = False
    return items


def _offered(index: RunIndex, stock: Stock) -> tuple[Ints, str]:
    """Items that interactions name, and those that came without any. Where items sell once, those of them that have no sale:
    of the whole catalogue, and those that were marked back; the others as ever. And what is to be said of them."""
    data = index.run.data
    if not data.sells_once or not data.single_unit_items.any():
        return index.candidates, ""
    is_offered = data.single_unit_items.copy()
    is_offered[data.seen_items] = False
    numbers = index.run.encoder.item_numbers(stock.back())
    is_offered[numbers[numbers >= 0]] = True
    if not (is_offered & data.single_unit_items).any():
        message = (
            "every item that sells once is sold, so sold ones are recommended; add_items (gmlfm add-items) brings new ones."
        )
        return index.candidates, message
    is_offered[index.candidates[~data.single_unit_items[index.candidates]]] = True
    return np.flatnonzero(is_offered).astype(np.int32), ""


def _available(run: FittedRun, ids: list[Any]) -> Ints:
    numbers = run.encoder.item_numbers(ids)
    unknown = np.flatnonzero(numbers < 0)
    if len(unknown):
        which = f"{len(unknown):,} of the {len(ids):,} available items are not in the catalogue, the first '{ids[unknown[0]]}'"
        warnings.warn(f"{which}; they cannot be recommended.", stacklevel=4)
    return np.unique(numbers[numbers >= 0]).astype(np.int32)


def _narrowed_by(filter: str | None, available: Sequence[Any] | None) -> str:
    given = [name for name, value in (("filter", filter), ("available", available)) if value is not None]
    if not given:
        return "all are sold"
    return f"widen {' or '.join(given)}" + ("" if filter is None else " (texts are compared as they are, upper and lower case)")


def fulfils(side: Side, condition: str) -> npt.NDArray[np.bool_]:
    if not isinstance(condition, str) or not is_text(condition):
        raise OptionError(f'filter is {shown(condition)}; expected a condition such as "price < 50".')
    of_side = {"item": side.ids, **({} if side.titles is None else {"title": side.titles})}
    # A field of that name goes first: it is what the caller's table says.
    table = pl.DataFrame(
        [*side.fields.iter_columns(), *(values.alias(name) for name, values in of_side.items() if name not in side.fields)]
    )
    columns = Columns.of(table, Origin("the catalogue"), "filter")

    def number(name: str) -> pl.Series:
        try:
            return columns.number(name)
        except DataError:
            texts = columns.text(name).drop_nulls()
            raise OptionError(
                f"filter compares {quoted(name)} with a number, but it holds texts such as {texts[0]!r}; "
                "write the value in quotes."
            ) from None

    return holds(condition, replace(columns, number=number)).to_numpy()


def caps_of(index: RunIndex, at_most: Mapping[str, int] | None) -> list[Cap]:
    """{'category': 2}: at most two of one category among the n; items without a value are not held back.

    Of a set, an item counts for each of its members, and is held back where one of them has its number already.
    One field at a time: with two, filling the n places from the best down can miss a choice that fills them. Within a set it
    can, too: then fewer than n come back.
    """
    is_one = isinstance(at_most, Mapping) and len(at_most) == 1 and isinstance(next(iter(at_most)), str)
    if at_most is not None and not is_one:
        raise OptionError(f"at_most is {shown(at_most)}; expected one field, such as {{'category': 2}}.")
    caps = []
    fields = index.run.data.items.fields
    for name, most in (at_most or {}).items():
        if name not in fields.columns:
            raise OptionError(f"at_most names '{name}', which is no item field{did_you_mean(name, fields.columns)}")
        cap = index.caps.of(name, lambda name=name: _cap(fields[name], 1))  # type: ignore[misc]
        caps.append(replace(cap, most=whole_number(most, f"at_most of '{name}'", least=1)))
    return caps


def _cap(values: pl.Series, most: int) -> Cap:
    """Items are of one group where they have a value, or a member of a set, in common."""
    if not isinstance(values.dtype, pl.List):
        return Cap(values.cast(pl.String).rank("dense").cast(pl.Int32).fill_null(-1).to_numpy(), most)
    members = values.drop_nulls().explode(empty_as_null=False)
    starts = np.concatenate(([0], np.cumsum(values.list.len().fill_null(0).to_numpy().astype(np.int64))))
    return Cap(members.rank("dense").cast(pl.Int32).to_numpy(), most, starts)


def note_caps(n_rows: int, n_users: int, n: int, items: Ints, at_most: Mapping[str, int] | None) -> None:
    """Warns where a cap left fewer than n although there are as many."""
    if at_most and len(items) >= n and n_rows < n * n_users:
        warnings.warn(f"at_most leaves {n_rows:,} rows instead of {n * n_users:,}; raise it to have more.", stacklevel=3)
