from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

import gmlfm
from gmlfm.errors import OptionError
from gmlfm.models import registry
from gmlfm.models.base import TASKS, Layout, Model
from gmlfm.models.fm import FM
from gmlfm.models.gmlfm import GMLFM
from gmlfm.models.mf import MF
from gmlfm.models.registry import ModelInfo, all_models, model_info, named_model, register
from tests.models.slow_loops import LAYOUT


@pytest.fixture(autouse=True)
def models(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModelInfo]]:
    """A registry of the test's own, to which no package has offered anything."""
    monkeypatch.setattr(registry, "MODELS", dict(registry.MODELS))
    monkeypatch.setattr(registry, "_loaded_entry_points", False)
    monkeypatch.setattr(registry, "entry_points", lambda group: ())
    modules = set(sys.modules)
    yield registry.MODELS
    for name in set(sys.modules) - modules:
        del sys.modules[name]


class Mine(FM):
    """A machine of my own. It has a second sentence.

    And a second paragraph.
    """


def test_the_decorator_names_a_class_and_hands_it_back(models: dict[str, ModelInfo]) -> None:
    assert gmlfm.register is register
    assert register("mine", tasks=("rating", "topn"), defaults={"k": 8}, searched=("k",), fixed=("loss",))(Mine) is Mine
    info = models["mine"]
    assert (info.name, info.cls, info.tasks) == ("mine", Mine, ("topn", "rating"))
    assert (info.defaults, info.searched, info.fixed) == ({"k": 8}, ("k",), ("loss",))
    assert list(info.space) == ["k"]
    assert info.about == "A machine of my own. It has a second sentence"
    assert info.uses_attributes
    assert info.newcomers == "attributes"
    assert info.equation == __name__
    assert register("mine-2", about="in a line")(Mine) is Mine
    assert models["mine-2"].about == "in a line"
    assert models["mine-2"].tasks == TASKS


def test_a_name_is_given_once_but_a_class_may_be_loaded_again(models: dict[str, ModelInfo]) -> None:
    message = r"a model named 'fm' is registered already \(gmlfm.models.fm:FM\); choose another name: @gmlfm.register\('fm-2'\)"
    with pytest.raises(OptionError, match=message):
        register("fm")(Mine)
    assert models["fm"].cls is FM
    register("mine")(Mine)
    reloaded: Any = type("Mine", (FM,), {"__module__": Mine.__module__, "__qualname__": Mine.__qualname__})
    register("mine")(reloaded)
    assert models["mine"].cls is reloaded


@pytest.mark.parametrize("name", ["", "my:model", "a,b", 3, None])
def test_bad_names_are_refused(name: Any) -> None:
    with pytest.raises(
        OptionError, match=r"a model's name is a text without ':' and ','; got .* Write @gmlfm.register\('my-model'\)"
    ):
        register(name)


@pytest.mark.parametrize("value", [int, "text", lambda: None])
def test_only_models_are_registered(value: Any) -> None:
    with pytest.raises(OptionError, match=r"is no gmlfm\.Model; derive it from gmlfm.GradientModel or another base"):
        register("mine")(value)


def test_a_model_is_meant_by_name_class_instance_or_path(models: dict[str, ModelInfo]) -> None:
    assert model_info("fm") is model_info(FM) is model_info(FM(k=4)) is model_info("gmlfm.models.fm:FM") is models["fm"]
    # A class under several names, or under none, goes by its path.
    assert model_info(MF).name == "gmlfm.models.mf:MF"
    assert model_info(GMLFM).defaults == {}
    assert model_info(Mine).name == f"{__name__}:Mine"
    register("mine")(Mine)
    assert model_info(Mine(k=3)) is models["mine"]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("fmm", "model is 'fmm'; did you mean 'fm'"),
        (
            "no_such_module:Mine",
            r"the module 'no_such_module' of 'no_such_module:Mine' cannot be imported \(ModuleNotFoundError: .*write --model my_package.my_module:MyModel",
        ),
        ("gmlfm.models.fm:FMM", "the module 'gmlfm.models.fm' has no class 'FMM'; did you mean 'FM'"),
        ("gmlfm.models.fm:", "the module 'gmlfm.models.fm' has no class ''"),
        ("pathlib:Path", "'pathlib:Path' is no gmlfm.Model class; derive it from gmlfm.GradientModel"),
        ("math:pi", "'math:pi' is no gmlfm.Model class"),
        (":FM", "the module '' of ':FM' cannot be imported"),
        (int, "int is no gmlfm.Model; derive it from"),
        (3, "model is 3; expected a name such as 'gml-fm', a gmlfm.Model class or an instance of one"),
        (None, "model is None; expected a name"),
    ],
)
def test_what_is_no_model_is_refused_in_a_sentence(model: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        model_info(model)
    assert "\n" not in str(caught.value)


def test_a_module_that_fails_on_import_says_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_models.py").write_text("raise RuntimeError('half written')", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        OptionError, match=r"'broken_models' of 'broken_models:Mine' cannot be imported \(RuntimeError: half written\)"
    ):
        model_info("broken_models:Mine")


