"""Where there is a signal, every model that can see it is above chance: the guard of the guard against signals that are none."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from gmlfm import Recommender
from gmlfm.models.registry import MODELS
from tests.guards.chance import Share, hit_rates
from tests.guards.quick import RANKING, quick
from tests.guards.worlds import planted_data

# As printed in the paper they start at tiny factors, from which so few steps over ids alone do not leave.
LARGER_START = {"v_scale": 0.1}
FAST = ("gml-fm", "fm", "mf", "ncf", "ngcf", "popularity", "item-knn", "ease")
PERSONAL = [name for name in RANKING if name != "popularity"]
BY_ATTRIBUTES = [name for name in RANKING if MODELS[name].cls.inputs.attributes]
N_CHECKS = len(PERSONAL) + len(BY_ATTRIBUTES) + len(RANKING)
LEARNING = {"k": 8, "epochs": 12, "lr": 0.02, "patience": 12}
data_of = cache(planted_data)


def sampled_share(recommender: Recommender, at: int = 10) -> Share:
    return next(share for share in hit_rates(recommender) if share.name == f"sampled hr@{at}")


def fast_first(names: list[str]) -> list[Any]:
    """All models, those that take longer on request: contracts/ has them learn a checkerboard in any case."""
    return [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in names]


def learning(model: str) -> dict[str, Any]:
    return LEARNING | (LARGER_START if model in ("gml-fm-dnn", "gml-fm-md") else {})


def is_clearly_above(share: Share) -> bool:
    return not share.is_at_chance(N_CHECKS) and share.observed > 1.5 * share.expected


@pytest.mark.parametrize("model", fast_first(PERSONAL))
def test_through_ids(model: str) -> None:
    """The best there is: ten of some 20 items of the user's group among 100."""
    share = sampled_share(quick(model, **learning(model)).fit(data_of("ids"), "random"))
    assert is_clearly_above(share), str(share)


@pytest.mark.parametrize("model", fast_first(BY_ATTRIBUTES))
def test_through_attributes_of_newcomers(model: str) -> None:
    """New users and new items, of which there is nothing but the attributes to go by."""
    recommender = quick(model, **learning(model)).fit(
        data_of("attributes"), "newcomers", split_options={"share": 0.35, "validation_share": 0.1}
    )
    evaluation = recommender.evaluate(protocol="sampled")
    group = evaluation.groups["new-new"]
    share = Share("new-new sampled hr@10", group["hr@10"], 0.1, int(group["rows"]))
    assert is_clearly_above(share), str(share)


@pytest.mark.parametrize("model", fast_first(RANKING))
def test_through_popularity(model: str) -> None:
    share = sampled_share(quick(model, **learning(model)).fit(data_of("popularity"), "random"))
    assert is_clearly_above(share), str(share)
