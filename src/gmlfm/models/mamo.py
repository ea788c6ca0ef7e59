r"""MAMO: memory-augmented meta-optimization for newcomers (Dong et al., KDD 2020).

A user is a task: the network starts from weights that their profile chooses, and is adapted to the few ratings they gave.

.. math::
    e_u = f_\theta(p_u), \quad e_i = f_\psi(p_i), \quad \hat y(u, i) = g_\omega(M_u [e_u; e_i])

.. math::
    a_u = \mathrm{softmax}_s \cos(p_u, M_P[s]), \quad \theta_u = \phi_u - \tau \, a_u^\top M_U, \quad M_u = a_u^\top M_{UI}

p: for each field of a profile the sum of its attributes' x times their embeddings, one field after another (P fields, P K
numbers). Ids stand in a profile only where a side has no other field; context is not used. f and g are layers of K units
with relu, g ends in a linear layer.

Local: theta_u, omega and M_u take `inner` gradient steps on the support ratings. Global: the gradient of the query loss at
the adapted weights is applied to the initial ones (first order: second derivatives are left out, and so is the attention's
dependence on the embeddings); item network and embeddings follow the query loss directly. The memories are never descended
on, they are written after each user's local steps:

.. math::
    M_P \leftarrow \alpha \, a_u p_u^\top + (1 - \alpha) M_P, \quad
    M_U \leftarrow \beta \, a_u \otimes \nabla_\theta L + (1 - \beta) M_U, \quad
    M_{UI} \leftarrow \gamma \, a_u \otimes M_u + (1 - \gamma) M_{UI}

with the support loss's gradient at the initial weights, and M_u after its local steps.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from gmlfm.errors import DataError, NotFiniteError
from gmlfm.models.base import FitInputs, Floats, Ints, ItemSide, Layout, Ratings, UserSide
from gmlfm.models.episodic import EpisodicModel, Progress
from gmlfm.models.mamo_network import (
    BIASES,
    Network,
    Shapes,
    Weights,
    attention,
    checked_weights,
    initial_weights,
    layer_shapes,
    leaf,
    recalled,
    rewritten,
    through_layers,
)
from gmlfm.models.mamo_profiles import ByUser, Episode, Profiles, ScoringData, distinct_users, divide, profile_sides
from gmlfm.models.settings import Choice, Real, Setting

_EPOCH_STREAM = 30  # keeps the epochs' random numbers apart from those that other parts draw from the same seed
_ITEMS_PER_BLOCK = 10_000


class Mamo(EpisodicModel):
    """Without the feature memory every bias a_u M_U is 0; without the task memory M_u is one learned matrix for all users.

    The network predicts (label - mean) / spread of the first epoch's labels. At the start every layer keeps the length of
    its input on average, and profiles have a length of about 1: longer ones would make the published rates diverge.
    """

    def __init__(
        self,
        layout: Layout,
        k: Annotated[int, Setting("units of each layer", least=1, search=Choice((16, 32, 64, 100)))] = 100,
        layers: Annotated[int, Setting("layers of each network", least=1, search=Choice((1, 2)))] = 2,
        alpha: Annotated[float, Setting("rate at which the memory of profiles is written", least=0, most=1)] = 0.5,
        beta: Annotated[float, Setting("rate at which the memory of biases is written", least=0, most=1)] = 0.05,
        gamma: Annotated[
            float, Setting("rate at which the memory of tasks is written", least=0, most=1, search=Choice((0.02, 0.1)))
        ] = 0.1,
        tau: Annotated[float, Setting("weight of the remembered bias", least=0, search=Choice((0.01, 0.1, 1.0)))] = 0.01,
        local_lr: Annotated[float, Setting("rate of the steps that adapt to a user", above=0, search=Real(0.003, 0.1))] = 0.01,
        slots: Annotated[int, Setting("slots of the memories", least=1)] = 3,
        inner: Annotated[int, Setting("steps that adapt to a user", least=1, search=Choice((1, 3, 5)))] = 3,
        tasks_per_batch: Annotated[int, Setting("users of a global step", least=1)] = 5,
        output: Annotated[
            Literal["regression", "classes"],
            Setting("a number, or a softmax over the distinct training labels whose expectation is the score"),
        ] = "regression",
        feature_memory: Annotated[bool, Setting("whether profiles choose a bias of the user network")] = True,
        task_memory: Annotated[bool, Setting("whether profiles choose the matrix between user and item")] = True,
        lr: Annotated[float, Setting("rate of the global steps", above=0)] = 0.05,
        seed: Annotated[int, Setting("of weights and of the order of users", least=0)] = 0,
    ) -> None:
        self.k, self.layers, self.slots, self.inner, self.tasks_per_batch = k, layers, slots, inner, tasks_per_batch
        self.alpha, self.beta, self.gamma, self.tau, self.local_lr, self.lr = alpha, beta, gamma, tau, local_lr, lr
        self.classes, self.feature_memory, self.task_memory, self.seed = output == "classes", feature_memory, task_memory, seed
        self._network = Network(k, layers, output == "classes")
        self._user_profiles, self._item_profiles = profile_sides(layout)
        self._weights: Weights = {}
        self._data: ScoringData | None = None
        self._item_vectors: Tensor | None = None

    def attach(self, inputs: FitInputs) -> None:
        self._data = ScoringData(inputs.encoded.user, inputs.encoded.item, inputs.encoded.item, ByUser.of(inputs.ratings()))
        self._item_vectors = None

    def over(self, items: ItemSide) -> Mamo:
        model = copy.copy(self)
        model._data, model._item_vectors = replace(self._attached, items=items.attributes), None
        return model

    def run_epoch(self, ratings: Ratings, number: int, report: Progress) -> float:
        """A random quarter of a user's ratings, one at least, is their query set; who has one rating only is passed over."""
        by_user = ByUser.of(ratings)
        users = by_user.with_ratings(2)
        if len(users) == 0:
            raise DataError("no user has two ratings or more, so none can be divided into support and query; add ratings.")
        if not self._weights:
            self._weights = self._initial_weights(ratings.labels)
        generator = np.random.default_rng([self.seed, _EPOCH_STREAM, number])
        users, n_done, total = generator.permutation(users), 0, 0.0
        for start in range(0, len(users), self.tasks_per_batch):
            batch = [divide(by_user, user, generator) for user in users[start : start + self.tasks_per_batch]]
            total += self._learn(batch)
            n_done += len(batch)
            report(n_done, len(users), total / n_done)
        return total / n_done

    def score_pairs(self, users: UserSide, items: Ints) -> Floats:
        """Each distinct user is adapted once; a user without support ratings keeps what their profile starts from."""
        result = np.empty(items.shape, np.float32)
        vectors = self._all_items()
        for places in distinct_users(users.numbers):
            local, profile = self._adapted_to(users, places[0])
            chosen = torch.from_numpy(items[places].ravel().astype(np.int64))
            result[places] = self._scores(local, profile, vectors[chosen]).reshape(len(places), -1)
        return result

    def score_all(self, users: UserSide, items: Ints) -> Floats:
        """O(len(items) K^2) for each layer and distinct user. A history has no labels to adapt on."""
        result = np.empty((len(users), len(items)), np.float32)
        vectors = self._all_items()[torch.from_numpy(items.astype(np.int64))]
        for places in distinct_users(users.numbers):
            result[places] = self._scores(*self._adapted_to(users, places[0]), vectors)
        return result

    def state_dict(self) -> Weights:
        """All parameters, the memories (memory.*) and what the labels were like (label.*)."""
        return dict(self._trained)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        n_levels = len(state["label.levels"])
        of_labels: Shapes = {"label.mean": (), "label.spread": (), "label.levels": (n_levels,)}
        self._weights = checked_weights(dict(state), self._shapes(n_levels) | of_labels)
        self._item_vectors = None

    def _shapes(self, n_levels: int) -> Shapes:
        """Of all parameters and memories, in the order in which they are drawn."""
        k, n_user_inputs = self.k, self._user_profiles.n_fields * self.k
        user = layer_shapes("user", self.layers, n_user_inputs, k)
        shapes: Shapes = {"embedding": (self._item_profiles.end, k)}
        shapes |= user | layer_shapes("item", self.layers, self._item_profiles.n_fields * k, k)
        shapes |= layer_shapes("head", self.layers, k, k)
        n_outputs = n_levels if self.classes else 1
        shapes |= {"head.out.weight": (n_outputs, k), "head.out.bias": (n_outputs,)}
        if not self.task_memory:
            shapes["task"] = (k, 2 * k)
        if self.feature_memory or self.task_memory:
            shapes["memory.keys"] = (self.slots, n_user_inputs)
        if self.feature_memory:
            shapes |= {BIASES + name: (self.slots, *shape) for name, shape in user.items()}
        if self.task_memory:
            shapes["memory.task"] = (self.slots, k, 2 * k)
        return shapes

    def _initial_weights(self, labels: Floats) -> Weights:
        levels = np.unique(labels) if self.classes else np.empty(0, np.float32)
        n_fields = max(self._user_profiles.n_fields, self._item_profiles.n_fields)
        return initial_weights(self._shapes(len(levels)), self.k, n_fields, self.slots, levels, labels, self.seed)

    @property
    def _trained(self) -> Weights:
        if not self._weights:
            raise DataError("this model has neither been trained nor loaded; train it for an epoch first.")
        return self._weights

    @property
    def _attached(self) -> ScoringData:
        if self._data is None:
            raise DataError("this model has not been given any attributes; call attach first.")
        return self._data

    @property
    def _keys(self) -> Tensor | None:
        return self._trained.get("memory.keys")

    def _learn(self, batch: list[Episode]) -> float:
        """A global step from the query losses of some users; returns their sum."""
        vectors = self._vectors_of(batch)
        losses, adapted = [], []
        for task, profile, items in zip(batch, vectors.profiles, vectors.items, strict=True):
            query, support = slice(task.n_query), slice(task.n_query, None)
            targets = self._network.targets(task.labels, self._trained)
            local = self._adapt_and_write(profile.detach(), items[support].detach(), targets[support])
            adapted.append({name: leaf(tensor) for name, tensor in local.items()})
            outputs = self._network.outputs(adapted[-1], profile, items[query])
            losses.append(self._checked(self._network.loss(outputs, targets[query])))
        self._step(torch.stack(losses).mean(), vectors, adapted)
        return float(torch.stack(losses).detach().double().sum())

    def _vectors_of(self, batch: list[Episode]) -> _Vectors:
        """Each distinct item of the batch goes through the item network once."""
        distinct, place = np.unique(np.concatenate([task.items for task in batch]), return_inverse=True)
        users = self._user_profiles.attributes(self._attached.users, np.array([task.user for task in batch]))
        items = self._item_profiles.attributes(self._attached.training_items, distinct)
        # A leaf of the batch's own rows: the gradient of the whole table would cost the table's size at each step.
        used, places = torch.unique(torch.cat([users.rows.flatten(), items.rows.flatten()]), return_inverse=True)
        user_places, item_places = places[: users.rows.numel()], places[users.rows.numel() :]
        leaves = {name: leaf(tensor) for name, tensor in self._trained.items() if name.startswith("item.")}
        rows = leaves["embedding"] = leaf(self._trained["embedding"][used])
        profiles = replace(users, rows=user_places.view_as(users.rows)).profiles(rows)
        item_profiles = replace(items, rows=item_places.view_as(items.rows)).profiles(rows)
        vectors = through_layers(leaves, "item", self.layers, item_profiles)
        by_task = torch.split(functional.embedding(torch.from_numpy(place), vectors), [len(task.items) for task in batch])
        return _Vectors(leaves, used, profiles, list(by_task))

    def _step(self, loss: Tensor, vectors: _Vectors, adapted: list[Weights]) -> None:
        """The loss's gradient at the leaves and at the adapted weights, applied to what they started from."""
        leaves = [*vectors.leaves.items(), *(pair for local in adapted for pair in local.items())]
        gradients = torch.autograd.grad(loss, [tensor for _, tensor in leaves])
        for (name, _), gradient in zip(leaves, gradients, strict=True):
            if name == "embedding":
                self._trained[name].index_add_(0, vectors.used, gradient, alpha=-self.lr)
            elif name in self._trained:  # M_u has no weight behind it where it comes from the memory
                self._trained[name].sub_(gradient, alpha=self.lr)
        self._item_vectors = None

    def _adapt_and_write(self, profile: Tensor, items: Tensor, targets: Tensor) -> Weights:
        attended = attention(profile, self._keys)
        local, gradient = self._adapted(self._local_start(attended), profile, items, targets)
        if attended is not None:
            self._write(attended, profile, gradient, local["task"])
        return local

    def _write(self, attended: Tensor, profile: Tensor, gradient: Weights, task: Tensor) -> None:
        written = {"memory.keys": (profile, self.alpha)}
        if self.feature_memory:
            of_users = {name: tensor for name, tensor in gradient.items() if name.startswith("user.")}
            written |= {BIASES + name: (tensor, self.beta) for name, tensor in of_users.items()}
        if self.task_memory:
            written["memory.task"] = (task, self.gamma)
        for name, (value, share) in written.items():
            self._trained[name] = rewritten(self._trained[name], attended, value, share)

    def _local_start(self, attended: Tensor | None) -> Weights:
        """What a user's adaptation starts from: user network, head and M_u."""
        start = {name: tensor for name, tensor in self._trained.items() if name.startswith(("user.", "head.", "task"))}
        if self.feature_memory:
            assert attended is not None
            for name in start:
                if name.startswith("user."):
                    start[name] = start[name] - self.tau * recalled(self._trained[BIASES + name], attended)
        if self.task_memory:
            assert attended is not None
            start["task"] = recalled(self._trained["memory.task"], attended)
        return start

    def _adapted(self, start: Weights, profile: Tensor, items: Tensor, targets: Tensor) -> tuple[Weights, Weights]:
        """After `inner` steps of rate local_lr on the support loss, and that loss's gradient at the start.

        profile: (P K,); items: (S, K) vectors; targets: (S,). O(inner S K^2) for each layer.
        """
        current, gradient_at_start = start, None
        for _ in range(self.inner):
            leaves = {name: leaf(tensor) for name, tensor in current.items()}
            loss = self._checked(self._network.loss(self._network.outputs(leaves, profile, items), targets))
            gradient = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))
            current = {name: tensor.detach() - self.local_lr * gradient[name] for name, tensor in leaves.items()}
            gradient_at_start = gradient_at_start or gradient
        assert gradient_at_start is not None
        return current, gradient_at_start

    def _adapted_to(self, users: UserSide, place: int) -> tuple[Weights, Tensor]:
        """A user's weights and profile, after the support ratings that training knows of them."""
        profile = self._profile(self._user_profiles.attributes(users.attributes, np.array([place])))[0]
        local = self._local_start(attention(profile, self._keys))
        data, number = self._attached, int(users.numbers[place])
        rated = data.support.places(number) if number >= 0 else np.empty(0, np.int64)
        if len(rated) == 0:
            return local, profile
        vectors = self._support_vectors(data.support.items[rated])
        targets = self._network.targets(data.support.labels[rated], self._trained)
        return self._adapted(local, profile, vectors, targets)[0], profile

    def _profile(self, attributes: Profiles) -> Tensor:
        return attributes.profiles(self._trained["embedding"])

    def _support_vectors(self, items: Ints) -> Tensor:
        """e_i of items that were rated in training."""
        data = self._attached
        if data.items is data.training_items:
            return self._all_items()[torch.from_numpy(items.astype(np.int64))]
        profiles = self._profile(self._item_profiles.attributes(data.training_items, items))
        return through_layers(self._trained, "item", self.layers, profiles)

    def _all_items(self) -> Tensor:
        """(items, K): e_i of every item that is scored, which no user's adaptation changes."""
        if self._item_vectors is None:
            table = self._attached.items
            items = np.arange(len(table))
            blocks = [items[start : start + _ITEMS_PER_BLOCK] for start in range(0, len(table), _ITEMS_PER_BLOCK)]
            profiles = (self._profile(self._item_profiles.attributes(table, block)) for block in blocks)
            vectors = [through_layers(self._trained, "item", self.layers, profile) for profile in profiles]
            self._item_vectors = torch.cat(vectors)
        return self._item_vectors

    def _scores(self, local: Weights, profile: Tensor, items: Tensor) -> Floats:
        """(I,) in the labels' own scale."""
        with torch.no_grad():
            scores = self._network.scores(local, profile, items, self._trained)
        checked: Floats = self._checked(scores).numpy()
        return checked

    def _checked(self, numbers: Tensor) -> Tensor:
        if not bool(torch.isfinite(numbers).all()):
            raise NotFiniteError(
                "the loss or score of an adapted user is not finite; "
                f"lower local_lr (it is {self.local_lr:g}) or lr (it is {self.lr:g})."
            )
        return numbers


@dataclass(frozen=True)
class _Vectors:
    """What a batch's losses are computed from: profiles (B, P K) and each task's item vectors, grown from the leaves.

    leaves: the item network, and the rows `used` of the embedding table.
    """

    leaves: Weights
    used: Tensor
    profiles: Tensor
    items: list[Tensor]
