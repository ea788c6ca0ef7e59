"""Small batches and trainers that are compared with a float64 twin."""

from __future__ import annotations

import copy

import numpy as np
import torch

from gmlfm.models.gradient import GradientModel
from gmlfm.training.engines.eager import EagerEngine
from gmlfm.training.options import TrainingOptions
from gmlfm.training.row_trainer import RowTrainer
from gmlfm.training.sampling.groups import Batch

N_ROWS = 40


def batch_of(n: int, user_width: int, group: int, item_width: int, seed: int = 0, weighted: bool = False) -> Batch:
    """Rows drawn anew for each side, the first one an id, some of the others padding or with values other than 1."""
    rng = np.random.default_rng(seed)

    def side(*shape: int) -> tuple[np.ndarray, np.ndarray]:
        ids = rng.integers(1, N_ROWS, shape).astype(np.int32)
        x = np.where(rng.random(shape) < 0.5, 1.0, rng.normal(size=shape)).astype(np.float32)
        empty = rng.random(shape) < 0.2
        if shape[-1]:
            x[..., 0], empty[..., 0] = 1.0, False
        return np.where(empty, 0, ids).astype(np.int32), np.where(empty, 0, x).astype(np.float32)

    labels = np.full((n, group), -1.0, np.float32)
    labels[:, 0] = 1.0
    weights = rng.uniform(0.5, 3.0, n).astype(np.float32) if weighted else None
    return Batch(*side(n, user_width), *side(n, group, item_width), labels, weights)


def with_any_x_of_ids(batch: Batch) -> Batch:
    """The same with x of ids drawn, some of them 0."""
    rng = np.random.default_rng(5)
    for x in (batch.user_x, batch.item_x):
        x[..., 0] = np.where(rng.random(x.shape[:-1]) < 0.3, 0.0, rng.normal(size=x.shape[:-1]))
    return batch


def far_away(trainer: RowTrainer, distance: float = 30.0) -> RowTrainer:
    """All attributes' vectors moved together: their differences, some hundredths, stay as they are but for rounding."""
    columns = slice(1, 1 + trainer.model.k)  # type: ignore[misc]
    trainer.table[1:, columns] = trainer.table[1:, columns] * 0.05 + distance
    return trainer


def started(model: GradientModel, options: TrainingOptions) -> RowTrainer:
    """A trainer in the middle of its work: parameters and moments that are not at zero."""
    trainer = RowTrainer(model, N_ROWS, options)
    for batch in batch_of(24, 3, 3, 2, seed=7).steps(8):
        EagerEngine(trainer.model, trainer.rows, trainer.dense, "squared").step(batch)
    return trainer


def in_double(trainer: RowTrainer) -> RowTrainer:
    twin = RowTrainer(copy.deepcopy(trainer.model).double(), N_ROWS, trainer.options)
    twin.table = trainer.table.double()
    twin.rows = type(trainer.rows)(twin.table, trainer.options.lr, trainer.options.weight_decay)
    for name, tensor in twin.rows.state().items():
        tensor.copy_(trainer.rows.state()[name])
    twin.dense.load_state_dict(copy.deepcopy(trainer.dense.state_dict()))
    return twin


def relative_difference(tensor: torch.Tensor, exact: torch.Tensor) -> float:
    return float((tensor.double() - exact).norm() / exact.norm().clamp_min(1e-12))


def largest_difference(trainer: RowTrainer, exact: RowTrainer) -> float:
    """Of any parameter or moment, relative to its size."""
    tensors, _ = trainer.state()
    exact_tensors, _ = exact.state()
    assert tensors.keys() == exact_tensors.keys()
    # Row 0 is padding, whose updates some engines count and some do not.
    spans = {name: slice(1, None) if name == "rows.count" else ... for name in exact_tensors}
    return max(
        relative_difference(tensors[name].cpu()[spans[name]], tensor[spans[name]]) for name, tensor in exact_tensors.items()
    )


GML = {
    "recommended": {"unit": True, "start": "orthogonal", "h_start": "half"},
    "dnn": {"start": "orthogonal", "v_scale": 0.3},
    "mahalanobis": {"transform": "mahalanobis", "start": "orthogonal"},
    "identity": {"transform": "identity"},
    "cosine": {"distance": "cosine", "start": "orthogonal"},
    "cosine of unit vectors": {"distance": "cosine", "start": "orthogonal", "unit": True},
    "three layers": {"layers": 3, "start": "orthogonal"},
    "sigmoid": {"activation": "sigmoid", "start": "orthogonal", "v_scale": 1.0},
    "relu": {"layers": 2, "activation": "relu", "start": "orthogonal", "unit": True},
}
