"""Models that are not gmlfm's own, as somebody else would write them: annotations are types here, not texts."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

import gmlfm
from gmlfm.models.base import Floats, Ints, Model, Plan


class TwoTowers(gmlfm.GradientModel):
    """y = b_u + b_i + tanh(W s_u) . s_i, where s is the sum of x v; a row is (b, v)."""

    def __init__(self, k: Annotated[int, gmlfm.Setting("factors of each attribute", least=1)] = 8) -> None:
        super().__init__()
        self.k = k
        self.layer = nn.Linear(k, k)

    @property
    def row_width(self) -> int:
        return 1 + self.k

    def initial_rows(self, n: int, generator: torch.Generator) -> Tensor:
        return torch.empty(n, self.row_width).normal_(0.0, 0.1, generator=generator)

    def scores(self, rows: Tensor, user_side: gmlfm.Attributes, item_side: gmlfm.Attributes) -> Tensor:
        user = (rows[user_side.ids] * user_side.x.unsqueeze(-1)).sum(-2)
        item = (rows[item_side.ids] * item_side.x.unsqueeze(-1)).sum(-2)
        towers = (torch.tanh(self.layer(user[:, 1:])).unsqueeze(1) * item[..., 1:]).sum(-1)
        return user[:, :1] + item[..., 0] + towers


class Bilinear(gmlfm.PairwiseModel):
    """A pair adds v_i^T M v_j; a row is (w, v)."""

    def __init__(self, k: int = 8) -> None:
        super().__init__()
        self.k = k
        self.matrix = nn.Parameter(torch.eye(k))
        self.offset = nn.Parameter(torch.zeros(()))

    @property
    def row_width(self) -> int:
        return 1 + self.k

    def initial_rows(self, n: int, generator: torch.Generator) -> Tensor:
        return torch.empty(n, self.row_width).normal_(0.0, 0.1, generator=generator)

    def global_term(self) -> Tensor:
        return self.offset

    def linear(self, rows: Tensor) -> Tensor:
        return rows[..., 0]

    def pair_parts(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor | None]:
        return left[..., 1:] @ self.matrix @ right[..., 1:].mT, None


class ChosenTogether(gmlfm.ClosedFormModel):
    """s(u, .) = X_u (X^T X)^power: items that are chosen with those that the user chose."""

    tasks: ClassVar[frozenset[str]] = frozenset({"topn"})

    def __init__(self, k: int = 1) -> None:
        self.power = min(k, 2)

    def fit(self, inputs: gmlfm.FitInputs, plan: Plan) -> gmlfm.FitReport:
        positives = inputs.positives()
        self.history = np.zeros((positives.n_users, positives.n_items), np.float32)
        self.history[positives.users, positives.items] = 1.0
        self.together = np.linalg.matrix_power(self.history.T @ self.history, self.power)
        return gmlfm.FitReport()

    def score_all(self, users: gmlfm.UserSide, items: Ints) -> Floats:
        histories = np.where(users.numbers[:, None] >= 0, self.history[users.numbers], 0.0)
        return (histories @ self.together[:, items]).astype(np.float32)

    def state_dict(self) -> dict[str, Tensor]:
        return {"history": torch.from_numpy(self.history), "together": torch.from_numpy(self.together)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.history, self.together = state["history"].numpy(), state["together"].numpy()


FOREIGN: dict[str, type[Model]] = {"two-towers": TwoTowers, "bilinear": Bilinear, "chosen-together": ChosenTogether}
