"""The Recommender: fit, evaluate, recommend, predict, save, load. It wires; the maths is elsewhere."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.attributes import PARTS, AttributeTable
from gmlfm.data.batches import asking_of
from gmlfm.data.columns import Origin, as_field, as_number, as_text, column
from gmlfm.data.dataset import Dataset, Rows
from gmlfm.data.encoding import Encoded
from gmlfm.data.expressions import Columns, holds
from gmlfm.data.frames import as_frame
from gmlfm.data.negatives import Pairs
from gmlfm.data.prepared import PreparedData
from gmlfm.errors import DataError, GmlfmError, OptionError, did_you_mean
from gmlfm.evaluation.protocols import Evaluation, PositivesByUser, check_protocol, evaluate_labels, evaluate_ranking
from gmlfm.fitting import Fitted, Refit, fit, labelled
from gmlfm.models.registry import model_info
from gmlfm.retrieval import Renumbered, Scorer, Scores, best_items
from gmlfm.runs import load_run, save_run
from gmlfm.training.loop import DivergedError, Observer
from gmlfm.training.settings import Settings

Ints = npt.NDArray[np.int32]
_USERS_A_BLOCK = 512


class Recommender:
    """Recommender(model="gml-fm", task="topn", k=64, seed=0).fit(data).recommend(["u17"], n=10)

    Settings of the model, the training and the batches are keywords (k, lr, loss, negatives, epochs, hide, ...);
    preset="paper" trains as published.
    """

    def __init__(
        self, model: str = "gml-fm", task: str = "topn", *, preset: str | None = None, device: str = "auto", **settings: Any
    ) -> None:
        self.settings = Settings.make(model, task, settings, preset)
        self._device = device
        self._fitted: Fitted | None = None

    def fit(
        self,
        data: Dataset | PreparedData,
        split: str = "leave-one-out",
        *,
        refit: Refit = False,
        split_options: Mapping[str, Any] | None = None,
        out: str | Path | None = None,
        resume: bool = False,
        observer: Observer | None = None,
    ) -> Recommender:
        """Hold out what `split` says, stop early on validation; refit=True then trains again on train + validation.

        data may be a prepared folder (PreparedData), which is trained from shard by shard.
        out: a run folder for history and checkpoints, from which resume=True goes on; the model is saved there too.
        """
        if not isinstance(data, Dataset | PreparedData):
            raise OptionError(
                f"fit takes a Dataset, not {type(data).__name__}; load_dataset({data!r:.40}) makes one of a path or name."
            )
        folder = None if out is None else Path(out)
        self._fitted = fit(
            data,
            self.settings,
            split=split,
            split_options=split_options,
            refit=refit,
            folder=folder,
            resume=resume,
            device=self._device,
            observer=observer,
        )
        if folder is not None:
            self.save(folder)
        if self._fitted.diverged:
            raise DivergedError(self._fitted.diverged)
        return self

    @property
    def fitted(self) -> Fitted:
        if self._fitted is None:
            raise OptionError("this Recommender is not fitted yet; call fit(data), or Recommender.load(folder).")
        return self._fitted

    def evaluate(self, data: Dataset | None = None, *, protocol: str = "full", part: str = "test", seed: int = 0) -> Evaluation:
        """The run's own validation or test part; or all rows of other data with the same fields.

        Of other data, ids that the run knows are used; what its users had in training is not among the candidates.
        """
        fitted = self.fitted
        check_protocol(protocol, seed)
        if data is not None:
            return self._evaluate_other(data, protocol, seed)
        if part not in ("test", "validation"):
            raise OptionError(f"part is '{part}'; expected test or validation.")
        split = fitted.split
        rows, groups = (split.test, split.test_groups) if part == "test" else (split.validation, split.validation_groups)
        if len(rows) == 0:
            raise DataError(f"the split '{split.name}' has no {part} rows to evaluate on.")
        if fitted.settings.task == "topn":
            found = evaluate_ranking(fitted.scores, fitted.data, rows, protocol, seed=seed)
        else:
            found = self._labels(fitted.scores, labelled(fitted.data, fitted.instances, rows))
        return found if groups is None else found.by_group(split.group_names, groups)

    def _evaluate_other(self, data: Dataset, protocol: str, seed: int) -> Evaluation:
        fitted = self.fitted
        for part in PARTS:
            ours, theirs = (
                [(one.name, one.kind) for one in schema.fields_of(part)] for schema in (fitted.data.schema, data.schema)
            )
            if ours != theirs:
                raise DataError(f"the run was trained with the {part} fields {ours}, but the other data have {theirs}.")
        users = fitted.encoder.user_numbers(data.users.ids.to_list()).astype(np.int32)
        items = fitted.encoder.item_numbers(data.items.ids.to_list()).astype(np.int32)
        scores: Scores = Renumbered(fitted.scores, users, items)
        if isinstance(fitted.scores, Scorer):
            scores = fitted.scores.over(fitted.encoder.encode(data))
        rows = data.rows_for(fitted.settings.task)  # type: ignore[arg-type]
        if fitted.settings.task == "rating":
            return self._labels(scores, labelled(data, None, rows))
        if fitted.settings.task != "topn":
            raise OptionError("the task 'implicit' is tested on its own drawn instances; other data have none.")
        known = np.zeros(len(fitted.data.items), bool)
        known[fitted.data.seen_items] = True
        seen = (items >= 0) & known[np.maximum(items, 0)]
        seen[data.seen_items] = True
        return evaluate_ranking(
            scores,
            data,
            rows,
            protocol,
            seed=seed,
            candidates=np.flatnonzero(seen).astype(np.int32),
            more=_had(fitted.data, users, items),
        )

    def _labels(self, scores: Scores, instances: tuple[Ints, Ints, npt.NDArray[np.float32], Rows]) -> Evaluation:
        users, items, labels, interactions = instances
        predicted = scores.pairs(users, items[:, None], interactions)[:, 0]
        return evaluate_labels(predicted, labels, self.fitted.limits, implicit=self.fitted.settings.task == "implicit")

    def recommend(
        self,
        users: Sequence[Any],
        n: int = 10,
        *,
        seen: bool = False,
        context: Mapping[str, Any] | None = None,
        filter: str | None = None,
        available: Sequence[Any] | None = None,
        candidates: str = "interactions",
    ) -> pl.DataFrame:
        """The n best items for each user: user, item, score, rank, known (was the user met in training?) and title.

        Items the user had are left out unless seen=True; filter and available narrow the items before they are ranked.
        """
        items = self._items(n, filter, available, candidates)
        asked = [users] if isinstance(users, str | int) else list(users)
        if not asked:
            raise OptionError("users is empty; name one or more.")
        return pl.concat(self._blocks(asked, n, seen, context, items))

    def recommend_blocks(
        self, users: Sequence[Any], n: int = 10, *, seen: bool = False, filter: str | None = None
    ) -> Iterator[pl.DataFrame]:
        """The same, some hundred users at a time."""
        return self._blocks(users, n, seen, None, self._items(n, filter, None, "interactions"))

    def recommend_for(
        self, attributes: Mapping[str, Any], history: Sequence[Any] = (), n: int = 10, *, filter: str | None = None
    ) -> pl.DataFrame:
        """For somebody never seen, from what is known of her. Items of her history are left out."""
        fitted = self.fitted
        if not isinstance(attributes, Mapping):
            raise OptionError(f"attributes is a {type(attributes).__name__}; expected a mapping such as {{'city': 'Osaka'}}.")
        items = self._items(n, filter, None, "interactions")
        asking = self._with_context(self._newcomer(attributes), None)
        had = fitted.encoder.item_numbers(list(history))
        for one, number in zip(history, had, strict=True):
            if number < 0:
                warnings.warn(f"the item '{one}' of the history is unknown and has no effect.", stacklevel=2)
        known = had[had >= 0].astype(np.int32)
        ranked = self._ranked(asking, items, n, [known], history=known)
        return ranked.drop("place").insert_column(0, pl.Series("user", [None] * ranked.height, dtype=pl.String))

    def predict(self, pairs: Any) -> pl.DataFrame:
        """Scores of (user, item) pairs: a table with the columns user and item, or a list of pairs.

        Users may be unknown; items must be of the catalogue.
        """
        fitted = self.fitted
        table = _pairs(pairs)
        users = fitted.encoder.user_numbers(table["user"].to_list())
        items = fitted.encoder.item_numbers(table["item"].to_list())
        if (items < 0).any():
            unknown = table["item"][int((items < 0).argmax())]
            raise DataError(
                f"the item '{unknown}' is not in the catalogue, so nothing is known of it; {int((items < 0).sum())} such pairs."
            )
        asking = self._asking(users, None)
        single = fitted.scores.pairs_for(asking, items[:, None].astype(np.int32), users.astype(np.int32))[:, 0]
        return table.select("user", "item").with_columns(
            pl.Series("score", single.astype(np.float64)), pl.Series("known", users >= 0)
        )

    def save(self, folder: str | Path) -> None:
        save_run(self.fitted, Path(folder))

    @classmethod
    def load(cls, folder: str | Path) -> Recommender:
        fitted, about = load_run(Path(folder))
        made = cls.__new__(cls)
        made.settings, made._device, made._fitted = fitted.settings, "auto", fitted
        made.about = about
        return made

    about: dict[str, Any] = {}  # noqa: RUF012 - the card of a loaded run

    def _items(self, n: int, filter: str | None, available: Sequence[Any] | None, candidates: str) -> Ints:
        fitted = self.fitted
        if fitted.settings.task != "topn" and not model_info(fitted.settings.model).uses_attributes:
            raise OptionError(f"the model '{fitted.settings.model}' does not rank for the task '{fitted.settings.task}'.")
        if not isinstance(n, int | np.integer) or n < 1:
            raise OptionError(f"n is {n}; expected a whole number of 1 or more.")
        if candidates not in ("interactions", "catalogue"):
            raise OptionError(f"candidates is '{candidates}'; expected interactions or catalogue.")
        items = fitted.data.seen_items if candidates == "interactions" else np.arange(len(fitted.data.items), dtype=np.int32)
        if available is not None:
            numbers = fitted.encoder.item_numbers(list(available))
            items = np.intersect1d(np.arange(len(fitted.data.items)), numbers[numbers >= 0]).astype(np.int32)
        if filter is not None:
            items = items[self._fulfils(filter)[items]]
        if len(items) == 0:
            raise DataError("no item is left to recommend from; widen filter or available.")
        if n > len(items):
            warnings.warn(f"n is {n}, but only {len(items):,} items can be recommended; all of them are ranked.", stacklevel=3)
        return items

    def _fulfils(self, condition: str) -> npt.NDArray[np.bool_]:
        side = self.fitted.data.items
        titles = [] if side.titles is None else [side.titles.alias("title")]
        table = pl.DataFrame([side.ids.alias("item"), *side.fields.iter_columns(), *titles])
        origin = Origin("the catalogue")

        def asked(name: str) -> pl.Series:
            found = column(table, name, origin, "filter")
            if isinstance(found.dtype, pl.List):
                raise OptionError(f"filter names '{name}', which is a set; it takes categories, numbers, item and title.")
            return found

        columns = Columns(number=lambda name: as_number(asked(name), origin), text=lambda name: as_text(asked(name), origin))
        return holds(condition, columns).to_numpy()

    def _blocks(
        self, users: Sequence[Any], n: int, seen: bool, context: Mapping[str, Any] | None, items: Ints
    ) -> Iterator[pl.DataFrame]:
        fitted = self.fitted
        had = PositivesByUser(fitted.data)
        for start in range(0, len(users), _USERS_A_BLOCK):
            asked = list(users[start : start + _USERS_A_BLOCK])
            numbers = fitted.encoder.user_numbers(asked)
            gone = [np.empty(0, np.int32) if seen or number < 0 else had(int(number)) for number in numbers]
            ranked = self._ranked(self._asking(numbers, context), items, n, gone, users=numbers.astype(np.int32))
            known = np.isin(numbers, fitted.data.user_numbers[fitted.split.train])
            names = pl.Series("user", asked, strict=False)
            yield ranked.with_columns(
                names.gather(ranked["place"]), pl.Series(known).gather(ranked["place"]).alias("known")
            ).select("user", pl.exclude("user", "place"))

    def _ranked(
        self,
        asking: AttributeTable,
        items: Ints,
        n: int,
        gone: list[Ints],
        users: Ints | None = None,
        history: Ints | None = None,
    ) -> pl.DataFrame:
        fitted = self.fitted
        best = best_items(fitted.scores.everything_for(asking, items, users, history), items, n, gone)
        place, rank = np.nonzero(best.items >= 0)
        chosen = best.items[place, rank]
        columns = [
            pl.Series("place", place),
            fitted.encoder.ids_of_items(chosen),
            pl.Series("score", best.scores[place, rank].astype(np.float64)),
            pl.Series("rank", rank + 1),
        ]
        if fitted.data.items.titles is not None:
            columns.append(fitted.data.items.titles[chosen].alias("title"))
        return pl.DataFrame(columns)

    def _asking(self, numbers: npt.NDArray[np.int64], context: Mapping[str, Any] | None) -> AttributeTable:
        """Users by number; -1 is somebody of whom nothing is known."""
        fitted = self.fitted
        stranger = fitted.encoder.encode_part("user", None, pl.DataFrame(), 1)
        ids, x = fitted.encoded.user.ids[numbers], fitted.encoded.user.values[numbers]
        for at in np.flatnonzero(numbers < 0):
            ids[at], x[at] = 0, 0.0
            ids[at, : stranger.ids.shape[1]], x[at, : stranger.ids.shape[1]] = stranger.ids[0], stranger.values[0]
        return self._with_context(AttributeTable(ids, x), context)

    def _with_context(self, asking: AttributeTable, context: Mapping[str, Any] | None) -> AttributeTable:
        fitted = self.fitted
        declared = fitted.data.schema.interactions.context
        if not declared:
            if context:
                raise OptionError(f"the data have no context, but {', '.join(context)} was given.")
            return asking
        table = self._typed_row(declared, context or {}, "context")
        one = fitted.encoder.encode_part("context", None, table, 1)
        several = Encoded(
            asking, AttributeTable(np.repeat(one.ids, len(asking), 0), np.repeat(one.values, len(asking), 0)), asking
        )
        return asking_of(several, np.arange(len(asking)), np.arange(len(asking)))

    def _newcomer(self, attributes: Mapping[str, Any]) -> AttributeTable:
        table = self._typed_row(self.fitted.data.schema.fields_of("user"), attributes, "user")
        encoded = self.fitted.encoder.encode_part("user", None, table, 1)
        names = self.fitted.encoder.attribute_names(encoded.ids[0][encoded.values[0] != 0])
        for part, name, value in names.rows():
            if value == "(unknown)" and name in attributes:
                warnings.warn(
                    f"{part}.{name} = {attributes[name]!r} was never met in training; it counts as unknown.", stacklevel=3
                )
        return encoded

    def _typed_row(self, declared: Sequence[Any], given: Mapping[str, Any], where: str) -> pl.DataFrame:
        names = [one.name for one in declared]
        for name in given:
            if name not in names:
                raise OptionError(f"the data have no {where} field '{name}'{did_you_mean(name, names)}")
        origin = Origin("the attributes given")
        columns = []
        for one in declared:
            if one.name not in given:
                continue
            try:
                columns.append(as_field(pl.Series(one.name, [given[one.name]], strict=False), one, origin))
            except GmlfmError as error:
                raise OptionError(f"the {where} field '{one.name}' is a {one.kind}; got {given[one.name]!r}.") from error
        return pl.DataFrame(columns)


def _pairs(given: Any) -> pl.DataFrame:
    if isinstance(given, list | tuple):
        if any(len(one) != 2 for one in given):
            raise OptionError("pairs takes (user, item) pairs; one has another length.")
        return pl.DataFrame(given, schema=["user", "item"], orient="row", strict=False)
    table = as_frame(given, "pairs")
    if not {"user", "item"} <= set(table.columns):
        raise OptionError(f"pairs has the columns {', '.join(table.columns)}; expected user and item.")
    return table.select("user", "item")


def _had(data: Dataset, users: Ints, items: Ints) -> Pairs:
    """What the run's data know as positives, in the other data's numbers; users and items map those to the run's."""
    there = []
    for ours, size in ((users, len(data.users)), (items, len(data.items))):
        back = np.full(size, -1, np.int32)
        back[ours[ours >= 0]] = np.flatnonzero(ours >= 0)
        there.append(back)
    mapped = Pairs(there[0][data.user_numbers[data.positive_rows]], there[1][data.item_numbers[data.positive_rows]])
    both = (mapped.users >= 0) & (mapped.items >= 0)
    return Pairs(mapped.users[both], mapped.items[both])
