"""The two kinds of input by which methods are compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from gmlfm import Dataset, Recommender
from gmlfm.errors import OptionError
from gmlfm.models.closed_form import HistoryModel
from gmlfm.models.registry import MODELS, model_info
from gmlfm.training.settings import Settings
from gmlfm.tuning import Budget, Plan, compare
from gmlfm.tuning.inputs import Reading, check_order, is_mixed, reading_line, way_to_read, what_is_read, with_inputs
from gmlfm.tuning.search import Search
from gmlfm.tuning.study import Study
from gmlfm.tuning.table import legend, markdown, title

ROLES = "last,recent,past"
TOPN = [name for name, info in MODELS.items() if "topn" in info.tasks]


class AlwaysReads(HistoryModel):
    """Has no setting by which it would leave histories."""

    def __init__(self) -> None:
        super().__init__()

    def learn(self, history: Any) -> None:
        pass

    def score_histories(self, histories: Any, items: Any) -> Any:
        return np.asarray(histories[:, items].toarray(), np.float32)


def dated(time: str | None = "t") -> Dataset:
    rng = np.random.default_rng(0)
    pairs = np.sort(rng.permutation(40 * 30)[:480])
    table = pl.DataFrame({"u": pairs // 30, "i": pairs % 30, "t": rng.integers(0, 200, 480)})
    interactions = {"user": "u", "item": "i"} | ({"time": time} if time else {})
    return Dataset.from_tables(table if time else table.drop("t"), schema={"interactions": interactions})


@pytest.fixture(scope="module")
def data() -> Dataset:
    return dated()


def fixed(inputs: str | None, *models: str, **given: Any) -> dict[str, dict[str, Any]]:
    return with_inputs(inputs, {model: dict(given) for model in models})


def test_without_inputs_nothing_is_fixed() -> None:
    assert fixed(None, "fm", "ncf", "sasrec", k=8) == {key: {"k": 8} for key in ("fm", "ncf", "sasrec")}


def test_the_papers_inputs_are_who_and_what_alone() -> None:
    assert fixed("paper", "fm", "nfm", "mf", "gml-fm") == {key: {"history": "none"} for key in ("fm", "nfm", "mf", "gml-fm")}
    assert fixed("paper", "ease", l2=3.0) == {"ease": {"half_life": 0.0, "l2": 3.0, "user_rows": "training"}}
    assert fixed("paper", "ncf", "ngcf", "popularity") == {"ncf": {}, "ngcf": {}, "popularity": {}}
    with pytest.raises(OptionError) as refused:
        fixed("paper", "fm", "sasrec")
    assert str(refused.value) == (
        "inputs is 'paper', which has no place for sasrec (sequences of earlier rows are all that is read); leave it out."
    )
    with pytest.raises(OptionError, match=r"AlwaysReads \(earlier rows are always read\); leave it out"):
        fixed("paper", f"{__name__}:AlwaysReads")


def test_with_histories_whoever_cannot_read_them_is_refused_by_name_in_one_sentence() -> None:
    with_roles = ("fm", "nfm", "mf", "gml-fm", "gml-fm-unit", "gml-fm-md", "afm", "transfm", "deepfm", "xdeepfm")
    assert fixed("history", *with_roles) == {key: {"history": ROLES} for key in with_roles}
    assert fixed("history", "ease", "item-knn") == {key: {"user_rows": "before"} for key in ("ease", "item-knn")}
    own = f"{__name__}:AlwaysReads"
    assert fixed("history", "sasrec", "popularity", own) == {"sasrec": {}, "popularity": {}, own: {}}
    with pytest.raises(OptionError) as refused:
        fixed("history", "fm", "ncf", "bpr-mf", "ngcf", "pmf")
    assert str(refused.value) == (
        "inputs is 'history', which has no place for ncf and ngcf (what users did before cannot be read), bpr-mf and pmf (the "
        "loss belongs to the name, and histories are learned by a softmax; take mf); leave them out."
    )
    with pytest.raises(OptionError, match=r"gml-fm-unit \(these settings leave no inner product of two sides, by which"):
        fixed("history", "gml-fm-unit", distance="manhattan")


@pytest.mark.parametrize("model", TOPN)
def test_every_model_is_of_one_kind_or_both(model: str) -> None:
    kinds = []
    for inputs in ("paper", "history"):
        try:
            fixed(inputs, model)
            kinds.append(inputs)
        except OptionError:
            pass
    only_one = {"sasrec": ["history"], "ncf": ["paper"], "ngcf": ["paper"], "bpr-mf": ["paper"], "pmf": ["paper"]}
    assert kinds == only_one.get(model, ["paper", "history"])


@pytest.mark.parametrize("model", TOPN)
def test_what_is_read_is_what_the_inputs_say(model: str, data: Dataset) -> None:
    for inputs in ("paper", "history"):
        try:
            settings = fixed(inputs, model)[model]
        except OptionError:
            continue
        reading = what_is_read(Settings.make(model, "topn", settings), data)
        assert reading.of_history is (None if model == "popularity" else inputs == "history")
        if model not in ("popularity", "ncf", "ngcf"):  # and what a fitted model does
            quick = {name: 1 for name in ("epochs", "k", "heads") if name in _names(model)}
            run = Recommender(model, **{**settings, **quick, "threads": 1}).fit(data).fitted
            assert run.model.reads_history is (inputs == "history")


def _names(model: str) -> set[str]:
    info = model_info(model)
    return {*info.declared, *(("epochs",) if info.cls.learns_in_epochs else ())}


def test_a_setting_that_contradicts_the_inputs_is_refused() -> None:
    for inputs, model, name, value in (
        ("paper", "fm", "history", "last"),
        ("paper", "fm", "history", "auto"),
        ("history", "fm", "history", "none"),
        ("history", "fm", "history", "auto"),
        ("paper", "ease", "half_life", 5.0),
        ("paper", "ease", "user_rows", "before"),
        ("history", "item-knn", "user_rows", "training"),
    ):
        message = f"{name} is {value} for {model}, but inputs is '{inputs}'; leave {name} or inputs out"
        with pytest.raises(OptionError, match=message):
            fixed(inputs, model, **{name: value})
    assert fixed("history", "fm", history="recent") == {"fm": {"history": "recent"}}
    assert fixed("history", "ease", half_life=5.0) == {"ease": {"half_life": 5.0, "user_rows": "before"}}
    assert fixed("paper", "fm", history="none") == {"fm": {"history": "none"}}  # as a folder's stamp has it


def test_histories_are_for_rankings_of_data_in_order() -> None:
    with pytest.raises(OptionError, match="inputs is 'pape'; did you mean 'paper'"):
        fixed("pape", "fm")
    with pytest.raises(OptionError, match="the preset 'paper' trains as published and reads no histories; give inputs = paper"):
        with_inputs("history", {"fm": {}}, "topn", "paper")
    with pytest.raises(OptionError, match="the task 'rating' has no order of rows and reads no histories"):
        with_inputs("history", {"fm": {}}, "rating")
    with pytest.raises(OptionError, match="inputs is 'history', but the data have no times that differ"):
        check_order("history", dated(None))
    check_order("paper", dated(None))
    check_order("history", dated())


def test_the_words_for_what_is_read(data: Dataset) -> None:
    for model, settings, words, of_history in (
        ("fm", {"history": "none"}, "who and what", False),
        ("fm", {"history": "recent,last"}, "earlier rows as last, recent", True),
        ("fm", {"history": "auto"}, "earlier rows as last, recent, past", True),
        ("ncf", {}, "who and what", False),
        ("sasrec", {}, "earlier rows in their order", True),
        ("ease", {}, "earlier rows as a set", True),
        ("ease", {"half_life": 4}, "earlier rows by recency", True),
        ("ease", {"user_rows": "training"}, "who and what, a user's training rows as a set", False),
        ("popularity", {}, "nothing of a user", None),
        (f"{__name__}:AlwaysReads", {}, "earlier rows as a set", True),
    ):
        assert what_is_read(Settings.make(model, "topn", settings), data) == (words, of_history)
    unordered = what_is_read(Settings.make("fm", "topn", {"history": "auto"}), dated(None))
    assert unordered == ("who and what", False)
    who, rows, floor = Reading("a", False), Reading("b", True), Reading("c", None)
    assert [is_mixed(some) for some in ([who, floor], [rows, floor], [who, rows], [])] == [False, False, True, False]
    assert reading_line({"fm": who, "ease": rows, "mf": who}) == "Read of a user: fm, mf: a; ease: b."
    assert way_to_read(model_info("mamo")) == "nothing"


def test_what_is_searched_follows_what_is_read(data: Dataset) -> None:
    def space(model: str, inputs: str | None, table: Dataset = data) -> dict[str, Any]:
        return Search(table, model, Path("f"), settings=with_inputs(inputs, {model: {}})[model]).space

    assert set(space("ease", "paper")) == {"l2"}
    assert set(space("ease", "history")) == set(space("ease", None)) == {"l2", "half_life"}
    assert set(space("ease", None, dated(None))) == {"l2"}  # nothing is more recent
    assert {"loss", "n_negatives"} <= set(space("fm", "paper"))
    with_history = space("fm", "history")
    assert {"half_life", "history_dropout", "epochs"} <= set(with_history)
    assert not {"loss", "n_negatives"} & set(with_history)
    assert with_history["v_scale"].values == (0.01, 0.05, 0.1)  # the default among them
    assert with_history["epochs"].values == (10, 20, 40)


def test_the_first_trial_is_the_default_of_a_model_with_a_history(data: Dataset, tmp_path: Path) -> None:
    search = Search(data, "fm", tmp_path, settings={"history": ROLES}, threads=1)
    first = Study(search)._propose()[1]
    assert set(first) == set(search.space)
    assert (first["lr"], first["epochs"], first["v_scale"], first["half_life"]) == (5e-3, 20, 0.05, 5.5)
    tried, plain = search.recommender(first).settings, Recommender("fm", history=ROLES, seed=0, threads=1).settings
    assert replace(tried.training, seed=0) == plain.training
    assert (tried.batches, tried.history) == (plain.batches, plain.history)


QUICK = {"fm.k": "2", "fm.epochs": "1", "mf.k": "2", "mf.epochs": "1"}


def test_a_comparison_says_what_was_read_and_keeps_the_two_kinds_apart(data: Dataset, tmp_path: Path) -> None:
    plan = Plan(("fm", "ease", "popularity"), seeds=1, settings={"fm.k": "2", "fm.epochs": "1"}, inputs="paper")
    out, notes = tmp_path / "paper", []
    comparison = compare(data, plan, Budget(trials=1), out, threads=1, note=notes.append)
    assert (comparison.inputs, notes) == ("paper", [])
    reads = {row.model: row.reads for row in comparison.rows}
    assert reads == {
        "fm": "who and what",
        "ease": "who and what, a user's training rows as a set",
        "popularity": "nothing of a user",
    }
    assert "; inputs paper; 1 trial" in title(comparison)
    assert "fm: who and what; " in legend(comparison) or "; fm: who and what" in legend(comparison)
    assert "NOT ALIKE" not in markdown(comparison)
    assert '"inputs": "paper"' in (out / "plan.json").read_text()
    assert compare(data, plan, Budget(trials=1), out, threads=1) == comparison  # nothing is left to do
    for inputs in ("history", None):
        other = replace(plan, inputs=inputs)
        with pytest.raises(
            OptionError, match=rf"another comparison \(inputs: paper there, {inputs} here\); choose a new folder"
        ):
            compare(data, other, Budget(trials=1), out, threads=1)


def test_with_histories_all_read_them(data: Dataset, tmp_path: Path) -> None:
    plan = Plan(("fm", "ease", "popularity"), seeds=1, settings={"fm.k": "2", "fm.epochs": "1"}, inputs="history")
    comparison = compare(data, plan, Budget(trials=2), tmp_path, threads=1)
    assert {row.model: row.reads_history for row in comparison.rows} == {"fm": True, "ease": True, "popularity": None}
    assert not comparison.failures
    with pytest.raises(OptionError, match="inputs is 'history', but the data have no times"):
        compare(dated(None), plan, Budget(trials=1), tmp_path / "unordered")
    assert not (tmp_path / "unordered").exists()


def test_a_table_in_which_some_read_histories_and_others_do_not_says_so(data: Dataset, tmp_path: Path) -> None:
    notes: list[str] = []
    plan = Plan(("mf", "ease"), seeds=1, settings={"k": "2", "epochs": "1", "history": "none"})
    comparison = compare(data, plan, Budget(trials=1), tmp_path, threads=1, note=notes.append)
    expected = "NOT ALIKE: ease read what users did before and the others do not; --inputs keeps the two apart."
    assert notes == [expected]
    assert expected in markdown(comparison)
    assert "inputs" not in title(comparison)


def test_a_folder_from_before_there_were_inputs_goes_on_without_any(data: Dataset, tmp_path: Path) -> None:
    plan = Plan(("popularity", "item-knn"), seeds=1)
    comparison = compare(data, plan, Budget(trials=1), tmp_path)
    path = tmp_path / "plan.json"
    old = path.read_text().replace('"inputs": null', '"seed": 0').replace('"split_options": {},', '"split_options": {},')
    path.write_text(old)
    assert '"inputs"' not in path.read_text()
    assert compare(data, plan, Budget(trials=1), tmp_path) == comparison
