"""A world in which only ratings tell what a newcomer likes, for the tests of MAMO."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from gmlfm.data.attributes import AttributeTable, FieldCode
from gmlfm.data.encoding import Encoded
from gmlfm.models.base import FitInputs, Floats, Ints, Layout, Positives, Ratings, UserSide
from gmlfm.models.mamo import Mamo

Doubles = npt.NDArray[np.float64]
N_USERS, N_ITEMS, N_TRAINED = 120, 24, 80
ALL_ITEMS = np.arange(N_ITEMS, dtype=np.int32)
NEWCOMERS = np.arange(N_TRAINED, N_USERS, dtype=np.int32)
SMALL: dict[str, Any] = {"k": 8, "layers": 1}
CANDIDATES = ALL_ITEMS[N_ITEMS // 2 :]  # newcomers have rated some of the first half
NO_CONTEXT = AttributeTable(np.zeros((0, 0), np.int32), np.zeros((0, 0), np.float32))


def field_codes(*specs: tuple[Any, str, Any, int]) -> tuple[FieldCode, ...]:
    """part, name, kind and number of values of each field."""
    codes: list[FieldCode] = []
    for part, name, kind, n_values in specs:
        codes.append(FieldCode(part, name, kind, codes[-1].end if codes else 1, n_values))
    return tuple(codes)


WITH_PROFILES = Layout(
    field_codes(
        ("user", "user", "id", N_USERS),
        ("user", "kind", "category", 2),
        ("item", "item", "id", N_ITEMS),
        ("item", "look", "category", 2),
        ("item", "sound", "category", 2),
    )
)


def table_of(codes: tuple[FieldCode, ...], *values: npt.NDArray[np.int64]) -> AttributeTable:
    columns = [code.offset + 2 + column for code, column in zip(codes, values, strict=True)]
    ids = np.stack(columns, axis=1).astype(np.int32)
    return AttributeTable(ids, np.ones(ids.shape, np.float32))


def rows_of(table: AttributeTable, numbers: Ints) -> AttributeTable:
    return AttributeTable(table.ids[numbers], table.values[numbers])


def inputs_of(layout: Layout, encoded: Encoded, support: Ratings) -> FitInputs:
    positives = Positives(support.users, support.items, len(encoded.user), len(encoded.item))
    return FitInputs(layout, encoded, lambda: positives, lambda: support)


class World:
    """Users of kind 0 like or hate a look, those of kind 1 a sound; which of the two only their ratings tell."""

    def __init__(self) -> None:
        generator = np.random.default_rng(0)
        self.kind = generator.integers(0, 2, N_USERS)
        taste = generator.integers(0, 2, N_USERS) * 2 - 1
        look, sound = ALL_ITEMS % 2, ALL_ITEMS // 2 % 2
        relevant = np.where(self.kind[:, None] == 0, look[None], sound[None]) * 2 - 1
        self.truth = (3 + taste[:, None] * relevant).astype(np.float32)
        codes = WITH_PROFILES.fields
        self.encoded = Encoded(
            table_of(codes[:2], np.arange(N_USERS), self.kind),
            NO_CONTEXT,
            table_of(codes[2:], ALL_ITEMS.astype(np.int64), look, sound),
        )
        self.tasks = self.ratings(np.arange(N_TRAINED), N_ITEMS, 16, generator)
        self.support = self.ratings(NEWCOMERS, N_ITEMS // 2, 10, generator)

    def ratings(self, users: npt.NDArray[Any], n_items: int, n_each: int, generator: np.random.Generator) -> Ratings:
        items = np.concatenate([generator.permutation(n_items)[:n_each] for _ in users]).astype(np.int32)
        repeated = np.repeat(users, n_each).astype(np.int32)
        return Ratings(repeated, items, self.truth[repeated, items])

    def attached(self, support: Ratings | None = None, **options: Any) -> Mamo:
        """Not trained yet."""
        model = Mamo(WITH_PROFILES, **options)
        model.attach(inputs_of(WITH_PROFILES, self.encoded, support or self.support))
        return model

    def trained(self, epochs: int = 1, **options: Any) -> Mamo:
        model = self.attached(**options)
        for number in range(epochs):
            model.run_epoch(self.tasks, number, quiet)
        return model

    def small(self, **options: Any) -> Mamo:
        """A few users' epoch: long enough to fill the memories, too short for the task memory to fade."""
        model = self.attached(**{**SMALL, **options})
        model.run_epoch(self.ratings(np.arange(10), N_ITEMS, 8, np.random.default_rng(5)), 0, quiet)
        return model

    def loaded(self, state: dict[str, Tensor], **options: Any) -> Mamo:
        model = self.attached(**{**SMALL, **options})
        model.load_state_dict(state)
        return model

    def users(self, numbers: npt.NDArray[Any] | list[int]) -> UserSide:
        """-1 is a user of whom nothing is known."""
        chosen = np.array(numbers, np.int32)
        attributes = rows_of(self.encoded.user, chosen)
        attributes.ids[chosen < 0] = [code.unknown_row for code in WITH_PROFILES.fields[:2]]
        return UserSide(chosen, attributes)

    def by_profile(self, numbers: npt.NDArray[Any] | list[int]) -> UserSide:
        """The same users as training does not know them: by their attributes alone."""
        return UserSide(np.full(len(numbers), -1, np.int32), self.users(numbers).attributes)

    def score_all(self, model: Mamo, numbers: npt.NDArray[Any] | list[int], items: Ints = ALL_ITEMS) -> Floats:
        return model.score_all(self.users(numbers), items)

    def error(self, scores: Floats) -> float:
        """Of all newcomers and the candidates; always predicting the mean has 1."""
        return float(((scores - self.truth[NEWCOMERS][:, CANDIDATES]) ** 2).mean())


def quiet(done: int, of: int, loss: float) -> None:
    pass


def copied(model: Mamo) -> dict[str, Tensor]:
    """The weights as they are now: training changes those of state_dict in place."""
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def doubles_of(model: Mamo) -> dict[str, Doubles]:
    return {name: tensor.double().numpy() for name, tensor in copied(model).items()}
