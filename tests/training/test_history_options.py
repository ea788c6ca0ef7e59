"""What is said of histories in settings: accepted, refused in a sentence, and what `auto` comes to."""

from __future__ import annotations

from typing import Any

import pytest

from gmlfm.errors import OptionError
from gmlfm.models.fm import FM
from gmlfm.models.registry import MODELS
from gmlfm.training.history_options import HistoryOptions
from gmlfm.training.sampling.batches import ALL_NEGATIVES
from gmlfm.training.settings import Settings, settings_table


def made(name: str = "fm", task: str = "topn", **given: Any) -> Settings:
    return Settings.make(name, task, given)


def resolved(
    name: str = "fm", task: str = "topn", n: int = 1_000, ordered: bool = True, changes: bool = False, **given: Any
) -> Settings:
    return made(name, task, **given).for_data(is_ordered=ordered, n_candidates=n, changes_with_time=changes)


@pytest.mark.parametrize(
    ("given", "roles"),
    [
        ("past, last", ("last", "past")),
        ("recent", ("recent",)),
        (["last", "recent"], ("last", "recent")),
        (("past",), ("past",)),
        ("none", ()),
        ([], ()),
        ("auto", ()),
    ],
)
def test_roles_are_a_list_in_any_order(given: Any, roles: tuple[str, ...]) -> None:
    assert made(history=given).history.roles == roles


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"history": "lately"}, "history is 'lately'; expected auto, none, or some of last,recent,past."),
        ({"history": "last,last"}, "expected auto, none, or some of"),
        ({"history": ""}, "expected auto, none, or some of"),
        ({"history": ["last", 3]}, "expected auto, none, or some of"),
        ({"half_life": 0}, "half_life is 0"),
        ({"half_life": -2}, "half_life is -2"),
        ({"half_life": 1e308}, "expected above 0, at most 1,000,000."),
        ({"half_life": "nan"}, "half_life is nan"),
        ({"history_length": 0}, "history_length is 0; expected 1 to 1,000,000."),
        ({"history_dropout": 1}, "history_dropout is 1"),
        ({"piece": 0}, "piece is 0"),
    ],
)
def test_what_is_no_history_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message.replace(".", r"\.")):
        made(**given)


def test_auto_is_all_roles_for_topn_with_times_alone() -> None:
    assert resolved(history="auto").history.roles == ("last", "recent", "past")
    assert resolved(history="auto", ordered=False).history.history == "none"
    assert resolved(task="implicit", history="auto").history.history == "none"
    assert resolved(task="rating", history="auto").history.history == "none"
    assert (
        Settings.make("fm", "topn", {"history": "auto"}, "paper").for_data(is_ordered=True, n_candidates=9).history.roles == ()
    )
    assert resolved(task="rating", history="last").history.roles == ("last",)


def test_without_an_order_an_explicit_history_is_refused() -> None:
    with pytest.raises(OptionError, match=r"history is 'last', but the data have no times .* ties = \"file\""):
        resolved(history="last", ordered=False)


def test_a_history_changes_what_is_usual_but_not_what_is_given() -> None:
    usual = resolved(history="last")
    assert (usual.training.loss, usual.training.schedule, usual.history.user_id) == ("softmax", "cosine", False)
    given = resolved(history="last", loss="bpr", lr=0.5, user_id=True, n_negatives=3)
    assert (given.training.loss, given.training.lr, given.history.user_id, given.batches.n_negatives) == ("bpr", 0.5, True, 3)
    automatic = resolved(history="auto", lr=0.5)
    assert (automatic.training.lr, automatic.training.loss) == (0.5, "softmax")
    assert resolved(history="none").training == made().training
    assert resolved(task="rating", history="last").training.loss == "squared"


