r"""MAMO: memory-augmented meta-optimization for newcomers (Dong et al., KDD 2020).

A user is a task: the network starts from weights that her profile chooses, and is adapted to the few ratings she has given.

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

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf, sqrt

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from gmlfm.data.attributes import AttributeTable
from gmlfm.data.dataset import Rows
from gmlfm.data.encoding import Encoded
from gmlfm.errors import DataError, OptionError
from gmlfm.models.base import Floats, Ints, Layout, Rated
from gmlfm.models.episodes import ByUser, Episode, Profiles, divided, profile_sides
from gmlfm.models.spaces import Choice, Real, Space

Weights = dict[str, Tensor]
_EPOCH_STREAM = 30  # keeps the epochs' random numbers apart from those that other parts draw from the same seed
_ITEMS_PER_BLOCK = 10_000
_BIASES = "memory.bias."
SPACE: dict[str, Space] = {
    "k": Choice((16, 32, 64, 100)),
    "layers": Choice((1, 2)),
    "tau": Choice((0.01, 0.1, 1.0)),
    "gamma": Choice((0.02, 0.1)),
    "local_lr": Real(0.003, 0.1),
    "inner": Choice((1, 3, 5)),
}


class Mamo:
    """output: 'regression', or 'classes' (softmax over the distinct training labels, the score is their expectation).

    feature_memory=False sets every bias a_u M_U to 0; task_memory=False makes M_u one learned matrix for all users.
    The network predicts (label - mean) / spread of the first epoch's labels. At the start every layer keeps the length of
    its input on average, and profiles have a length of about 1: longer ones would make the published rates diverge.
    """

    def __init__(
        self,
        layout: Layout,
        k: int = 100,
        layers: int = 2,
        alpha: float = 0.5,
        beta: float = 0.05,
        gamma: float = 0.1,
        tau: float = 0.01,
        local_lr: float = 0.01,
        slots: int = 3,
        inner: int = 3,
        tasks_per_batch: int = 5,
        output: str = "regression",
        feature_memory: bool = True,
        task_memory: bool = True,
        lr: float = 0.05,
        seed: int = 0,
    ) -> None:
        counts = {"k": k, "layers": layers, "slots": slots, "inner": inner, "tasks_a_batch": tasks_per_batch}
        for name, count in counts.items():
            _demand(count >= 1, name, count, "1 or more")
        for name, share in {"alpha": alpha, "beta": beta, "gamma": gamma}.items():
            _demand(0.0 <= share <= 1.0, name, share, "0 to 1")
        for name, rate in {"local_lr": local_lr, "lr": lr}.items():
            _demand(0.0 < rate < inf, name, rate, "a number above 0")
        _demand(0.0 <= tau < inf, "tau", tau, "0 or more")
        _demand(seed >= 0, "seed", seed, "0 or more")
        _demand(output in ("regression", "classes"), "output", f"'{output}'", "regression or classes")
        self.k, self.layers, self.slots, self.inner, self.tasks_per_batch = k, layers, slots, inner, tasks_per_batch
        self.alpha, self.beta, self.gamma, self.tau, self.local_lr, self.lr = alpha, beta, gamma, tau, local_lr, lr
        self.classes, self.feature_memory, self.task_memory, self.seed = output == "classes", feature_memory, task_memory, seed
        self._user_side, self._item_side = profile_sides(layout)
        self._weights: Weights = {}
        self._known: _Known | None = None
        self._item_vectors: Tensor | None = None

    def read(self, encoded: Encoded, support: Rated) -> None:
        """The attributes by number, and the ratings that a user is adapted on when she is scored."""
        self._known = _Known(encoded.user, encoded.item, ByUser.of(support))
        self._item_vectors = None

    def epoch(self, tasks: Rated, number: int, tell: Callable[[int, int, float], None]) -> float:
        """One pass over the users of `tasks`; returns the mean over users of their query losses.

        A random quarter of a user's ratings, one at least, is her query set; who has one rating only is passed over.
        """
        by_user = ByUser.of(tasks)
        users = by_user.with_ratings(2)
        if len(users) == 0:
            raise DataError("no user has two ratings or more, so none can be divided into support and query; add ratings.")
        if not self._weights:
            self._weights = self._started(tasks.labels)
        generator = np.random.default_rng([self.seed, _EPOCH_STREAM, number])
        users, done, total = generator.permutation(users), 0, 0.0
        for start in range(0, len(users), self.tasks_per_batch):
            batch = [divided(by_user, user, generator) for user in users[start : start + self.tasks_per_batch]]
            total += self._learn(batch)
            done += len(batch)
            tell(done, len(users), total / done)
        return total / done

    def score_pairs(self, users: Ints, items: Ints, rows: Rows | None = None) -> Floats:
        """users (N,), items (N, G) -> (N, G). Each distinct user is adapted once; -1 is somebody of unknown profile."""
        result = np.empty(items.shape, np.float32)
        vectors = self._all_items()
        for user, here in _grouped(users):
            local, profile = self._adapted_to(user)
            asked = torch.from_numpy(items[here].ravel().astype(np.int64))
            result[here] = self._scores(local, profile, vectors[asked]).reshape(len(here), -1)
        return result

    def score_all(self, users: Ints, items: Ints, rows: Rows | None = None) -> Floats:
        """(N, len(items)); O(len(items) K^2) for each layer and distinct user."""
        result = np.empty((len(users), len(items)), np.float32)
        vectors = self._all_items()[torch.from_numpy(items.astype(np.int64))]
        for user, here in _grouped(users):
            result[here] = self._scores(*self._adapted_to(user), vectors)
        return result

    def score_pairs_for(self, user_side: AttributeTable, items: Ints, users: Ints | None = None) -> Floats:
        """By number where users are known, else from the attributes alone: (N, G) -> (N, G)."""
        result = np.empty(items.shape, np.float32)
        for at in range(len(items)):
            one = AttributeTable(user_side.ids[at : at + 1], user_side.values[at : at + 1])
            result[at] = self.score_all_for(one, items[at], None if users is None else users[at : at + 1])[0]
        return result

    def score_all_for(
        self, user_side: AttributeTable, items: Ints, users: Ints | None = None, history: Ints | None = None
    ) -> Floats:
        """By number where a user has one, otherwise from her attributes alone; history has no labels to adapt on."""
        numbers = np.full(len(user_side), -1, np.int32) if users is None else users
        result = np.empty((len(user_side), len(items)), np.float32)
        known = np.flatnonzero(numbers >= 0)
        if len(known):
            result[known] = self.score_all(numbers[known], items)
        vectors = self._all_items()[torch.from_numpy(items.astype(np.int64))]
        for at in np.flatnonzero(numbers < 0):
            profile = self._profile(self._user_side.attributes(user_side, np.array([at])))[0]
            result[at] = self._scores(self._local_start(attention(profile, self._keys)), profile, vectors)
        return result

    def weights(self) -> Weights:
        """Copies of all parameters, the memories (memory.*) and what the labels were like (label.*)."""
        return {name: one.clone() for name, one in self._learnt.items()}

    def load(self, weights: Mapping[str, Tensor]) -> None:
        levels = weights["label.levels"]
        expected = self._shapes(len(levels)) | {"label.mean": (), "label.spread": (), "label.levels": (len(levels),)}
        if surplus := sorted(set(weights) - set(expected)):
            raise ValueError(f"'{surplus[0]}' is no weight of this model.")
        for name, shape in expected.items():
            if tuple(weights[name].shape) != shape:
                raise ValueError(f"'{name}' has the shape {tuple(weights[name].shape)}; expected {shape}.")
        self._weights = {name: weights[name].to("cpu", torch.float32, copy=True).contiguous() for name in expected}
        self._item_vectors = None

    def _shapes(self, n_levels: int) -> dict[str, tuple[int, ...]]:
        """Of all parameters and memories, in the order in which they are drawn."""
        k = self.k
        user = _stack("user", self.layers, self._user_side.n_fields * k, k)
        shapes: dict[str, tuple[int, ...]] = {"embedding": (self._item_side.end, k)}
        shapes |= user | _stack("item", self.layers, self._item_side.n_fields * k, k) | _stack("head", self.layers, k, k)
        n_out = n_levels if self.classes else 1
        shapes |= {"head.out.weight": (n_out, k), "head.out.bias": (n_out,)}
        if not self.task_memory:
            shapes["task"] = (k, 2 * k)
        if self.feature_memory or self.task_memory:
            shapes["memory.keys"] = (self.slots, self._user_side.n_fields * k)
        if self.feature_memory:
            shapes |= {_BIASES + name: (self.slots, *shape) for name, shape in user.items()}
        if self.task_memory:
            shapes["memory.task"] = (self.slots, k, 2 * k)
        return shapes

    def _started(self, labels: Floats) -> Weights:
        """Weights at the start of training; they depend on the seed, the shapes and the labels' scale alone."""
        levels = np.unique(labels) if self.classes else np.empty(0, np.float32)
        spread = float(np.std(labels, dtype=np.float64))
        generator = torch.Generator().manual_seed(self.seed)
        found = {name: self._drawn(name, shape, generator) for name, shape in self._shapes(len(levels)).items()}
        found["label.mean"] = torch.tensor(float(np.mean(labels, dtype=np.float64)), dtype=torch.float32)
        found["label.spread"] = torch.tensor(spread if spread > 0.0 else 1.0, dtype=torch.float32)
        found["label.levels"] = torch.from_numpy(levels.astype(np.float32))
        return found

    def _drawn(self, name: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Normal, of the deviation that keeps lengths through each layer; biases and their memory start at 0."""
        if name.endswith("bias") or name.startswith(_BIASES):
            return torch.zeros(shape)
        deviation = {
            "embedding": 1.0 / sqrt(self.k * max(self._user_side.n_fields, self._item_side.n_fields)),
            "head.out.weight": 1.0 / sqrt(self.k),
            "task": 1.0 / sqrt(2 * self.k),
            # Reading averages the slots, which are drawn apart.
            "memory.task": sqrt(self.slots / (2 * self.k)),
            "memory.keys": 1.0,
        }.get(name, sqrt(2.0 / shape[0]))
        return torch.empty(shape).normal_(0.0, deviation, generator=generator)

    @property
    def _learnt(self) -> Weights:
        if not self._weights:
            raise DataError("this model has neither been trained nor loaded; train it for an epoch first.")
        return self._weights

    @property
    def _data(self) -> _Known:
        if self._known is None:
            raise DataError("this model has not been given any attributes; call read first.")
        return self._known

    @property
    def _keys(self) -> Tensor | None:
        return self._learnt.get("memory.keys")

    def _learn(self, batch: list[Episode]) -> float:
        """A global step from the query losses of some users; returns their sum."""
        vectors = self._vectors_of(batch)
        losses, adapted = [], []
        for task, profile, items in zip(batch, vectors.profiles, vectors.items, strict=True):
            asked, support = slice(task.n_query), slice(task.n_query, None)
            targets = self._targets(task.labels)
            local = self._adapt_and_write(profile.detach(), items[support].detach(), targets[support])
            adapted.append({name: _leaf(one) for name, one in local.items()})
            losses.append(self._checked(self._loss(self._outputs(adapted[-1], profile, items[asked]), targets[asked])))
        self._step(torch.stack(losses).mean(), vectors, adapted)
        return float(torch.stack(losses).detach().double().sum())

    def _vectors_of(self, batch: list[Episode]) -> _Vectors:
        """Each distinct item of the batch goes through the item network once."""
        listed, place = np.unique(np.concatenate([task.items for task in batch]), return_inverse=True)
        users = self._user_side.attributes(self._data.users, np.array([task.user for task in batch]))
        items = self._item_side.attributes(self._data.items, listed)
        # A leaf of the batch's own rows: the gradient of the whole table would cost the table's size at each step.
        used, renumbered = torch.unique(torch.cat([users.rows.flatten(), items.rows.flatten()]), return_inverse=True)
        of_users, of_items = renumbered[: users.rows.numel()], renumbered[users.rows.numel() :]
        leaves = {name: _leaf(one) for name, one in self._learnt.items() if name.startswith("item.")}
        rows = leaves["embedding"] = _leaf(self._learnt["embedding"][used])
        profiles = replace(users, rows=of_users.view_as(users.rows)).profiles(rows)
        item_profiles = replace(items, rows=of_items.view_as(items.rows)).profiles(rows)
        found = _through(leaves, "item", self.layers, item_profiles)
        each = torch.split(functional.embedding(torch.from_numpy(place), found), [len(task.items) for task in batch])
        return _Vectors(leaves, used, profiles, list(each))

    def _step(self, loss: Tensor, vectors: _Vectors, adapted: list[Weights]) -> None:
        """The loss's gradient at the leaves and at the adapted weights, applied to what they started from."""
        wanted = [*vectors.leaves.items(), *(pair for local in adapted for pair in local.items())]
        gradients = torch.autograd.grad(loss, [leaf for _, leaf in wanted])
        for (name, _), gradient in zip(wanted, gradients, strict=True):
            if name == "embedding":
                self._learnt[name].index_add_(0, vectors.used, gradient, alpha=-self.lr)
            elif name in self._learnt:  # M_u has no weight behind it where it comes from the memory
                self._learnt[name].sub_(gradient, alpha=self.lr)
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
            written |= {_BIASES + name: (one, self.beta) for name, one in gradient.items() if name.startswith("user.")}
        if self.task_memory:
            written["memory.task"] = (task, self.gamma)
        for name, (value, share) in written.items():
            self._learnt[name] = rewritten(self._learnt[name], attended, value, share)

    def _local_start(self, attended: Tensor | None) -> Weights:
        """What a user's adaptation starts from: user network, head and M_u."""
        start = {name: one for name, one in self._learnt.items() if name.startswith(("user.", "head.", "task"))}
        if self.feature_memory:
            assert attended is not None
            for name in start:
                if name.startswith("user."):
                    start[name] = start[name] - self.tau * recalled(self._learnt[_BIASES + name], attended)
        if self.task_memory:
            assert attended is not None
            start["task"] = recalled(self._learnt["memory.task"], attended)
        return start

    def _adapted(self, start: Weights, profile: Tensor, items: Tensor, targets: Tensor) -> tuple[Weights, Weights]:
        """After `inner` steps of rate local_lr on the support loss, and that loss's gradient at the start.

        profile: (P K,); items: (S, K) vectors; targets: (S,). O(inner S K^2) for each layer.
        """
        current, first = start, None
        for _ in range(self.inner):
            leaves = {name: _leaf(one) for name, one in current.items()}
            loss = self._checked(self._loss(self._outputs(leaves, profile, items), targets))
            gradient = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))
            current = {name: one.detach() - self.local_lr * gradient[name] for name, one in leaves.items()}
            first = first or gradient
        assert first is not None
        return current, first

    def _adapted_to(self, user: int) -> tuple[Weights, Tensor]:
        """A user's weights and profile; without support ratings, or unknown (-1), she keeps what her profile starts from."""
        attributes = self._user_side.unknown if user < 0 else self._user_side.attributes(self._data.users, np.array([user]))
        profile = self._profile(attributes)[0]
        local = self._local_start(attention(profile, self._keys))
        support = self._data.support
        here = support.places(user)
        if len(here) == 0:
            return local, profile
        vectors = self._all_items()[torch.from_numpy(support.items[here].astype(np.int64))]
        return self._adapted(local, profile, vectors, self._targets(support.labels[here]))[0], profile

    def _profile(self, attributes: Profiles) -> Tensor:
        return attributes.profiles(self._learnt["embedding"])

    def _all_items(self) -> Tensor:
        """(items, K): e_i of the whole catalogue, which no user's adaptation changes."""
        if self._item_vectors is None:
            table, width = self._data.items, _ITEMS_PER_BLOCK
            blocks = [np.arange(at, min(at + width, len(table))) for at in range(0, len(table), width)]
            profiles = (self._profile(self._item_side.attributes(table, block)) for block in blocks)
            self._item_vectors = torch.cat([_through(self._learnt, "item", self.layers, one) for one in profiles])
        return self._item_vectors

    def _outputs(self, local: Weights, profile: Tensor, items: Tensor) -> Tensor:
        """g(M_u [e_u; e_i]): profile (P K,), items (I, K) -> (I, 1), or (I, levels) for classes."""
        user = _through(local, "user", self.layers, profile)
        of_user, of_item = local["task"][:, : self.k], local["task"][:, self.k :]
        hidden = _through(local, "head", self.layers, items @ of_item.T + of_user @ user)
        return functional.linear(hidden, local["head.out.weight"], local["head.out.bias"])

    def _scores(self, local: Weights, profile: Tensor, items: Tensor) -> Floats:
        """(I,) in the labels' own scale."""
        with torch.no_grad():
            outputs = self._outputs(local, profile, items)
            if self.classes:
                scores = torch.softmax(outputs, dim=1) @ self._learnt["label.levels"]
            else:
                scores = self._learnt["label.mean"] + self._learnt["label.spread"] * outputs.squeeze(1)
        found: Floats = self._checked(scores).numpy()
        return found

    def _targets(self, labels: Floats) -> Tensor:
        """Standardised labels, or for classes the number of the nearest level."""
        given = torch.from_numpy(labels.astype(np.float32))
        if self.classes:
            return (given.unsqueeze(1) - self._learnt["label.levels"]).abs().argmin(dim=1)
        return (given - self._learnt["label.mean"]) / self._learnt["label.spread"]

    def _loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(outputs, targets) if self.classes else functional.mse_loss(outputs.squeeze(1), targets)

    def _checked(self, numbers: Tensor) -> Tensor:
        if not bool(torch.isfinite(numbers).all()):
            raise DataError(
                "the loss or score of an adapted user is not finite; "
                f"lower local_lr (it is {self.local_lr:g}) or lr (it is {self.lr:g})."
            )
        return numbers


