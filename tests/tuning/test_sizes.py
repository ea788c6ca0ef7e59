"""Quality against size."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gmlfm import Dataset, Recommender, load_dataset
from gmlfm.errors import DataError, OptionError
from gmlfm.evaluation.protocols import Evaluation
from gmlfm.models.registry import MODELS
from gmlfm.tuning import Budget, Plan, compare
from gmlfm.tuning.size_table import best_for, bytes_text, size_headings, size_legend, size_markdown, size_rows, size_title
from gmlfm.tuning.sizes import AXES, Cell, Point, SizesPlan, compare_sizes, marked, points_of, warm_seconds
from tests.contracts.checkerboard import checkerboard

QUICK = {"epochs": "1"}
PLAN = SizesPlan(("fm", "mf"), (2, 4), settings=QUICK)
METRICS = {"full": {"ndcg@10": 0.5, "hr@10": 0.6}, "sampled": {"ndcg@10": 0.7, "hr@10": 0.8}}


@pytest.fixture(scope="module")
def data(market: Path) -> Dataset:
    return load_dataset(market)


def cell(model: str, k: int, seed: int, ndcg: float, seconds: float) -> Cell:
    metrics = {"full": {"ndcg@10": ndcg, "hr@10": 0.6}, "sampled": METRICS["sampled"]}
    return Cell(model, k, seed, metrics, 100 * k, 8, 40 * k, seconds, 3, 2)


def point(quality: float, table: int, items: int | None, seconds: float) -> Point:
    metrics = {"full": {"ndcg@10": quality, "hr@10": 0.6}, "sampled": METRICS["sampled"]}
    return Point("fm", 8, metrics, table, 0, items, seconds)


def test_every_model_at_every_k_is_measured_on_validation_and_its_bytes_are_those_it_has(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at, evaluate = [], Recommender.evaluate

    def recorded(self: Recommender, **options: Any) -> Evaluation:
        looked_at.append((options["protocol"], options["part"]))
        return evaluate(self, **options)

    monkeypatch.setattr(Recommender, "evaluate", recorded)
    sizes = compare_sizes(data, PLAN, tmp_path, threads=1)
    assert set(looked_at) == {("full", "validation"), ("sampled", "validation")}
    assert [(one.model, one.k) for one in sizes.points] == [("fm", 2), ("fm", 4), ("mf", 2), ("mf", 4)]
    for one in sizes.points:
        rec = Recommender(one.model, k=one.k, epochs=1, threads=1).fit(data)
        state = rec.fitted.model.state_dict()
        assert one.table_bytes == 4 * state["table"].numel() == 4 * len(state["table"]) * (1 + one.k)
        assert one.dense_bytes == 4 * sum(tensor.numel() for name, tensor in state.items() if name != "table")
        assert one.item_bytes == 4 * len(rec.fitted.encoded.item) * (one.k + 1)
        for protocol in ("full", "sampled"):
            figures = evaluate(rec, protocol=protocol, part="validation").metrics
            assert one.metrics[protocol] == {name: figures[name] for name in ("ndcg@10", "hr@10")}
    written = json.loads((tmp_path / "sizes.json").read_text())
    assert [one["k"] for one in written["points"]] == [2, 4, 2, 4]
    assert len(written["cells"]) == 4


@pytest.mark.parametrize("name", [name for name, info in MODELS.items() if "topn" in info.tasks])
def test_what_retrieval_holds_of_an_item_is_as_wide_as_a_model_says(name: str, data: Dataset) -> None:
    quick = {"k": 4, "epochs": 1} if "k" in MODELS[name].declared else {}
    model = Recommender(name, **quick, threads=1).fit(data).fitted.model
    width = model.item_vector_width
    if not getattr(model, "decomposes", False):
        assert width == (4 if name == "sasrec" else None)
        return
    items = np.arange(6, dtype=np.int32)
    scorer: Any = model.scorer  # type: ignore[attr-defined]
    cache = scorer._item_cache
    assert len(items) < len(cache)
    assert width == cache._vectors.shape[1] + 1
    assert cache._self_terms.shape == cache._vectors.shape[:1]


def test_a_catalogue_that_is_too_small_to_sample_from_is_ranked_in_full_alone(tmp_path: Path) -> None:
    sizes = compare_sizes(checkerboard(), SizesPlan(("mf",), (2,), settings=QUICK), tmp_path, threads=1)
    assert list(sizes.points[0].metrics) == ["full"]
    shown = dict(zip(size_headings(), size_rows(sizes)[0], strict=True))
    assert shown["NDCG@10 sampled"] == shown["HR@10 sampled"] == "-"


def test_a_stopped_command_goes_on_cell_by_cell(data: Dataset, tmp_path: Path) -> None:
    plan = replace(PLAN, seeds=2)

    class Stopped(Exception):
        pass

    trained: list[tuple[str, int, int]] = []

    def stops(model: str, k: int, seed: int) -> None:
        if len(trained) == 3:
            raise Stopped
        trained.append((model, k, seed))

    with pytest.raises(Stopped):
        compare_sizes(data, plan, tmp_path, threads=1, trained=stops)
    assert trained == [("fm", 2, 0), ("fm", 2, 1), ("fm", 4, 0)]
    assert not (tmp_path / "sizes.json").exists()
    more: list[tuple[str, int, int]] = []
    sizes = compare_sizes(data, plan, tmp_path, threads=1, trained=lambda *place: more.append(place))
    assert trained + more == plan.cells()
    assert len(sizes.cells) == 8
    assert compare_sizes(data, plan, tmp_path, threads=1, trained=lambda *place: more.append(place)) == sizes
    assert len(more) == 5  # nothing is left to do
    (tmp_path / "cells" / "mf-4-1.json").write_text("{")
    compare_sizes(data, plan, tmp_path, threads=1, trained=lambda *place: more.append(place))
    assert more[5:] == [("mf", 4, 1)]  # a damaged one is made again


def test_a_folder_holds_one_comparison(data: Dataset, tmp_path: Path) -> None:
    plan = SizesPlan(("mf",), (2,), settings=QUICK)
    compare_sizes(data, plan, tmp_path, threads=1)
    for other, difference in (
        (replace(plan, sizes=(2, 4)), "sizes: 2 there, 2,4 here"),
        (replace(plan, inputs="paper"), "inputs: None there, paper here"),
        (replace(plan, settings={"epochs": "2"}), "the fixed settings: mf.epochs=1 there, mf.epochs=2 here"),
        (replace(plan, seed=1), "seed: 0 there, 1 here"),
    ):
        with pytest.raises(OptionError, match=rf"holds another comparison \({difference}\); choose a new folder"):
            compare_sizes(data, other, tmp_path)
    with pytest.raises(OptionError, match="holds another comparison"):
        compare(data, Plan(("mf", "popularity")), Budget(trials=1), tmp_path)


def test_the_first_epoch_counts_as_the_others_where_it_takes_longer() -> None:
    for epochs, expected in (([9.0, 1.0, 2.0, 3.0], 8.0), ([1.0, 2.0, 4.0], 7.0), ([5.0], 5.0)):
        assert warm_seconds(epochs) == expected


def test_seeds_are_averaged() -> None:
    points = points_of([cell("fm", 2, 0, 0.2, 1.0), cell("fm", 2, 1, 0.4, 3.0), cell("mf", 2, 0, 0.1, 1.0)])
    assert [(one.model, one.k) for one in points] == [("fm", 2), ("mf", 2)]
    assert points[0].quality == pytest.approx(0.3)
    assert points[0].seconds == 2.0
    assert points[0].metrics["sampled"] == pytest.approx(METRICS["sampled"])


def test_what_nothing_beats_is_marked_on_each_axis() -> None:
    """Against the definition, pair by pair, with ties and points that have no item vectors."""
    rng = np.random.default_rng(0)
    points = [
        point(float(q), int(t), None if i == 0 else int(i), float(s)) for q, t, i, s in rng.integers(0, 5, (40, 4)).tolist()
    ]
    for one, shown in zip(points, marked(points), strict=True):
        for axis in AXES:
            own = getattr(one, axis)
            others = [(getattr(other, axis), other.quality) for other in points if getattr(other, axis) is not None]
            is_front = own is not None and not any(
                (cost < own and quality >= one.quality) or (cost <= own and quality > one.quality) for cost, quality in others
            )
            assert (axis in shown.best_on) is is_front


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (replace(PLAN, models=()), "models is empty; name one or more"),
        (replace(PLAN, models=("fm", "fm")), "models is fm, fm; name one or more, each once"),
        (replace(PLAN, models=("fm", "ease", "popularity")), "sizes vary k, which ease and popularity have not"),
        (replace(PLAN, sizes=()), "sizes is empty"),
        (replace(PLAN, sizes=(8, 8)), "sizes is 8, 8; expected numbers from 1 to 10,000, each once"),
        (replace(PLAN, sizes=(0, 8)), "expected numbers from 1"),
        (replace(PLAN, seeds=0), "seeds is 0"),
        (replace(PLAN, settings={"k": "8"}), "k is what sizes vary and cannot be fixed"),
        (replace(PLAN, settings={"fm.k": "8"}), "k is what sizes vary and cannot be fixed"),
        (replace(PLAN, models=("sasrec",), sizes=(3,), settings={"heads": "2"}), "heads is 2"),
        (replace(PLAN, models=("sasrec",), inputs="paper"), "no place for sasrec"),
        (replace(PLAN, models=("ncf",), inputs="history"), "no place for ncf"),
        (replace(PLAN, split="randm"), "did you mean 'random'"),
    ],
)
def test_wrong_plans_are_refused_before_anything_is_trained(
    plan: SizesPlan, message: str, data: Dataset, tmp_path: Path
) -> None:
    with pytest.raises((OptionError, DataError), match=message):
        compare_sizes(data, plan, tmp_path / "out")
    assert not (tmp_path / "out" / "cells").exists()


def test_a_split_without_validation_is_refused(data: Dataset, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="the split 'none' holds out no validation rows, on which sizes are compared"):
        compare_sizes(data, replace(PLAN, split="none"), tmp_path, threads=1)


def test_what_fails_is_named_and_the_others_go_on(data: Dataset, tmp_path: Path) -> None:
    plan = SizesPlan(("fm", "mf"), (2,), settings={"epochs": "1", "fm.lr": "1e30"})
    sizes = compare_sizes(data, plan, tmp_path, threads=1)
    assert [one.model for one in sizes.points] == ["mf"]
    assert list(sizes.failures) == ["fm, k = 2"]
    assert "fm, k = 2 failed: " in size_markdown(sizes)


def test_with_histories_the_table_holds_the_roles_and_the_item_vectors_stay(data: Dataset, tmp_path: Path) -> None:
    plan = SizesPlan(("fm",), (2,), settings=QUICK)
    plain, with_history = (
        compare_sizes(data, replace(plan, inputs=inputs), tmp_path / inputs, threads=1) for inputs in ("paper", "history")
    )
    assert with_history.points[0].table_bytes > plain.points[0].table_bytes
    assert with_history.points[0].item_bytes == plain.points[0].item_bytes
    assert (plain.reads["fm"], with_history.reads["fm"]) == ("who and what", "earlier rows as last, recent, past")
    assert "; inputs history; mean of 1 seed" in size_title(with_history)


def test_the_page(data: Dataset, tmp_path: Path) -> None:
    sizes = compare_sizes(data, replace(PLAN, models=("fm", "nfm"), inputs="paper"), tmp_path, threads=1)
    rows = size_rows(sizes)
    assert {len(row) for row in rows} == {len(size_headings())}
    shown = dict(zip(size_headings(), rows[0], strict=True))
    first = sizes.points[0]
    assert shown["NDCG@10 full"] == f"{first.metrics['full']['ndcg@10']:.4f}"
    assert shown["HR@10 sampled"] == f"{first.metrics['sampled']['hr@10']:.4f}"
    assert (shown["table"], shown["best for"]) == (bytes_text(first.table_bytes), best_for(first))
    assert rows[-1][size_headings().index("item vectors")] == "-"  # nfm's score is no inner product
    page = size_markdown(sizes)
    assert "VALIDATION" in page.splitlines()[0]
    assert size_legend(sizes) in page
    assert "Read of a user: fm, nfm: who and what." in page
    assert "table" in best_for(marked([first])[0])


@pytest.mark.parametrize(
    ("number", "text"), [(12, "12 B"), (999.4, "999 B"), (1500, "1.5 kB"), (2_340_000, "2.34 MB"), (5.1e9, "5.1 GB")]
)
def test_bytes_in_words(number: float, text: str) -> None:
    assert bytes_text(number) == text
