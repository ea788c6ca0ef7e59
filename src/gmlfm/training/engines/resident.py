"""Ranking batches that never leave the device: order, negatives and cold-start steps are drawn where the steps are taken.

The same rules as RankingBatches, by another stream of random numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gmlfm.data.attributes import AttributeTable
from gmlfm.training.engines.device_batch import DeviceBatch
from gmlfm.training.sampling.batches import RankingBatches
from gmlfm.training.sampling.cold_start import ColdStartSampler, Grid

_INSTANCES_PER_BATCH = 2**23
_LARGEST_BATCH = 32_768  # unless batch_size says otherwise: as good as small ones, and it fills a GPU (docs/speed.md)


class ResidentBatches:
    def __init__(self, batches: RankingBatches, device: torch.device) -> None:
        self._options, self._ids, self._device = batches.options, batches.ids, device
        self.n_instances, group_size = batches.n_instances, 1 + self._options.n_negatives
        self.groups_per_step = self._options.groups_per_step(self.n_instances, group_size, largest=_LARGEST_BATCH)
        self._users, self._items, self._rows = (self._upload(array) for array in (batches.users, batches.items, batches.rows))
        self._weights = None if batches.weights is None else self._upload(batches.weights)
        encoded = batches.encoded
        self._user, self._item = self._upload_table(encoded.user), self._upload_table(encoded.item)
        self._context = self._upload_table(encoded.context) if encoded.context.ids.shape[1] else None
        self._trained_items, self._trained_rows = self._upload(self._ids.trained_items), self._upload(self._ids.trained_rows)
        self._has_untrained = bool((~self._ids.trained_items).any())
        tables = batches.negatives.sampler.draw_tables()
        self._negatives = None if tables is None else {name: self._upload(array) for name, array in tables.items()}
        batches.negatives.check()
        self._host = batches
        self._by_user: tuple[Tensor, ...] | None = None
        self._positive_items = torch.nonzero(self._trained_items).flatten()

    def epoch(self, number: int) -> Iterator[DeviceBatch]:
        random = self._random(13, number)
        order = torch.randperm(len(self._users), generator=random, device=self._device)
        group_size = 1 + self._options.n_negatives
        n_groups = max(1, _INSTANCES_PER_BATCH // (self.groups_per_step * group_size)) * self.groups_per_step
        drawn = None if self._options.fresh and self._negatives is not None else self._of_epoch(number)
        for start in range(0, len(order), n_groups):
            chosen = order[start : start + n_groups]
            negatives = self._draw(self._users[chosen], random) if drawn is None else drawn[chosen]
            yield self._batch(chosen, negatives, random)

    def cold_start_sampler(self, number: int) -> ResidentColdStartSampler | None:
        host = self._host.cold_start_sampler(number)
        if host is None:
            return None
        if self._by_user is None:
            by_user = host.by_user
            self._by_user = tuple(self._upload(array) for array in (by_user.places, by_user.starts, by_user.counts))
        return ResidentColdStartSampler(self, host, self._by_user, self._random(15, number))

    def _of_epoch(self, number: int) -> Tensor:
        """All rows' negatives at once: where they are fixed, and where only the host can draw them."""
        if self._negatives is None:
            return self._upload(self._host.negatives.of_epoch(number))
        return self._draw(self._users, self._random(14))

    def _random(self, *stream: int) -> torch.Generator:
        seed = np.random.SeedSequence([self._options.seed, *stream]).generate_state(1, np.uint64)[0]
        return torch.Generator(self._device).manual_seed(int(seed) >> 1)

    def _draw(self, users: Tensor, random: torch.Generator) -> Tensor:
        """As NegativeSampler.draw: a position among what the user's own items leave of the candidates."""
        sampler, n = self._negatives, self._options.n_negatives
        assert sampler is not None
        users = users.long().repeat_interleave(n)
        free = sampler["free"][users]
        share = torch.rand(len(users), generator=random, device=self._device, dtype=torch.float64)
        drawn = torch.minimum((share * free).long(), free - 1)
        passed = torch.searchsorted(sampler["keys"], users * (len(sampler["candidates"]) + 1) + drawn, right=True)
        return sampler["candidates"][drawn + passed - sampler["starts"][users]].view(-1, n)

    def _batch(self, chosen: Tensor, negatives: Tensor, random: torch.Generator) -> DeviceBatch:
        items = torch.cat([self._items[chosen, None], negatives], dim=1).long()
        user_ids, user_x = self.user_side(chosen)
        item_ids, item_x = self._item[0][items], self._item[1][items]
        labels = torch.full(items.shape, -1.0, device=self._device)
        labels[:, 0] = 1.0
        if self._has_untrained:
            untrained = ~self._trained_items[items] & (labels < 0)
            is_trained = ~untrained.unsqueeze(-1) | self._trained_rows[item_ids.long()]
            item_x = item_x * is_trained
            item_ids[..., 0] = torch.where(untrained, self._ids.negative_only_row, item_ids[..., 0])
            item_x[..., 0] = torch.where(untrained, 1.0, item_x[..., 0])
        weights = torch.ones(len(chosen), device=self._device) if self._weights is None else self._weights[chosen]
        return DeviceBatch(user_ids, user_x, item_ids, item_x, labels, weights)

    def user_side(self, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """The users of some training rows, in their context."""
        users = self._users[chosen].long()
        ids, x = self._user[0][users], self._user[1][users]
        if self._context is None:
            return ids, x
        rows = self._rows[chosen].long()
        return torch.cat([ids, self._context[0][rows]], dim=1), torch.cat([x, self._context[1][rows]], dim=1)

    def item_side(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Of items that have a positive, by their number among these."""
        items = self._positive_items[numbers]
        return self._item[0][items], self._item[1][items]

    @property
    def n_positive_items(self) -> int:
        return len(self._positive_items)

    def _upload_table(self, table: AttributeTable) -> tuple[Tensor, Tensor]:
        return self._upload(table.ids), self._upload(table.values)

    def _upload(self, values: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.array(values)).to(self._device)


class ResidentColdStartSampler:
    """As ColdStartSampler; the latest choices and the rankings, which are few, are drawn by the host."""

    def __init__(
        self, batches: ResidentBatches, host: ColdStartSampler, by_user: tuple[Tensor, ...], random: torch.Generator
    ) -> None:
        self.ids, self.rate, self.n_items = host.ids, host.rate, host.n_items
        self.latest, self.draw_rankings = host.latest, host.draw_rankings
        self._batches, self._by_user, self._random, self.group = batches, by_user, random, host.group

    def draw_grid(self, n_steps: int, grid: Grid) -> DeviceBatch:
        places, starts, counts = self._by_user
        device, (n_users, n_groups) = places.device, grid
        chosen = torch.randint(len(starts), (n_steps * n_users,), generator=self._random, device=device)
        share = torch.rand(len(chosen), generator=self._random, device=device, dtype=torch.float64)
        row = torch.minimum((share * counts[chosen]).long(), counts[chosen] - 1)
        user_side = self._batches.user_side(places[starts[chosen] + row].repeat_interleave(n_groups))
        shape = (n_steps, 1, n_groups, self.group)
        drawn = torch.randint(self._batches.n_positive_items, shape, generator=self._random, device=device)
        drawn = drawn.expand(-1, n_users, -1, -1).reshape(-1, self.group)
        labels, weights = torch.zeros(drawn.shape, device=device), torch.ones(len(drawn), device=device)
        return DeviceBatch(*user_side, *self._batches.item_side(drawn), labels, weights)
