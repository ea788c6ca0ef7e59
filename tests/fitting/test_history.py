"""A run with a history through its life: fitted, refitted, resumed, saved, changed; what it knows of whom."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from gmlfm import Dataset, Recommender
from gmlfm.data.histories import Histories, visible_rows
from gmlfm.errors import OptionError
from gmlfm.fitting import FittedRun
from gmlfm.fitting.fit import make_plan
from gmlfm.fitting.plan import Stage
from gmlfm.fitting.run import Refit
from gmlfm.training.row_trainer import RowTrainer
from gmlfm.training.settings import Settings
from gmlfm.training.trainer import EpochReport, NullObserver, Observer, Resumable
from tests.models.history_world import N_ITEMS, QUICK, history_data

FM: dict[str, Any] = {**QUICK, "epochs": 3, "batch_size": 40, "lr": 0.05}
ITEMS = np.arange(N_ITEMS, dtype=np.int32)


@pytest.fixture(scope="module")
def data() -> Dataset:
    return history_data()


@pytest.fixture(scope="module")
def fitted(data: Dataset) -> Recommender:
    """No test may change it."""
    return Recommender("fm", **FM).fit(data)


def weights_of(recommender: Recommender) -> dict[str, np.ndarray]:
    return {name: tensor.numpy().copy() for name, tensor in recommender.fitted.model.state_dict().items()}


def same_weights(left: Recommender, right: Recommender) -> bool:
    one_side, other_side = weights_of(left), weights_of(right)
    return all(np.array_equal(one_side[name], other_side[name]) for name in one_side)


@pytest.mark.parametrize("name", ["fm", "gml-fm", "nfm"])
def test_the_same_seed_gives_the_same_weights(data: Dataset, name: str) -> None:
    first, again, other = (Recommender(name, **FM, seed=seed).fit(data) for seed in (3, 3, 4))
    assert same_weights(first, again)
    assert not same_weights(first, other)


@pytest.mark.parametrize("name", ["fm", "gml-fm", "xdeepfm"])
def test_saved_and_loaded_it_scores_the_same(data: Dataset, name: str, tmp_path: Path) -> None:
    recommender = Recommender(name, **FM).fit(data)
    recommender.save(tmp_path / "run")
    loaded = Recommender.load(tmp_path / "run")
    assert loaded.fitted.encoder.roles == ("last", "recent", "past")
    assert loaded.recommend(["u03", "u07"], n=5).equals(recommender.recommend(["u03", "u07"], n=5))
    left, right = (each.recommend_for({"age": 22}, history=["i03", "i05"], n=5) for each in (loaded, recommender))
    assert left.equals(right)
    evaluations = [each.evaluate(protocol="full").metrics for each in (loaded, recommender)]
    assert evaluations[0] == evaluations[1]


class Stop(NullObserver):
    """Ends the training after an epoch."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_epoch(self, report: EpochReport, trainer: Resumable) -> None:
        if report.epoch == self.epoch:
            raise KeyboardInterrupt