def test_negatives_are_all_items_or_many_or_those_of_a_row() -> None:
    assert resolved(history="last", n=4_096).batches.n_negatives == ALL_NEGATIVES
    assert resolved(history="last", n=4_097).batches.n_negatives == 512
    assert resolved(history="last", n=100_000, n_negatives="all").batches.n_negatives == ALL_NEGATIVES
    assert resolved("nfm", history="last").batches.n_negatives == 64
    assert resolved("nfm", history="last", n=20).batches.n_negatives == 20
    assert resolved(history="last", changes=True).batches.n_negatives == 64
    assert resolved(history="last", changes=True, n_negatives=200).batches.n_negatives == 200
    assert resolved("sasrec").batches.n_negatives == ALL_NEGATIVES
    assert resolved("sasrec", changes=True).batches.n_negatives == 64
    assert resolved(history="last", loss="squared").batches.n_negatives == made(loss="squared").batches.n_negatives


@pytest.mark.parametrize(
    "given",
    [
        {"history": "last", "loss": "bpr"},
        {"history": "last", "changes": True},
        {"history": "auto", "ordered": False},
        {"name": "nfm", "history": "last"},
        {"name": "sasrec", "changes": True},
    ],
)
def test_all_negatives_are_refused_where_rows_cannot_share_them(given: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="negatives = all"):
        resolved(**given, n_negatives="all")


def test_settings_of_a_run_make_the_same_settings() -> None:
    once = resolved(history="auto", half_life=3)
    saved = once.to_dict()["settings"]
    again = Settings.make("fm", "topn", saved).for_data(is_ordered=True, n_candidates=1_000)
    assert again == once


def test_the_defaults_read_no_history_by_themselves() -> None:
    assert HistoryOptions().roles == ()
    assert HistoryOptions(history="auto").roles == ()


def test_fm_and_gml_fm_read_a_history_by_default_and_no_other_model_does() -> None:
    by_default = {name for name in MODELS if made(name, MODELS[name].tasks[0]).history.history == "auto"}
    assert by_default == {"fm", "gml-fm"}
    assert Settings.make(FM, "topn", {}).history.history == Settings.make(FM(k=3), "topn", {}).history.history == "auto"
    on = resolved()
    assert on == resolved(history="last,recent,past")
    assert (on.training.loss, on.training.lr, on.training.schedule, on.training.epochs) == ("softmax", 5e-3, "cosine", 20)
    assert (on.option("v_scale"), made().option("v_scale"), on.batches.n_negatives) == (0.05, 0.01, ALL_NEGATIVES)


@pytest.mark.parametrize(
    ("task", "preset", "ordered"),
    [
        ("topn", None, False),
        ("rating", None, True),
        ("implicit", None, True),
        ("topn", "paper", True),
        ("rating", "paper", True),
    ],
)
@pytest.mark.parametrize("given", [{}, {"lr": 0.02, "k": 3}])
def test_where_auto_is_none_all_is_as_without(task: str, preset: str | None, ordered: bool, given: dict[str, Any]) -> None:
    settings = Settings.make("fm", task, given, preset).for_data(is_ordered=ordered, n_candidates=50)
    assert settings == Settings.make("fm", task, {**given, "history": "none"}, preset)
    assert (settings.history.user_id, settings.has_user_ids) == (None, True)


def test_what_is_given_stands_where_auto_is_on() -> None:
    given = {"lr": 0.5, "epochs": 3, "v_scale": 0.2, "schedule": "constant", "batch_size": 70, "seed": 4}
    settings = resolved(**given)
    written = settings.to_dict()["settings"]
    assert {name: written[name] for name in given if name != "seed"} == {k: v for k, v in given.items() if k != "seed"}
    assert (settings.training.seed, settings.training.loss) == (4, "softmax")
    assert resolved(loss="bpr", n_negatives=3).training.loss == "bpr"


def test_a_table_of_settings_says_what_a_history_changes() -> None:
    rows = {row["name"]: row for row in settings_table("fm")}
    assert rows["history"]["default"] == "auto"
    assert rows["loss"]["meaning"].endswith("; with a history softmax")
    assert rows["v_scale"]["meaning"].endswith("; with a history 0.05")
    assert "with a history" not in rows["history"]["meaning"] + rows["k"]["meaning"] + rows["half_life"]["meaning"]
    assert not any("with a history softmax" in row["meaning"] for row in settings_table("ncf"))
