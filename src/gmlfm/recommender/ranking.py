"""Tables of scores in the caller's ids: the best items for users and newcomers, and given pairs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.arguments import id_of, ids_of
from gmlfm.data.attributes import take
from gmlfm.data.interop import as_frame
from gmlfm.errors import DataError, OptionError
from gmlfm.fitting import FittedRun
from gmlfm.models.base import UserSide
from gmlfm.recommender.because import because_column, check_because
from gmlfm.recommender.complete_history import asked_users, complete_history
from gmlfm.recommender.observed import Observed
from gmlfm.recommender.run_index import KnownUser
from gmlfm.recommender.user_side import known_users, newcomer
from gmlfm.retrieval import Cap, best_items
from gmlfm.retrieval.threads import in_threads, scoring_threads
from gmlfm.runs.event_lines import ObservedRow

Ints = npt.NDArray[np.int32]
Context = Mapping[str, Any] | None
_USERS_PER_BLOCK = 512


@dataclass(frozen=True, eq=False)
class Ranked:
    """The best items of some users, user after user: whose each one is, by place among them; its number, score and rank from 1;
    perhaps the number of the earlier item that adds most to it, -1 for none. known: by user, was he met in training?"""

    places: npt.NDArray[np.int64]
    items: Ints
    scores: npt.NDArray[np.float64]
    ranks: npt.NDArray[np.int64]
    because: Ints | None
    known: npt.NDArray[np.bool_]


def rank_for_users(
    observed: Observed,
    users: Sequence[Any],
    n: int,
    items: Ints,
    caps: list[Cap],
    context: Context,
    *,
    seen: bool,
    because: bool = False,
) -> pl.DataFrame:
    """user, item, score, rank, known and perhaps title and because. A user of whom nothing is known gets what is popular."""
    run = observed.index.run
    if because:
        check_because(run)
    ids = run.encoder.ids_given(users)

    def table_of(start: int) -> pl.DataFrame:
        block = list(users[start : start + _USERS_PER_BLOCK])
        ranked = ranked_users(observed, block, n, items, caps, context, seen=seen, because=because)
        of_users = ids.new_from_index(0, len(ranked.places)) if len(users) == 1 else ids[start + ranked.places]
        return pl.DataFrame([of_users, *_columns(run, ranked), pl.Series("known", ranked.known[ranked.places])])

    if len(users) <= _USERS_PER_BLOCK:
        return table_of(0)
    n_threads = scoring_threads() if run.model.scores_in_threads else 1
    return pl.concat(in_threads(table_of, range(0, len(users), _USERS_PER_BLOCK), n_threads=n_threads))


def ranked_users(
    observed: Observed,
    users: list[Any],
    n: int,
    items: Ints,
    caps: list[Cap],
    context: Context,
    *,
    seen: bool,
    because: bool = False,
) -> Ranked:
    """As `rank_for_users`, as numbers."""
    index, run = observed.index, observed.index.run
    asked = _asked_users(observed, users, context, with_had=not seen)
    numbers, side = asked.numbers, asked.side
    scores = run.model.score_all(side, items)
    # Of whom nothing is known: neither the data nor anybody's observation has them.
    is_nobody = numbers < 0
    if side.history is not None:
        is_nobody &= side.history.lengths == 0
    if is_nobody.any():
        scores[is_nobody] = index.popularity[items]
    is_known = index.trained_users[numbers]
    return _ranked(run, scores, items, n, [] if seen else asked.had, caps, is_known, side if because else None)


def _asked_users(observed: Observed, users: list[Any], context: Context, *, with_had: bool) -> KnownUser:
    """Some users as a model reads them, and what they had. One without a context is kept until they are observed again."""
    is_plain = context is None or (isinstance(context, Mapping) and not context)
    run, is_kept = observed.index.run, len(users) == 1 and is_plain
    rows: tuple[ObservedRow, ...] = ()
    if is_kept:
        text = run.encoder.texts_of(users)[0]
        rows = observed.rows_of(text)
        kept = observed.index.users.get(text)
        if kept is not None and kept.rows is rows:
            return kept
    numbers = run.encoder.user_numbers(users)
    side = known_users(run, numbers, context, complete_history(observed, users, numbers))
    had = _had_items(observed, users, numbers) if with_had or is_kept else []
    asked = KnownUser(rows, numbers, had, side)
    return observed.index.users.put(text, asked) if is_kept else asked


def _had_items(observed: Observed, users: list[Any], numbers: npt.NDArray[np.int64]) -> list[Ints]:
    """What the data have of each user, and what they were observed to have; where the data keep repeats, these come again."""
    index = observed.index
    had = [index.positives(int(number)) if number >= 0 else np.empty(0, np.int32) for number in numbers]
    if observed.n == 0 or index.run.data.schema.interactions.repeats == "keep":
        return had
    texts, targets = index.run.encoder.texts_of(users), index.run.data.schema.interactions.targets
    return [np.concatenate([items, observed.items_of(user, events=targets)]) for items, user in zip(had, texts, strict=True)]


def rank_for_newcomer(
    run: FittedRun,
    attributes: Mapping[str, Any],
    history: Sequence[Any],
    n: int,
    items: Ints,
    caps: list[Cap],
    context: Context,
    *,
    seen: bool = False,
    because: bool = False,
) -> pl.DataFrame:
    """user (empty), item, score, rank and perhaps title and because. seen: also items of the history, which are ranked in any
    case where the data keep repeats."""
    if because:
        check_because(run)
    ids = ids_of(history, "the items of the history")
    numbers = run.encoder.item_numbers(ids)
    for item, number in zip(ids, numbers, strict=True):
        if number < 0:
            warnings.warn(f"the item '{item}' of the history is unknown and has no effect.", stacklevel=3)
    chosen = numbers[numbers >= 0].astype(np.int32)
    left_out = [] if seen or run.data.schema.interactions.repeats == "keep" else [chosen]
    if len(chosen) and not (run.model.inputs.history or run.model.reads_history):
        effect = "is only left out" if left_out else "has no effect"
        message = f"'{run.settings.model}' cannot learn from a history without training; it {effect}."
        warnings.warn(message, stacklevel=3)
    user: UserSide = newcomer(run, attributes, chosen if len(chosen) else None, context)
    scores = run.model.score_all(user, items)
    ranked = _ranked(run, scores, items, n, left_out, caps, np.zeros(1, bool), user if because else None)
    no_ids = run.encoder.ids_of_users(np.full(len(ranked.places), -1))
    return pl.DataFrame([no_ids, *_columns(run, ranked)])


def _ranked(
    run: FittedRun,
    scores: npt.NDArray[np.float32],
    items: Ints,
    n: int,
    left_out: list[Ints],
    caps: list[Cap],
    is_known: npt.NDArray[np.bool_],
    explained: UserSide | None,
) -> Ranked:
    """Of scores (N, len(items)). explained: the users, where it is asked which of their earlier items adds most."""
    best = best_items(scores, items, n, left_out, caps)
    place, rank = np.nonzero(best.items >= 0)
    earlier = None if explained is None else run.model.strongest_earlier(explained, best.items)[place, rank]
    scores64 = best.scores[place, rank].astype(np.float64)
    return Ranked(place, best.items[place, rank], scores64, rank + 1, earlier, is_known)


def _columns(run: FittedRun, ranked: Ranked) -> list[pl.Series]:
    """item, score, rank and perhaps title and because."""
    columns = [
        run.encoder.ids_of_items(ranked.items),
        pl.Series("score", ranked.scores),
        pl.Series("rank", ranked.ranks),
    ]
    if run.data.items.titles is not None:
        columns.append(take(run.data.items.titles, ranked.items).alias("title"))
    if ranked.because is not None:
        columns.append(because_column(run, ranked.because))
    return columns


def score_given_pairs(observed: Observed, pairs: Any, context: Context) -> pl.DataFrame:
    """user, item, score and known (is the user one of the data?)."""
    run, table = observed.index.run, _pair_table(pairs)
    users = run.encoder.user_numbers(table["user"].to_list())
    items = run.encoder.item_numbers(table["item"].to_list())
    if (items < 0).any():
        unknown = table["item"][int((items < 0).argmax())]
        raise DataError(
            f"the item '{unknown}' is not in the catalogue, so nothing is known of it; {int((items < 0).sum())} such pairs."
        )
    side = asked_users(observed, table["user"].to_list(), context)
    scores = run.model.score_pairs(side, items[:, None].astype(np.int32))[:, 0]
    return table.with_columns(pl.Series("score", scores.astype(np.float64)), pl.Series("known", users >= 0))


def _pair_table(pairs: Any) -> pl.DataFrame:
    if isinstance(pairs, list | tuple):
        if not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):
            raise OptionError("pairs takes (user, item) pairs; one is none, or has another length.")
        columns = {name: [id_of(pair[place]) for pair in pairs] for place, name in enumerate(("user", "item"))}
        return as_frame(columns, "pairs")
    table = as_frame(pairs, "pairs")
    if not {"user", "item"} <= set(table.columns):
        raise OptionError(f"pairs has the columns {', '.join(table.columns)}; expected user and item.")
    return table.select("user", "item")