@pytest.mark.parametrize("loss", ["softmax", "bpr"])
def test_resumed_after_a_checkpoint_it_ends_with_the_same_weights(data: Dataset, loss: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {**FM, "epochs": 4, "loss": loss, "cold_start_rate": 0.2}
    whole = Recommender("fm", **settings).fit(data)
    observer: Observer = Stop(2)
    with pytest.raises(BaseException):  # noqa: B017, PT011 - however an interruption is told
        Recommender("fm", **settings).fit(data, out=tmp_path / "run", observer=observer)
    resumed = Recommender("fm", **settings).fit(data, out=tmp_path / "run", resume=True)
    assert same_weights(resumed, whole)


def rates_of(plan: Any, stage: Stage, monkeypatch: pytest.MonkeyPatch, *, refit: bool) -> list[float]:
    rates: list[float] = []
    set_rate = RowTrainer._set_lr

    def recorded(trainer: RowTrainer, n_done: int) -> None:
        set_rate(trainer, n_done)
        if n_done == 0:
            rates.append(trainer.rows.lr)

    with monkeypatch.context() as patched:
        patched.setattr(RowTrainer, "_set_lr", recorded)
        inputs = plan.refit_inputs(Refit.VALIDATION) if refit else plan.selection_inputs()
        plan.settings.build(inputs.layout).fit(inputs, stage)
    return rates


def test_a_refit_follows_the_schedule_of_the_selection(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan(data, Settings.make("fm", "topn", {**FM, "epochs": 6}), "leave-one-out", device="cpu")
    assert plan.settings.training.schedule == "cosine"
    selection = rates_of(plan, Stage(plan, None, False, NullObserver()), monkeypatch, refit=False)
    refit = rates_of(plan, Stage(plan, None, False, NullObserver(), epochs=3), monkeypatch, refit=True)
    assert len(selection) == 6
    assert refit == pytest.approx(selection[:3])
    assert selection[0] == pytest.approx(0.05)
    assert all(later < earlier for earlier, later in itertools.pairwise(selection))


def test_users_have_no_rows_of_their_own_unless_they_are_asked_for(data: Dataset, fitted: Recommender) -> None:
    assert fitted.fitted.encoder.part("user")[0].n_values == 0
    with_ids = Recommender("fm", **FM, user_id=True).fit(data)
    assert with_ids.fitted.encoder.part("user")[0].n_values > 0


def test_a_part_is_scored_as_of_its_rows(data: Dataset, fitted: Recommender) -> None:
    """As the loop over a user's rows would: the test row sees validation, the validation row does not see test."""
    run: FittedRun = fitted.fitted
    lengths: dict[str, dict[int, int]] = {}
    for part, rows in (("validation", run.split.validation), ("test", run.split.test)):
        ranker = run.ranker_of(part)
        users = data.user_numbers[rows]
        side = ranker.user_side(users, rows)
        expected = Histories.of(data, visible_rows(run.split, part)).before(rows)
        assert side.history is not None
        assert side.history.items.tolist() == expected.items.tolist()
        assert side.history.starts.tolist() == expected.starts.tolist()
        lengths[part] = dict(zip(users.tolist(), side.history.lengths.tolist(), strict=True))
    longer = [lengths["test"][user] > lengths["validation"][user] for user in lengths["test"]]
    assert sum(longer) > len(longer) // 2


def test_who_asks_now_is_scored_with_all_they_did(data: Dataset, fitted: Recommender) -> None:
    run = fitted.fitted
    scores = fitted.predict([("u03", "i05")])["score"][0]
    number = int(run.encoder.user_numbers(["u03"])[0])
    rows = data.order_in_time(np.flatnonzero(data.user_numbers == number))
    assert run.split.test[np.isin(run.split.test, rows)].size == 1
    side = run.ranker.user_side(np.array([number]))
    assert side.history is not None
    assert side.history.items.tolist() == data.item_numbers[rows].tolist()
    item = run.encoder.item_numbers(["i05"]).astype(np.int32)
    assert run.ranker.score_all(np.array([number], np.int32), item)[0, 0] != pytest.approx(scores)  # of no context


def test_a_newcomer_with_the_same_history_is_scored_as_a_known_user(data: Dataset, fitted: Recommender) -> None:
    run = fitted.fitted
    number = int(run.encoder.user_numbers(["u05"])[0])
    rows = data.order_in_time(np.flatnonzero(data.user_numbers == number))
    history = run.encoder.ids_of_items(data.item_numbers[rows]).to_list()
    newcomer = fitted.recommend_for({"age": 25}, history=history, n=6)
    known = fitted.recommend(["u05"], n=6)
    assert newcomer["item"].to_list() == known["item"].to_list()
    np.testing.assert_allclose(newcomer["score"], known["score"], rtol=1e-5)
    turned = fitted.recommend_for({"age": 25}, history=history[::-1], n=6)
    assert turned["score"].to_list() != newcomer["score"].to_list()


def test_users_without_a_history_and_unknown_ones_are_answered(fitted: Recommender) -> None:
    assert fitted.recommend_for({"age": 22}, n=4).height == 4
    table = fitted.recommend(["u01", "nobody"], n=4)
    assert table.height == 8
    assert fitted.predict([("nobody", "i03")])["score"].is_finite().all()
    with pytest.warns(UserWarning, match="unknown"):
        assert fitted.recommend_for({"age": 22}, history=["i03", "no such item"], n=4).height == 4


def test_to_forget_a_user_is_to_forget_their_rows(data: Dataset) -> None:
    recommender = Recommender("fm", **FM).fit(data)
    before = recommender.recommend_for({"age": 22}, history=["i03"], n=5)
    recommender.forget("u05")
    run = recommender.fitted
    assert "u05" not in run.data.users.ids
    assert run.histories.n_users == len(run.data.users)
    assert len(run.histories.items) == run.data.n_interactions + run.data.history_rows.height
    assert recommender.recommend_for({"age": 22}, history=["i03"], n=5).equals(before)  # the weights stay
    assert not recommender.recommend(["u05"], n=3)["known"].any()
    assert recommender.recommend(["u06"], n=3).height == 3


def test_an_added_item_can_be_recommended_and_be_in_a_history(data: Dataset) -> None:
    recommender = Recommender("fm", **FM).fit(data)
    recommender.add_items(pl.DataFrame({"item": ["new"], "kind": ["k1"], "tags": ["t1|t2"]}))
    listed = recommender.recommend(["u02"], n=N_ITEMS + 1, seen=True)["item"].to_list()
    assert "new" in listed
    plain, with_new = (recommender.recommend_for({"age": 22}, history=history, n=3) for history in (["i03"], ["i03", "new"]))
    assert plain["score"].to_list() != with_new["score"].to_list()
    evaluation = recommender.evaluate(protocol="full")
    assert evaluation.metrics == Recommender("fm", **FM).fit(data).evaluate(protocol="full").metrics


def test_other_data_are_evaluated_by_what_came_before_their_rows(data: Dataset, fitted: Recommender) -> None:
    """Rows of the run itself, given as other data, see what the run's rows see, and never themselves."""
    evaluation = fitted.evaluate(data, protocol="full")
    assert np.isfinite(list(evaluation.metrics.values())).all()
    histories = Histories.of_other(data, data, np.arange(len(data.users)))
    own_histories, rows = Histories.of(data), np.arange(data.n_interactions)
    for row in rows:
        seen, expected = histories.before(rows[[row]]).of_user(0), own_histories.before(rows[[row]]).of_user(0)
        assert sorted(seen.tolist()) == sorted(expected.tolist())  # what both have once
        assert data.item_numbers[row] not in seen


@pytest.mark.parametrize("loss", ["squared", "logistic", "bpr"])
def test_other_losses_learn_with_a_history(data: Dataset, loss: str) -> None:
    recommender = Recommender("fm", **FM, loss=loss, n_negatives=3).fit(data)
    losses = [entry["loss"] for entry in recommender.fitted.curve]
    assert losses[-1] < losses[0]


def test_ratings_are_learned_with_a_history() -> None:
    data = history_data(label="stars", positive="stars >= 3")
    recommender = Recommender("fm", task="rating", **FM).fit(data, split="leave-one-out")
    losses = [entry["loss"] for entry in recommender.fitted.curve]
    assert losses[-1] < losses[0]
    assert np.isfinite(recommender.evaluate().metrics["rmse"])


def test_the_implicit_task_has_no_history(data: Dataset) -> None:
    with pytest.raises(OptionError, match="without regard to time"):
        Recommender("fm", task="implicit", **FM).fit(data)


def test_data_without_times_have_none_unless_it_is_asked_for() -> None:
    data = history_data()
    untimed = Dataset.from_tables(
        data.interactions.select(user=data.users.ids.gather(data.user_numbers), item=data.items.ids.gather(data.item_numbers)),
        schema={"interactions": {"user": "user", "item": "item"}},
    )
    automatic = Recommender("fm", **{**FM, "history": "auto"}).fit(untimed)
    assert automatic.fitted.encoder.roles == ()
    assert automatic.fitted.settings.history.history == "none"
    assert automatic.fitted.encoder.part("user")[0].n_values > 0
    with pytest.raises(OptionError, match="no times"):
        Recommender("fm", **FM).fit(untimed)


def test_kept_repeats_can_be_recommended_to_those_who_had_them() -> None:
    data = history_data(repeats="keep")
    recommender = Recommender("fm", **FM).fit(data)
    assert not recommender.fitted.histories.is_had.any()
    assert recommender.recommend(["u02"], n=N_ITEMS, seen=True).height == N_ITEMS
