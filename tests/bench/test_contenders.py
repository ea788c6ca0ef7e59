"""The ways to train that are compared compute the same step."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch

from gmlfm.bench.contenders import Contender, DenseEager, Task, refuse_untrained
from gmlfm.errors import OptionError
from gmlfm.training.settings import Settings

MakeTask = Callable[..., Task]


def test_outer_products_one_product_and_groups_are_the_same_step(make_task: MakeTask) -> None:
    contender = Contender(make_task("eager"))
    batch = next(contender.batches[0].steps(contender.groups_per_step))
    stepped = []
    for way in ("group_step", "outer_step", "flat_step"):
        settings = Settings.make("gml-fm-unit", "topn", {"k": 6, "form": "factored" if way == "flat_step" else "pairs"})
        dense = DenseEager(settings.build(), contender.n_rows, settings, "cpu")
        start = dense._table.detach().clone()
        getattr(dense, way)(batch)
        assert not torch.equal(dense._table.detach(), start)
        parameters = {name: parameter.detach() for name, parameter in dense._model.named_parameters()}
        stepped.append(parameters | {"table": dense._table.detach()})
    for other in stepped[1:]:
        for name, parameter in stepped[0].items():
            torch.testing.assert_close(other[name], parameter, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("way", ["ours", "eager", "factored", "factored-product"])
def test_every_way_goes_through_whole_batches(make_task: MakeTask, way: str) -> None:
    contender = Contender(make_task(way))
    instances, seconds = contender.run(0.0, time.perf_counter)
    assert instances > 0
    assert instances % 5 == 0
    assert seconds > 0
    if way == "ours":
        assert instances == sum(batch.labels.size for batch in contender.batches)


def test_a_round_lasts_its_seconds(make_task: MakeTask) -> None:
    contender, clock = Contender(make_task("eager")), iter(range(100))
    instances, seconds = contender.run(3.0, lambda: float(next(clock)))
    assert seconds >= 3.0
    assert instances > 2 * contender.run(0.0, time.perf_counter)[0]


def test_a_model_without_rows_of_its_own_says_so(make_task: MakeTask) -> None:
    for model, way, message in (
        ("popularity", "ours", "'popularity' is not trained by steps"),
        ("nfm", "factored", "--against factored is for the GML-FM models; 'nfm' has no such form"),
        ("ngcf", "eager", "compares models of rows alone"),
    ):
        with pytest.raises(OptionError, match=message):
            Contender(make_task(way, model))
    with pytest.raises(OptionError, match="'mamo' is not trained by steps, so there is nothing to measure"):
        refuse_untrained("mamo")
