from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from gmlfm import Dataset
from gmlfm.data.attributes import AttributeTable
from gmlfm.data.growing import GrownData, grown_data
from gmlfm.errors import DataError, OptionError
from gmlfm.fitting import FittedRun, fit
from gmlfm.fitting import update as module
from gmlfm.fitting.forgetting import without_user
from gmlfm.fitting.update import UpdateOptions, UpdateReport, update
from gmlfm.training.settings import Settings
from gmlfm.training.trainer import DivergedError

N_ITEMS = 40
SCHEMA: dict[str, Any] = {
    "interactions": {"user": "user", "item": "item", "time": "time"},
    "items": {"id": "item", "fields": {"colour": "category"}},
}
QUICK: dict[str, Any] = {"k": 4, "epochs": 3, "threads": 1, "v_scale": 0.3}
HISTORY: dict[str, Any] = {**QUICK, "history": "last,recent,past"}
Row = tuple[str, str, int]


def chosen_by(users: range, start: int, n: int) -> list[Row]:
    """n different items of each user, of one parity."""
    rng = np.random.default_rng([start, len(users)])
    return [
        (f"u{user}", f"i{2 * item + user % 2}", start + place)
        for user in users
        for place, item in enumerate(rng.permutation(N_ITEMS // 2)[:n].tolist())
    ]


def data_of(rows: list[Row], n_items: int = N_ITEMS, **spec: Any) -> Dataset:
    items = pl.DataFrame(
        {"item": [f"i{n}" for n in range(n_items)], "colour": [("red", "blue")[n % 2] for n in range(n_items)]}
    )
    items = items.with_columns(pl.when(pl.col("item") == "i40").then(pl.lit("green")).otherwise("colour").alias("colour"))
    schema = {**SCHEMA, "interactions": {**SCHEMA["interactions"], **spec}}
    return Dataset.from_tables(pl.DataFrame(rows, schema=["user", "item", "time"], orient="row"), items=items, schema=schema)


OLD = chosen_by(range(30), 0, 7)
NEW = [("u1", "i40", 100), ("u30", "i41", 101), ("u30", "i0", 102), ("u2", "i40", 103)]


def run_of(model: str = "fm", task: str = "topn", data: Dataset | None = None, **settings: Any) -> FittedRun:
    options = settings or HISTORY
    return fit(data_of(OLD) if data is None else data, Settings.make(model, task, options))


def grown_by(run: FittedRun, rows: list[Row], n_items: int = N_ITEMS + 2, **spec: Any) -> GrownData:
    return grown_data(run.data, data_of(rows, n_items, **spec))


@pytest.fixture(scope="module")
def reads_history() -> FittedRun:
    return run_of()


class Shown:
    """What was shown in training, by stage: targets and, of rows with a history, its items."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stages: list[dict[tuple[int, int], list[int]]] = []
        self.lrs: list[float] = []
        made = module.RowTrainer

        def recorded(model: Any, n_rows: int, options: Any, batches: Any, *rest: Any) -> Any:
            pairs = {}
            for number, batch in enumerate(self._batches(batches)):
                for row, target in enumerate(batch.targets):
                    events = batch.events[batch.row_first[row] : batch.row_stop[row]]
                    pairs[number, row] = [int(target), *events.tolist()]
            self.stages.append(pairs)
            self.lrs.append(options.lr)
            return made(model, n_rows, options, batches, *rest)

        monkeypatch.setattr(module, "RowTrainer", recorded)

    @staticmethod
    def _batches(batches: Any) -> Iterator[Any]:
        yield from batches.epoch(0)

    def rows(self, stage: int) -> list[list[int]]:
        """Target, then what stands before it."""
        return sorted(self.stages[stage].values())


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("fm", HISTORY),
        ("nfm", {**QUICK, "history": "last,past"}),
        ("gml-fm", {**QUICK, "history": "none"}),
        ("deepfm", {**QUICK, "history": "none"}),
        ("transfm", {**QUICK, "history": "none"}),
        ("mf", QUICK),
        ("ncf", {**QUICK, "pretrain": 1}),
    ],
)
def test_a_run_that_has_only_grown_scores_as_before(model: str, settings: dict[str, Any]) -> None:
    run = run_of(model, **settings)
    later, report = update(run, grown_by(run, NEW), UpdateOptions(epochs=0))
    users = run.encoder.user_numbers([f"u{n}" for n in range(3, 30)]).astype(np.int32)  # without a new row
    items = np.arange(N_ITEMS, dtype=np.int32)
    assert np.allclose(later.ranker.score_all(users, items), run.ranker.score_all(users, items), atol=1e-6)
    assert (report.n_rows, report.n_users, report.n_items, report.n_steps) == (4, 1, 2, 0)
    assert run.model.state_dict()["table"].shape == (run.encoder.n_rows, run.model.state_dict()["table"].shape[1])


def test_a_new_item_begins_where_unknown_items_stand(reads_history: FittedRun) -> None:
    later, _ = update(reads_history, grown_by(reads_history, NEW), UpdateOptions(epochs=0))
    encoded = later.encoded.item
    ids = np.array(encoded.ids)
    assert ids[41, 0] != later.encoder.part("item")[0].unknown_row
    ids[41, 0] = later.encoder.part("item")[0].unknown_row
    without_id = later.model.over(replace(later.inputs.items, attributes=AttributeTable(ids, encoded.values)))
    users, items = later.ranker.user_side(np.array([5, 6])), np.array([41], np.int32)
    assert later.model.score_all(users, items) == pytest.approx(without_id.score_all(users, items), abs=1e-6)


def test_ids_and_values_get_rows_and_learn(reads_history: FittedRun) -> None:
    later, report = update(reads_history, grown_by(reads_history, NEW), UpdateOptions(lr=0.05, held_out=0.0))
    texts = [values.to_list() for values in later.encoder.values]
    assert {"i40", "i41"} <= set(texts[1])
    assert "green" in texts[2]
    assert report.n_values == 3 * 4  # two ids and a colour, as items and in three roles
    new = later.encoder.encode_part("item", pl.Series(["i40"]), pl.DataFrame({"colour": ["green"]}), 1).ids[0]
    table = later.model.state_dict()["table"]
    unknown = [field.unknown_row for field in later.encoder.part("item")]
    assert not torch.isclose(table[new.tolist()], table[unknown]).all(-1).any()


def test_steps_are_in_proportion_to_what_is_new() -> None:
    big = data_of(chosen_by(range(300), 0, 12))
    shown = {}
    for name, data in (("small", data_of(OLD)), ("large", big)):
        run = run_of(data=data, **{**HISTORY, "batch_size": 8})
        for n in (10, 40):
            new = [(f"u{user}", f"i{40 + user % 2}", 200 + user) for user in range(n // 2)]
            new += [(f"new{user}", f"i{user}", 300 + user) for user in range(n // 2)]
            _, shown[name, n] = update(run, grown_by(run, new), UpdateOptions(epochs=2, held_out=0.0))
    assert [(report.n_instances, report.n_replayed) for report in shown.values()] == [(40, 10), (160, 40)] * 2
    assert shown["small", 10].n_steps == shown["large", 10].n_steps
    assert shown["large", 40].n_steps == pytest.approx(4 * shown["large", 10].n_steps, rel=0.2)


def test_targets_are_new_rows_with_all_before_them_that_training_may_see(
    reads_history: FittedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, shown = reads_history, Shown(monkeypatch)
    later, _ = update(run, grown_by(run, NEW), UpdateOptions(replay=0.0, held_out=0.0))
    rows = shown.rows(0)
    items = run.encoder.item_numbers([item for _, item, _ in NEW]).tolist()
    assert items[0] == -1
    numbers = {item: int(later.encoder.item_numbers([item])[0]) for _, item, _ in NEW}
    assert sorted(row[0] for row in rows) == sorted(numbers[item] for _, item, _ in NEW)
    trained = run.split.train
    for user, target in (("u1", "i40"), ("u2", "i40")):
        number = run.encoder.user_numbers([user])[0]
        before = run.data.item_numbers[trained[run.data.user_numbers[trained] == number]].tolist()
        assert [numbers[target], *before] in rows
    assert [numbers["i0"], numbers["i41"]] in rows  # an earlier new row is history too


def test_what_the_run_held_out_stays_held_out_and_unseen(reads_history: FittedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    run, shown = reads_history, Shown(monkeypatch)
    later, _ = update(run, grown_by(run, NEW), UpdateOptions(replay=1e6, held_out=0.0))
    assert (later.split.test == run.split.test).all()
    assert (later.split.validation == run.split.validation).all()
    held = {
        (int(run.data.user_numbers[row]), int(run.data.item_numbers[row])) for row in (*run.split.test, *run.split.validation)
    }
    assert len(shown.rows(0)) == len(run.split.train) + 4
    u1 = int(run.encoder.user_numbers(["u1"])[0])
    i40 = int(later.encoder.item_numbers(["i40"])[0])
    seen = next(row[1:] for row in shown.rows(0) if row[0] == i40 and (u1, row[1]) not in held and len(row) == 6)
    assert all((u1, item) not in held for item in seen)


@pytest.mark.parametrize("refit", [True, "all"])
def test_a_refitted_run_goes_on_with_what_it_had_learned(refit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run = fit(data_of(OLD), Settings.make("fm", "topn", HISTORY), refit=refit)
    shown = Shown(monkeypatch)
    later, _ = update(run, grown_by(run, NEW), UpdateOptions(replay=1e6, held_out=0.0))
    assert len(shown.rows(0)) == len(run.learned_rows) + 4
    assert later.refit is run.refit


def test_held_out_rows_are_measured_and_then_learned(reads_history: FittedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    run, shown = reads_history, Shown(monkeypatch)
    new = [(f"u{user}", f"i{40 + place}", 100 + 10 * user + place) for user in range(20) for place in range(2)]
    measured: list[list[int]] = []
    whole = module._Update._measured

    def noted(self: Any, rows: Any, protocol: str) -> dict[str, float]:
        measured.append(rows.tolist())
        return whole(self, rows, protocol)

    monkeypatch.setattr(module._Update, "_measured", noted)
    later, report = update(run, grown_by(run, new), UpdateOptions(replay=0.0, held_out=0.5))
    assert report.n_held_out == 10
    assert measured[0] == measured[1]
    assert set(report.before) == set(report.after) == {"hr@10", "ndcg@10"}
    latest = {int(later.data.user_numbers[row]): row for row in later.data.order_in_time(np.arange(len(OLD), len(OLD) + 40))}
    assert set(measured[0]) <= set(latest.values())
    i41 = int(later.encoder.item_numbers(["i41"])[0])
    assert [len(shown.rows(stage)) for stage in (0, 1)] == [30, 10]
    assert {row[0] for row in shown.rows(1)} == {i41}
    assert sum(row[0] == i41 for row in shown.rows(0)) == 10
    assert np.isin(measured[0], later.split.train).all()


def test_the_learning_rate_is_a_tenth_unless_it_is_given(reads_history: FittedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    shown, grown = Shown(monkeypatch), grown_by(reads_history, NEW)
    _, report = update(reads_history, grown, UpdateOptions(held_out=0.0))
    _, other = update(reads_history, grown, UpdateOptions(held_out=0.0, lr=0.5))
    assert shown.lrs == [report.lr, other.lr] == [pytest.approx(0.1 * reads_history.settings.training.lr), 0.5]


def test_an_update_is_held_to_all_that_was_learned_not_to_its_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    run, trainers, made = run_of(**{**HISTORY, "batch_size": 1}), [], module.RowTrainer
    monkeypatch.setattr(module, "RowTrainer", lambda *given: trainers.append(made(*given)) or trainers[-1])  # type: ignore[func-returns-value]
    later, _ = update(run, grown_by(run, NEW), UpdateOptions(held_out=0.0))
    (trainer,) = trainers
    n_learned = len(later.split.train)
    assert trainer.batches.n_learned == n_learned > 100 > trainer.batches.n_instances
    assert trainer.rows.weight_decay == pytest.approx(72 / n_learned)
    users = trainer.batches.draw_users(1000, np.random.default_rng(0))
    assert users.numbers.tolist() == list(range(31))  # by whom the level of unknown items is found
    assert users.history is not None
    assert users.history.of_user(30).tolist() == later.encoder.item_numbers(["i41", "i0"]).tolist()


def test_an_update_keeps_what_was_learned_of_earlier_items() -> None:
    run = run_of("gml-fm", **{**HISTORY, "lr": 1e-4})
    with torch.no_grad():
        run.model.metrics.fill_(0.1)
    before = run.model.metrics.norm().item()
    later, report = update(run, grown_by(run, NEW), UpdateOptions())
    assert report.n_steps == 3
    assert later.model.metrics.norm().item() == pytest.approx(before, rel=0.1)


def test_a_run_with_the_whole_catalogue_goes_on_where_items_turn_out_to_sell_once() -> None:
    run = fit(data_of(OLD), Settings.make("fm", "topn", HISTORY), split="global-time")
    assert run.settings.batches.n_negatives == -1
    new = [(f"u{n % 30}", f"i{40 + n}", 1000 + n) for n in range(450)]
    later, report = update(run, grown_by(run, new, 490), UpdateOptions(epochs=1, held_out=0.0))
    assert not run.data.sells_once
    assert later.data.sells_once
    assert report.n_rows == 450
    assert report.n_steps > 0


def test_the_same_update_gives_the_same_weights(reads_history: FittedRun) -> None:
    grown = grown_by(reads_history, NEW)
    first, second = (update(reads_history, grown, UpdateOptions())[0].model.state_dict() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_an_update_learns_what_is_new_and_keeps_what_was_known() -> None:
    """New items that users of one parity choose: afterwards they rank above the other parity's."""
    run = run_of(**{**HISTORY, "epochs": 20, "lr": 0.02, "history_dropout": 0.0})
    new = [(f"u{user}", f"i{40 + user % 2}", 100) for user in range(24)]
    later, _ = update(run, grown_by(run, new), UpdateOptions(lr=0.02, epochs=15, held_out=0.0))
    users = np.arange(30, dtype=np.int32)
    even, odd = (int(later.encoder.item_numbers([item])[0]) for item in ("i40", "i41"))
    is_even = np.array([int(user[1:]) % 2 == 0 for user in later.data.users.ids.to_list()])[:30]
    scores = later.ranker.score_all(users, np.array([even, odd], np.int32))
    assert ((scores[:, 0] > scores[:, 1]) == is_even).mean() > 0.9
    numbers = later.encoder.item_numbers([f"i{n}" for n in range(N_ITEMS)]).astype(np.int32)
    old = later.ranker.score_all(users, numbers)
    assert ((old[:, ::2].mean(1) > old[:, 1::2].mean(1)) == is_even).mean() > 0.9


def test_updates_follow_one_another(reads_history: FittedRun) -> None:
    first, _ = update(reads_history, grown_by(reads_history, NEW), UpdateOptions())
    second, report = update(first, grown_by(first, [*NEW, ("u31", "i41", 400), ("u30", "i3", 401)]), UpdateOptions())
    assert (report.n_rows, report.n_users, report.n_items) == (2, 1, 0)
    assert [noted["n_rows"] for noted in second.updates] == [4, 2]
    with pytest.raises(DataError, match="have no row that the run does not have"):
        update(second, grown_by(second, [*OLD, *NEW]), UpdateOptions())


def test_a_forgotten_user_stays_forgotten(reads_history: FittedRun) -> None:
    run = without_user(reads_history, "u1")
    later, _ = update(run, grown_by(run, NEW[1:]), UpdateOptions(held_out=0.0))
    assert "u1" not in later.encoder.user_ids
    users = later.encoder.user_numbers(["u5", "u7"]).astype(np.int32)
    grown_only, _ = update(run, grown_by(run, NEW[1:]), UpdateOptions(epochs=0))
    items, old_users = np.arange(20, dtype=np.int32), run.encoder.user_numbers(["u5", "u7"]).astype(np.int32)
    expected = run.ranker.score_all(old_users, items)
    assert np.allclose(grown_only.ranker.score_all(users, items), expected, atol=1e-6)


@pytest.mark.parametrize("model", ["ease", "item-knn", "popularity"])
def test_a_model_of_closed_form_is_fitted_again_on_all_rows(model: str) -> None:
    run = fit(data_of(OLD), Settings.make(model, "topn", {}))
    later, report = update(run, grown_by(run, NEW), UpdateOptions())
    assert report.is_refitted
    anew = Settings.make(model, "topn", {}).build()
    anew.fit(later.inputs, None)  # type: ignore[arg-type]
    for name, tensor in anew.state_dict().items():
        assert torch.equal(later.model.state_dict()[name], tensor)


def test_ratings_are_learned_within_wider_limits() -> None:
    def rated(rows: list[Row], stars: float) -> Dataset:
        table = pl.DataFrame(
            [(*row, stars + row[2] % 3) for row in rows], schema=["user", "item", "time", "stars"], orient="row"
        )
        schema = {"interactions": {**SCHEMA["interactions"], "label": "stars"}}
        return Dataset.from_tables(table, schema=schema)

    run = fit(rated(OLD, 1.0), Settings.make("fm", "rating", QUICK))
    later, report = update(run, grown_data(run.data, rated([(f"u{n}", "i90", 50) for n in range(20)], 5.0)), UpdateOptions())
    assert later.limits == (1.0, 7.0)
    assert later.label_scale == run.label_scale
    assert report.protocol == "labels"
    assert report.after["rmse"] < report.before["rmse"]


def test_rows_that_are_history_alone_are_kept_without_training(reads_history: FittedRun) -> None:
    again = [(user, item, 500) for user, item, _ in OLD[:3]]
    later, report = update(reads_history, grown_by(reads_history, again, N_ITEMS), UpdateOptions())
    assert (report.n_rows, report.n_history, report.n_steps) == (0, 3, 0)
    assert later.histories.complete(np.array([0])).lengths[0] == reads_history.histories.complete(np.array([0])).lengths[0] + 3


def test_what_diverges_changes_nothing(reads_history: FittedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    before = reads_history.model.state_dict()["table"].clone()
    with pytest.raises(DivergedError):
        update(reads_history, grown_by(reads_history, NEW), UpdateOptions(lr=1e30))
    assert torch.equal(reads_history.model.state_dict()["table"], before)


@pytest.mark.parametrize(
    ("model", "task", "settings", "message"),
    [
        ("ngcf", "topn", {"k": 4, "epochs": 1, "threads": 1}, "learns from a graph of all rows; train it anew"),
        ("mamo", "rating", {"k": 4, "epochs": 1}, "cannot be updated; train it anew on all data"),
        ("fm", "implicit", QUICK, "draws its instances anew"),
    ],
)
def test_runs_that_cannot_go_on_are_refused(model: str, task: str, settings: dict[str, Any], message: str) -> None:
    table = pl.DataFrame([(*row, 1.0 + row[2] % 5) for row in OLD], schema=["user", "item", "time", "stars"], orient="row")
    data = Dataset.from_tables(table, schema={"interactions": {**SCHEMA["interactions"], "label": "stars"}})
    run = fit(data, Settings.make(model, task, settings))
    more = Dataset.from_tables(
        pl.DataFrame([("u1", "i40", 90, 2.0)], schema=["user", "item", "time", "stars"], orient="row"),
        schema={"interactions": {**SCHEMA["interactions"], "label": "stars"}},
    )
    with pytest.raises(OptionError, match=message):
        update(run, grown_data(run.data, more), UpdateOptions())


def test_the_preset_knows_no_update() -> None:
    run = run_of(**{"k": 4, "epochs": 1, "threads": 1})
    run = replace(run, settings=replace(run.settings, preset="paper"))
    with pytest.raises(OptionError, match="preset 'paper'"):
        update(run, grown_by(run, NEW), UpdateOptions())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": -1}, "epochs is -1; expected a whole number of 0 to 100,000"),
        ({"lr": 0.0}, "lr is 0.0; expected a number above 0"),
        ({"replay": float("nan")}, "replay is nan; expected a number of 0 to"),
        ({"held_out": 0.7}, "held_out is 0.7; expected a number of 0 to 0.5"),
        ({"held_out": True}, "held_out is True"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        UpdateOptions(**options)


def test_a_report_can_be_written() -> None:
    assert UpdateReport(1, 0, 0, 0, 0).to_dict()["n_rows"] == 1