def test_a_registered_name_never_imports_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry.importlib, "import_module", None)
    assert named_model("fm").cls is FM
    with pytest.raises(OptionError, match="model is 'no_such_module:Mine'; known: gml-fm"):
        named_model("no_such_module:Mine")


def test_a_model_is_built_from_its_options_and_the_layout_where_it_takes_one() -> None:
    machine = model_info("fm").build(LAYOUT, {"k": 3})
    assert isinstance(machine, FM)
    assert machine.k == 3
    layouts: list[Layout | None] = []

    class WithLayout(FM):
        def __init__(self, layout: Layout, k: int = 2) -> None:
            super().__init__(k)
            layouts.append(layout)

    built = model_info(WithLayout).build(LAYOUT, {"k": 5})
    assert layouts == [LAYOUT]
    assert built.settings == {"k": 5}
    assert model_info(WithLayout).option_names() == ["k"]


def test_installed_packages_offer_models_and_a_broken_one_is_skipped_with_a_warning(
    models: dict[str, ModelInfo], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    (tmp_path / "offered_models.py").write_text(
        "from gmlfm.models.fm import FM\n\n\nclass Offered(FM):\n    'From a package'\n", encoding="utf-8"
    )
    (tmp_path / "offered_broken.py").write_text("import no_such_dependency", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    groups: list[str] = []

    def points(group: str) -> list[EntryPoint]:
        groups.append(group)
        values = {
            "broken": "offered_broken:Model",
            "no-model": "pathlib:Path",
            "offered": "offered_models:Offered",
            "fm": "offered_models:Offered",
        }
        return [EntryPoint(name, value, group) for name, value in values.items()]

    monkeypatch.setattr(registry, "entry_points", points)
    with caplog.at_level(logging.WARNING, logger="gmlfm"):
        info = model_info("offered")
    assert info.about == "From a package"
    assert issubclass(info.cls, Model)
    assert models["fm"].cls is FM  # a name of ours stays ours
    assert not {"broken", "no-model"} & set(models)
    warnings = [record.getMessage() for record in caplog.records]
    assert [message.split(" cannot be used")[0] for message in warnings] == [
        "the model 'broken' of an installed package (offered_broken:Model)",
        "the model 'no-model' of an installed package (pathlib:Path)",
    ]
    assert "no_such_dependency" in warnings[0]
    assert [listed.name for listed in all_models()] == list(models)
    with pytest.raises(OptionError, match="model is 'broken'"):
        model_info("broken")
    assert groups == ["gmlfm.models"]  # once


def test_every_setting_of_ours_has_a_meaning() -> None:
    for info in registry.MODELS.values():
        for name, declared in info.declared.items():
            assert declared.setting.meaning, (info.name, name)
            assert declared.has_default, (info.name, name)


def test_every_default_of_ours_is_a_setting_that_it_allows() -> None:
    for info in registry.MODELS.values():
        for name, value in info.defaults.items():
            if name in info.declared:
                assert info.declared[name].convert(value) == value
        for name, space in info.space.items():
            default = info.defaults.get(name, info.declared[name].default)
            assert space.contains(default) or default == info.declared[name].default, (info.name, name)
