r"""SASRec: a causal transformer over what a user did before, oldest first, trained by a softmax over items.

Kang and McAuley, "Self-attentive sequential recommendation", 2018; the softmax over the catalogue instead of one sampled
negative is Klenitskiy and Vasilev's, 2023. An item's vector is the sum of its attributes' rows, the id's among them, and stands
both in the sequence and opposite its end:

.. math::
    q_i = \sum_{a \in i} x_a v_a, \quad
    H^0 = [p_0;\, \sqrt K q_{i_1} + p_1;\, \dots;\, \sqrt K q_{i_n} + p_n], \quad
    \hat y(u, i) = H_n \cdot q_i

p are learned positions; p_0, the start, is all there is of a user without a history. A block, with its norm before each part or
after it, attention A that sees a place and those before it, and f(h) = W_2 relu(W_1 h + b_1) + b_2:

.. math::
    \mathrm{pre:}\; G = H + A(\mathrm{norm}\, H),\; H' = G + f(\mathrm{norm}\, G) \qquad
    \mathrm{post:}\; G = \mathrm{norm}(H + A(H)),\; H' = \mathrm{norm}(G + f(G))

O(n^2 K + n K^2) a user and block. With norms before, the last block's output is normed once more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, ClassVar, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from gmlfm.data.histories import History, Longs, grid
from gmlfm.errors import OptionError
from gmlfm.models.base import FitInputs, Floats, Ints, UserSide
from gmlfm.models.gradient import Attributes
from gmlfm.models.layers import FactorModel, scaled
from gmlfm.models.scoring import RowScorer
from gmlfm.models.settings import Choice, Dropout, Factors, Scale, Setting

Norm = Annotated[Literal["pre", "post"], Setting("where a block norms: before each of its parts, or after it")]
_PLACES_PER_BLOCK = 50_000  # of sequences held at a time when scoring
_SCORES_PER_BLOCK = 4_000_000


class Block(nn.Module):
    """Attention of each place to itself and those before it, then a small network at each place: (N, L, K) -> (N, L, K)."""

    def __init__(self, k: int, heads: int, inner: int, dropout: float, norm: str) -> None:
        super().__init__()
        self.heads, self.dropout, self.norms_before = heads, dropout, norm == "pre"
        self.norm_of_attention, self.norm_of_network = nn.LayerNorm(k), nn.LayerNorm(k)
        self.queries_keys_values, self.joined = nn.Linear(k, 3 * k), nn.Linear(k, k)
        self.widened, self.narrowed = nn.Linear(k, inner), nn.Linear(inner, k)
        for layer in (self.queries_keys_values, self.joined, self.widened, self.narrowed):
            nn.init.xavier_normal_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, values: Tensor) -> Tensor:
        if self.norms_before:
            values = values + self._dropped(self._attention(self.norm_of_attention(values)))
            return values + self._dropped(self._network(self.norm_of_network(values)))
        values = cast(Tensor, self.norm_of_attention(values + self._dropped(self._attention(values))))
        return cast(Tensor, self.norm_of_network(values + self._dropped(self._network(values))))

    def _dropped(self, values: Tensor) -> Tensor:
        return functional.dropout(values, self.dropout, self.training)

    def _network(self, values: Tensor) -> Tensor:
        return cast(Tensor, self.narrowed(self._dropped(torch.relu(self.widened(values)))))

    def _attention(self, values: Tensor) -> Tensor:
        n, length, k = values.shape
        by_head = self.queries_keys_values(values).view(n, length, 3, self.heads, k // self.heads)
        query, key, value = by_head.permute(2, 0, 3, 1, 4)
        rate = self.dropout if self.training else 0.0
        seen = functional.scaled_dot_product_attention(query, key, value, dropout_p=rate, is_causal=True)
        return cast(Tensor, self.joined(seen.transpose(1, 2).reshape(n, length, k)))


class SASRec(FactorModel):
    """A row of the table is v."""

    tasks: ClassVar[frozenset[str]] = frozenset({"topn"})
    takes_history: ClassVar[bool] = False  # it reads whole sequences instead of roles
    shares_negatives: ClassVar[bool] = True
    reads_sequences: ClassVar[bool] = True

    def __init__(
        self,
        k: Factors = 64,
        layers: Annotated[int, Setting("blocks", least=1, most=16, search=Choice((1, 2, 3)))] = 2,
        heads: Annotated[int, Setting("parts of the vectors that attend by themselves; k is a multiple of them", least=1)] = 1,
        inner: Annotated[int, Setting("width of a block's network, in multiples of k", least=1, most=16)] = 1,
        dropout: Dropout = 0.2,
        norm: Norm = "pre",
        length: Annotated[int, Setting("earlier rows that count, the latest ones", least=1, most=10_000)] = 200,
        v_scale: Scale = 0.02,
    ) -> None:
        super().__init__(k, k, v_scale)
        if k % heads:
            raise OptionError(f"heads is {heads}, of which k = {k} is no multiple; give heads = 1, or another k.")
        self.length, self.dropout = length, dropout
        self.place_vectors = nn.Parameter(torch.empty(1 + length, k).normal_(0.0, v_scale))
        self.blocks = nn.ModuleList([Block(k, heads, inner * k, dropout, norm) for _ in range(layers)])
        self.last_norm = nn.LayerNorm(k) if norm == "pre" else nn.Identity()

    @classmethod
    def newcomers(cls) -> str:
        return "a history given with the question"

    @property
    def reads_history(self) -> bool:
        return True

    @property
    def item_vector_width(self) -> int:
        return self.k

    def item_vectors(self, rows: Tensor, items: Attributes) -> Tensor:
        """q of items (..., F): (..., K)."""
        return scaled(rows, items).sum(-2)

    def outputs(self, vectors: Tensor) -> Tensor:
        """H of sequences by the vectors of their items: (N, L, K) -> (N, 1 + L, K).

        Place n stands for a user who did the first n of them: it sees these and the start alone, so that what comes later in
        the sequence, or pads it, has no part in it.
        """
        n, length, k = vectors.shape
        start = self.place_vectors[:1].expand(n, 1, k)
        values = torch.cat([start, vectors * math.sqrt(k) + self.place_vectors[1 : 1 + length]], dim=1)
        values = functional.dropout(values, self.dropout, self.training)
        for block in self.blocks:
            values = block(values)
        return cast(Tensor, self.last_norm(values))

    def scores(self, rows: Tensor, user_side: Attributes, item_side: Attributes) -> Tensor:
        """Of users without a history."""
        users = self.outputs(rows.new_zeros(len(user_side.ids), 0, self.k))[:, 0]
        return (self.item_vectors(rows, item_side) @ users.unsqueeze(-1)).squeeze(-1)

    def attach(self, inputs: FitInputs) -> None:
        super().attach(inputs)
        self._history = None

    @property
    def scorer(self) -> SequenceScorer:
        if not isinstance(self._scorer, SequenceScorer):
            self._scorer = SequenceScorer(self, self.table, self._items, None, self._label_scale)
        return self._scorer


class SequenceScorer(RowScorer):
    """Scores by the ends of the users' sequences; the items' vectors are kept between calls."""

    model: SASRec

    @cached_property
    def _vectors(self) -> Tensor:
        """(I, K)."""
        with self._no_training():
            blocks = [self.model.item_vectors(rows, items) for rows, items in self._blocks_of(self._items)]
        return torch.cat(blocks) if blocks else self._table.new_zeros(0, self.model.k)

    def ends(self, users: UserSide) -> Iterator[tuple[Longs, Tensor]]:
        """The last output of each user's sequence, by blocks of users of about one length: their places (n,), and (n, K)."""
        history = History.of([()] * len(users)) if users.history is None else users.history.latest(self.model.length)
        order = np.argsort(history.lengths, kind="stable")
        block_of = np.cumsum(1 + history.lengths[order]) // _PLACES_PER_BLOCK
        for places in np.split(order, np.flatnonzero(np.diff(block_of)) + 1):
            if len(places):
                yield places, self._ends_of(history, places)

    def _ends_of(self, history: History, users: Longs) -> Tensor:
        begin, end = history.starts[:-1][users], history.starts[1:][users]
        device = self._table.device
        items = torch.from_numpy(history.items[grid(begin, end)].astype(np.int64)).to(device)
        last = torch.from_numpy(end - begin).to(device)
        with self._no_training():
            outputs = self.model.outputs(self._vectors[items])
            return outputs[torch.arange(len(users), device=device), last]

    def score_all(self, users: UserSide, items: Ints, out: Floats | None = None) -> Floats:
        result = np.empty((len(users), len(items)), np.float32) if out is None else out
        vectors = self._vectors[self._tensor(items)].T
        for places, ends in self.ends(users):
            result[places] = (ends @ vectors).cpu().numpy()
        return self._in_units(result, out)

    def score_pairs(self, users: UserSide, items: Ints) -> Floats:
        result = np.empty(items.shape, np.float32)
        step = max(1, _SCORES_PER_BLOCK // max(items.shape[1] * self.model.k, 1))
        for places, ends in self.ends(users):
            for start in range(0, len(places), step):
                block = places[start : start + step]
                vectors = self._vectors[self._tensor(items[block])]
                result[block] = (vectors @ ends[start : start + step].unsqueeze(-1)).squeeze(-1).cpu().numpy()
        return self._in_units(result)

    def _tensor(self, numbers: Ints) -> Tensor:
        return torch.from_numpy(numbers.astype(np.int64)).to(self._table.device)
