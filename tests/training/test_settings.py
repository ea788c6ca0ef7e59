"""All settings of a run: read by name, checked in one place, listed in one table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest
import torch
from torch import Tensor

import gmlfm
from gmlfm.cli import main
from gmlfm.errors import OptionError
from gmlfm.models.base import TASKS
from gmlfm.models.fm import FM
from gmlfm.models.registry import MODELS, model_info
from gmlfm.models.settings import Choice, Setting
from gmlfm.training.settings import PRESETS, Settings, applicable, search_space, settings_table


class FMWithLoss(FM):
    """An FM with a loss and a setting of its own."""

    losses: ClassVar[dict[str, Any]] = {"absolute": lambda scores, labels, weights: (scores - labels).abs().mean()}

    def __init__(self, k: int = 4, margin: Annotated[float, Setting("of the loss", least=0, search=Choice((0.1, 1.0)))] = 0.1):
        super().__init__(k)
        self.margin = margin


@pytest.mark.parametrize("name", MODELS)
def test_every_setting_has_a_meaning_a_kind_a_range_and_a_default(name: str) -> None:
    for task in MODELS[name].tasks:
        rows = settings_table(name, task)
        assert len({row["name"] for row in rows}) == len(rows)
        for row in rows:
            shown = f"{row['name']} of {name}"
            assert len(row["meaning"]) > 5, f"{shown} has no meaning"
            assert "\n" not in row["meaning"], f"{shown}: the meaning is one line"
            assert row["kind"] in ("int", "float", "bool", "str"), f"{shown} has no kind"
            assert row["range"], f"{shown} has neither a range nor choices"
            assert row["default"] not in (None, ""), f"{shown} has no default"
            assert row["of"] in ("model", "training", "batches", "history")
        # The defaults of the table are settings themselves, and no setting is missing from it.
        settings = Settings.make(name, task, {row["name"]: row["default"] for row in rows})
        assert settings.to_dict()["settings"].keys() <= {row["name"] for row in rows}
        searched = set(search_space(MODELS[name], task))
        if task == "topn" and applicable(MODELS[name])["history"]:
            searched |= set(search_space(MODELS[name], task, with_history=True))
        assert {row["name"] for row in rows if row["searched"]} == searched


def test_the_settings_that_all_trained_models_share() -> None:
    rows = {row["name"]: row for row in settings_table()}
    shared = applicable(MODELS["fm"])
    assert rows.keys() == shared["training"].keys() | shared["batches"].keys() | shared["history"].keys()
    assert all(row["meaning"] and row["range"] for row in rows.values())
    assert (rows["batch_size"]["default"], rows["batch_size"]["range"]) == ("auto", "auto or 1 to 16,777,216")
    assert rows["engine"]["range"] == "auto, compiled, eager"


def test_the_table_shows_the_losses_of_the_task_and_of_the_model() -> None:
    def losses(model: Any, task: str) -> str:
        return next(row["range"] for row in settings_table(model, task) if row["name"] == "loss")

    assert losses("fm", "topn") == "squared, logistic, bpr, softmax"
    assert losses("fm", "implicit") == "squared, logistic"
    assert losses("fm", "rating") == "squared"
    assert losses(FMWithLoss, "rating") == "squared, absolute"
    rows = {row["name"]: row for row in settings_table(FMWithLoss)}
    assert (rows["margin"]["meaning"], rows["margin"]["range"], rows["margin"]["searched"]) == (
        "of the loss",
        "0 or more",
        True,
    )
    assert (rows["k"]["kind"], rows["k"]["default"]) == ("int", 4)


def test_a_task_that_a_model_cannot_do_is_shown_as_its_first() -> None:
    assert settings_table("mamo", "topn") == settings_table("mamo", "rating")


def test_settings_come_from_the_model_the_preset_and_the_caller_in_that_order() -> None:
    assert Settings.make("ngcf", "topn", {}).batches.largest_batch == 16384
    paper = Settings.make("gml-fm", "topn", {}, "paper")
    assert {name: paper.to_dict()["settings"][name] for name in PRESETS["paper"]} == PRESETS["paper"]
    assert Settings.make("ngcf", "topn", {}, "paper").batches.batch_size == 256
    assert Settings.make("ngcf", "topn", {"batch_size": "64"}, "paper").batches.batch_size == 64
    assert Settings.make("bpr-mf", "topn", {}).training.loss == "bpr"
    assert Settings.make("ngcf", "rating", {}).training.loss == "squared"  # a label has nothing to be compared with
    instance = Settings.make(FM(k=7), "topn", {"lr": 0.5})
    assert (instance.options, instance.training.lr) == ({"k": 7}, 0.5)
    assert Settings.make(FM(k=7), "topn", {"k": 9}).options == {"k": 9}


def test_as_published_is_the_preset_of_top_n() -> None:
    published = [
        (preset, task) for preset in (None, "paper") for task in TASKS if Settings.make("fm", task, {}, preset).as_published
    ]
    assert published == [("paper", "topn")]


def test_texts_are_read_as_the_kind_of_each_setting() -> None:
    settings = Settings.make("gml-fm", "topn", {"k": "8", "lr": "0.5", "fresh": "no", "batch_size": "auto", "threads": "auto"})
    assert settings.options["k"] == 8
    assert settings.training.lr == 0.5
    assert settings.batches.fresh is False
    assert settings.batches.batch_size is settings.training.threads is None


@pytest.mark.parametrize(
    ("model", "task", "old", "new"),
    [
        ("gml-fm", "topn", {"hide": 0.25}, {"cold_start_rate": 0.25}),
        ("gml-fm", "topn", {"engine": "reference"}, {"engine": "eager"}),
        ("mamo", "rating", {"tasks_a_batch": 7}, {"tasks_per_batch": 7}),
        ("gml-fm", "topn", {"negatives": 3}, {"n_negatives": 3}),
    ],
)
def test_old_names_are_still_read(model: str, task: str, old: dict[str, Any], new: dict[str, Any]) -> None:
    settings = Settings.make(model, task, old)
    assert settings == Settings.make(model, task, new)
    written = settings.to_dict()["settings"]
    assert {name: written[name] for name in new} == new
    assert not (old.keys() - new.keys()) & written.keys()


def test_old_names_of_a_config_file_are_still_read(small_market: Path, tmp_path: Path) -> None:
    (tmp_path / "old.toml").write_text('hide = 0.25\nengine = "reference"\nk = 2\nepochs = 1\n')
    run = tmp_path / "run"
    command = ["train", str(small_market), "--config", str(tmp_path / "old.toml"), "--threads", "1", "--out", str(run)]
    assert main(command) == 0
    written = json.loads((run / "run.json").read_text())["settings"]
    assert (written["cold_start_rate"], written["engine"]) == (0.25, "eager")
    assert "hide" not in written


def test_settings_that_have_no_effect_are_unknown() -> None:
    assert set(applicable(MODELS["ease"])["training"]) == {"seed", "threads"}
    assert set(applicable(MODELS["mamo"])["training"]) == {"seed", "threads", "epochs", "patience", "lr"}
    assert applicable(MODELS["mamo"])["batches"] == applicable(MODELS["ease"])["batches"] == {}
    for name, values in (("ease", {"lr": 99}), ("popularity", {"loss": "bpr"}), ("mamo", {"hide": 0.5})):
        with pytest.raises(OptionError, match="unknown setting"):
            Settings.make(name, "rating" if name == "mamo" else "topn", values)


@pytest.mark.parametrize(
    ("model", "task", "values", "message"),
    [
        ("gml-fm", "topn", {"lrr": 0.1}, "unknown setting 'lrr' for the model 'gml-fm'; did you mean 'lr'?"),
        ("gml-fm", "topn", {"hid": 0.1}, "unknown setting 'hid' for the model 'gml-fm'; did you mean 'hide'?"),
        ("gml-fm", "topn", {"k": 0}, "k is 0; expected 1 to 10,000."),
        ("gml-fm", "topn", {"cold_start_rate": 1.0}, "cold_start_rate is 1; expected 0 or more, below 1."),
        ("gml-fm", "topn", {"hide": -1}, "cold_start_rate is -1; expected 0 or more, below 1."),
        ("gml-fm", "topn", {"loss": "hinge"}, "loss is 'hinge'; known: squared, logistic, bpr, softmax."),
        ("gml-fm", "topn", {"optimiser": "adm"}, "optimiser is 'adm'; did you mean 'adam'?"),
        ("gml-fm", "topn", {"engine": "fast"}, "engine is 'fast'; expected auto, compiled, eager."),
        ("gml-fm", "top", {}, "task is 'top'; did you mean 'topn'?"),
        ("ease", "rating", {}, "the model 'ease' cannot do the task 'rating'; it does topn."),
        ("gml-fm", "topn", {"negatives": 0}, "set negatives to 1 or more."),
        ("gmlfm", "topn", {}, "model is 'gmlfm'; did you mean 'gml-fm'?"),
    ],
)
def test_wrong_settings_are_one_sentence(model: str, task: str, values: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        Settings.make(model, task, values)
    assert str(caught.value).endswith(message)


@pytest.mark.parametrize("name", ["popularity", "item-knn", "ease"])
def test_a_preset_of_training_does_not_concern_what_is_fitted_at_once(name: str) -> None:
    settings = Settings.make(name, "topn", {}, "paper")
    assert settings.as_published
    assert settings.to_dict()["settings"] == Settings.make(name, "topn", {}).to_dict()["settings"]
    with pytest.raises(OptionError, match=f"unknown setting 'batch_size' for the model '{name}'"):
        Settings.make(name, "topn", {"batch_size": 256}, "paper")


def test_a_preset_that_a_trained_model_cannot_follow_is_refused() -> None:
    message = "the preset 'paper' sets batch_size, which the model 'mamo' does not have"
    with pytest.raises(OptionError, match=message):
        Settings.make("mamo", "rating", {}, "paper")


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(OptionError, match="preset is 'papr'; did you mean 'paper'"):
        Settings.make("fm", "topn", {}, "papr")


@pytest.mark.usefixtures("loss_registry")
def test_losses_that_are_added_are_named_in_errors() -> None:
    @gmlfm.register_loss("hinge")
    def hinge(scores: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
        return (1 - scores * labels).clamp_min(0).mean()

    with pytest.raises(OptionError, match=r"loss is 'hing'; did you mean 'hinge'\?"):
        Settings.make("fm", "topn", {"loss": "hing"})
    with pytest.raises(OptionError, match="loss is 'xyz'; known: squared, logistic, bpr, softmax, hinge, absolute"):
        Settings.make(FMWithLoss, "topn", {"loss": "xyz"})
    with pytest.raises(OptionError, match="loss is 'absolute'; known: squared, logistic, bpr, softmax, hinge"):
        Settings.make("fm", "topn", {"loss": "absolute"})  # another model's own
    assert Settings.make(FMWithLoss, "topn", {"loss": "absolute"}).training.loss == "absolute"
    with pytest.raises(OptionError, match="a loss 'hinge' is registered already"):
        gmlfm.register_loss("hinge")(hinge)


@pytest.mark.usefixtures("loss_registry")
def test_an_added_loss_that_compares_groups_needs_the_task_topn() -> None:
    gmlfm.register_loss("ranks", compares_groups=True)(lambda scores, labels, weights: scores.mean())
    with pytest.raises(OptionError, match="the loss 'ranks' ranks a positive above negatives, which is the task topn"):
        Settings.make("fm", "rating", {"loss": "ranks"})
    assert Settings.make("fm", "topn", {"loss": "ranks"}).training.loss == "ranks"


def test_what_is_written_makes_the_same_settings() -> None:
    for name, task in (("gml-fm", "topn"), ("mamo", "rating"), ("ease", "topn"), (FMWithLoss, "implicit")):
        settings = Settings.make(name, task, {"seed": 3})
        written = settings.to_dict()
        assert Settings.make(model_info(name), written["task"], written["settings"]).to_dict() == written


def test_a_model_is_built_from_its_seed() -> None:
    models = [Settings.make("gml-fm", "topn", {"k": 4, "rank": 2, "seed": seed}).build() for seed in (1, 1, 2)]
    states = [{name: tensor.tolist() for name, tensor in model.dense_state().items()} for model in models]
    assert states[0] == states[1] != states[2]


def hinge(scores: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor | None) -> torch.Tensor:
    return torch.relu(1.0 - (scores[:, :1] - scores[:, 1:])).mean()


hinge.compares_groups = True  # type: ignore[attr-defined]


class WithHinge(FM):
    losses: ClassVar[dict[str, Any]] = {"hinge": hinge}


def test_a_models_own_loss_is_searched_and_says_which_tasks_it_suits() -> None:
    info = model_info(WithHinge)
    space = search_space(info, "topn")["loss"]
    assert isinstance(space, Choice)
    assert space.values == ("squared", "logistic", "bpr", "softmax", "hinge")
    assert search_space(info, "implicit")["loss"] == Choice(("squared", "logistic"))
    with pytest.raises(OptionError, match="the loss 'hinge' ranks a positive above negatives, which is the task topn"):
        Settings.make(WithHinge, "implicit", {"loss": "hinge"})