def attention(profile: Tensor, keys: Tensor | None) -> Tensor | None:
    """softmax over the slots of cos(p, key): profile (D,), keys (slots, D) -> (slots,); none without a memory."""
    if keys is None:
        return None
    return torch.softmax(functional.cosine_similarity(profile.unsqueeze(0), keys, dim=1), dim=0)


def recalled(memory: Tensor, attended: Tensor) -> Tensor:
    """a^T M: memory (slots, ...), attended (slots,) -> (...)."""
    found: Tensor = torch.tensordot(attended, memory, dims=1)
    return found


def rewritten(memory: Tensor, attended: Tensor, value: Tensor, share: float) -> Tensor:
    """share (a x value) + (1 - share) M: memory (slots, ...), value (...)."""
    written: Tensor = share * torch.tensordot(attended, value, dims=0) + (1.0 - share) * memory
    return written


@dataclass(frozen=True)
class _Vectors:
    """What a batch's losses are computed from: profiles (B, P K) and each task's item vectors, grown from the leaves.

    leaves: the item network, and the rows `used` of the embedding table.
    """

    leaves: Weights
    used: Tensor
    profiles: Tensor
    items: list[Tensor]


@dataclass(frozen=True)
class _Known:
    """What is known when scoring."""

    users: AttributeTable
    items: AttributeTable
    support: ByUser


def _stack(name: str, layers: int, n_in: int, k: int) -> dict[str, tuple[int, ...]]:
    """The shapes of some layers of k units."""
    shapes: dict[str, tuple[int, ...]] = {}
    for at in range(layers):
        shapes |= {f"{name}.{at}.weight": (k, n_in if at == 0 else k), f"{name}.{at}.bias": (k,)}
    return shapes


def _through(weights: Weights, name: str, layers: int, x: Tensor) -> Tensor:
    for at in range(layers):
        x = torch.relu(functional.linear(x, weights[f"{name}.{at}.weight"], weights[f"{name}.{at}.bias"]))
    return x


def _leaf(one: Tensor) -> Tensor:
    return one.detach().requires_grad_()


def _grouped(users: Ints) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Each distinct user with the places where she stands."""
    order = np.argsort(users, kind="stable")
    listed, starts = np.unique(users[order], return_index=True)
    for at, user in enumerate(listed):
        yield int(user), order[starts[at] : starts[at + 1] if at + 1 < len(starts) else None]


def _demand(holds: bool, name: str, value: object, expected: str) -> None:
    if not holds:
        raise OptionError(f"{name} is {value}; expected {expected}.")
