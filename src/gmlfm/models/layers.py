"""Parts that several models share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from gmlfm.models.gradient import Attributes, GradientModel


def take(rows: Tensor, attributes: Attributes) -> Tensor:
    """(U, D) -> (..., F, D)."""
    # embedding's backward adds up in a fixed order on a CPU; indexing's does not promise to.
    return functional.embedding(attributes.ids, rows)


def id_rows(rows: Tensor, attributes: Attributes) -> Tensor:
    """The row of the id, which comes first on both sides: (U, D) -> (..., D)."""
    return functional.embedding(attributes.ids[..., 0], rows)


def scaled(rows: Tensor, attributes: Attributes) -> Tensor:
    """x_i v_i: (U, D) -> (..., F, D)."""
    return take(rows, attributes) * attributes.x.unsqueeze(-1)


def weighted_sum(rows: Tensor, attributes: Attributes) -> Tensor:
    """The sum of x_i v_i, without holding the terms: (U, D) -> (..., D)."""
    ids, x, shape = attributes.ids, attributes.x.to(rows.dtype), attributes.ids.shape[:-1]
    if ids.numel() == 0:
        return rows.new_zeros(*shape, rows.shape[-1])
    flat = (ids.flatten(0, -2), x.flatten(0, -2)) if ids.ndim > 1 else (ids.unsqueeze(0), x.unsqueeze(0))
    if rows.is_cuda:  # the bag's way back sorts the ids, this one adds where they point
        terms = rows.index_select(0, flat[0].flatten()).view(*flat[0].shape, -1)
        return (terms * flat[1].unsqueeze(-1)).sum(-2).view(*shape, rows.shape[-1])
    total = functional.embedding_bag(flat[0], rows, per_sample_weights=flat[1], mode="sum")
    return total.view(*shape, rows.shape[-1])


def linear_term(weights: Tensor, attributes: Attributes) -> Tensor:
    """The sum of w_i x_i: (U, 1) -> (...)."""
    return scaled(weights, attributes).squeeze(-1).sum(-1)


def user_beside(user: Tensor, item: Tensor) -> Tensor:
    """The user's (B, D) for each of their items: (B, G, D)."""
    return user.unsqueeze(1).expand(-1, item.shape[1], -1)


def widths(text: str) -> list[int]:
    """Layer sizes as a setting writes them: '64,32'; '' for none."""
    return [int(size) for size in text.split(",") if size.strip()]


def check_widths(text: str) -> str | None:
    """What a text of layer sizes should have been; None where it is one."""
    sizes = [size.strip() for size in text.split(",") if size.strip()]
    return None if all(size.isdecimal() and int(size) >= 1 for size in sizes) else "sizes of 1 or more, such as 64,32"


class FactorModel(GradientModel):
    """A table whose rows, `width` numbers each, start at normal ones of standard deviation v_scale."""

    def __init__(self, k: int, width: int, v_scale: float) -> None:
        super().__init__()
        self.k, self.v_scale, self._width = k, v_scale, width

    @property
    def row_width(self) -> int:
        return self._width

    def initial_rows(self, n: int, generator: torch.Generator) -> Tensor:
        return torch.empty(n, self._width).normal_(0.0, self.v_scale, generator=generator)


class Normed(nn.BatchNorm1d):
    """Batch norm over the last dimension of (..., D); a batch of one row has no spread and takes the running one."""

    def forward(self, values: Tensor) -> Tensor:
        flat = values.reshape(-1, values.shape[-1])
        if self.training and len(flat) < 2:
            normed = functional.batch_norm(flat, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
            return normed.view(values.shape)
        return super().forward(flat).view(values.shape)


def mlp(
    inputs: int,
    hidden: Sequence[int],
    dropout: float = 0.0,
    norm: bool = False,
    activation: Callable[[], nn.Module] = nn.ReLU,
) -> nn.Sequential:
    """Fully connected layers: linear, norm, activation, dropout."""
    parts: list[nn.Module] = []
    for size in hidden:
        parts.append(nn.Linear(inputs, size))
        parts += [Normed(size)] if norm else []
        parts.append(activation())
        parts += [nn.Dropout(dropout)] if dropout else []
        inputs = size
    return nn.Sequential(*parts)


def by_field(values: Tensor, fields: Tensor, places: Tensor, n_fields: int) -> Tensor:
    """Sums over each field's attributes: values (..., F, D), fields (..., F) -> (..., n_fields, D).

    places: the place of each field number among the `n_fields` of this side.
    """
    index = places[fields].unsqueeze(-1).expand(values.shape)
    return values.new_zeros(*values.shape[:-2], n_fields, values.shape[-1]).scatter_add(-2, index, values)
