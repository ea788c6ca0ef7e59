"""Objectives on groups of scores: (B, G) scores and labels, the positive first. Each returns the mean over the batch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from gmlfm.errors import OptionError, did_you_mean
from gmlfm.models.base import GradientModel

Objective = Callable[[Tensor, Tensor, Tensor | None], Tensor]
OBJECTIVES: dict[str, Objective] = {}
GROUPED: set[str] = set()  # those that compare a positive with its negatives, so that they need some


def register_loss(name: str, *, compares_groups: bool = False) -> Callable[[Objective], Objective]:
    """A decorator that makes a function of scores, labels (B, G) and weights (B,) or None known as a loss.

    compares_groups: it ranks a group's first item above the others, which takes the task topn and negatives.
    """

    def register(objective: Objective) -> Objective:
        if name in OBJECTIVES:
            raise OptionError(f"a loss '{name}' is registered already; choose another name: @register_loss('my-{name}').")
        OBJECTIVES[name] = objective
        if compares_groups:
            GROUPED.add(name)
        return objective

    return register


def objective_named(name: str, model: GradientModel) -> Objective:
    """A loss of the model's own (`losses` of its class, name -> function), else a registered one."""
    own_losses = losses_of(model)
    if name not in own_losses and name not in OBJECTIVES:
        raise OptionError(f"loss is '{name}'{did_you_mean(name, [*own_losses, *OBJECTIVES])}")
    return own_losses[name] if name in own_losses else OBJECTIVES[name]


def losses_of(model: GradientModel) -> dict[str, Objective]:
    """The losses that a model brings itself."""
    return dict(getattr(model, "losses", {}))


@register_loss("squared")
def squared(scores: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
    """(y-hat - y)^2."""
    return _mean((scores - labels).square(), weights)


@register_loss("logistic")
def logistic(scores: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
    """log(1 + exp(-y y-hat)), y in {-1, +1}."""
    return _mean(functional.softplus(-labels * scores), weights)


@register_loss("bpr", compares_groups=True)
def bpr(scores: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
    """-log sigmoid(y-hat_+ - y-hat_-) for each negative."""
    return _mean(functional.softplus(scores[:, 1:] - scores[:, :1]), weights)


@register_loss("softmax", compares_groups=True)
def softmax(scores: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
    """-log of the positive's share in the softmax over its group."""
    return _mean(-torch.log_softmax(scores, dim=1)[:, :1], weights)


def _mean(losses: Tensor, weights: Tensor | None) -> Tensor:
    if weights is None:
        return losses.mean()
    return (losses * weights.unsqueeze(1)).sum() / (weights.sum() * losses.shape[1])
