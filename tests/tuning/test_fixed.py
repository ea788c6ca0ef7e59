"""Settings that are given and not searched."""

from __future__ import annotations

from typing import Any

import pytest

from gmlfm.errors import OptionError
from gmlfm.tuning.fixed import fixed_settings

MODELS = ("gml-fm", "fm", "ease", "popularity")


def test_a_setting_for_all_is_that_of_every_model_that_has_it() -> None:
    given = {"k": "32", "lr": "0.01", "l2": "300"}
    expected: dict[str, dict[str, Any]] = {
        "gml-fm": {"k": 32, "lr": 0.01},
        "fm": {"k": 32, "lr": 0.01},
        "ease": {"l2": 300.0},
        "popularity": {},
    }
    assert fixed_settings(given, MODELS, "topn") == expected
    assert fixed_settings({}, MODELS, "topn") == {model: {} for model in MODELS}


def test_a_setting_of_a_model_goes_before_that_of_all_in_any_order() -> None:
    for given in ({"fm.k": "8", "k": "32"}, {"k": "32", "fm.k": "8"}):
        assert fixed_settings(given, ("gml-fm", "fm"), "topn") == {"gml-fm": {"k": 32}, "fm": {"k": 8}}


def test_aliases_auto_and_models_from_elsewhere() -> None:
    name = "tests.contracts.foreign:TwoTowers"
    given = {"negatives": "2", f"{name}.k": "3", "batch_size": "auto"}
    assert fixed_settings(given, ("fm", name), "topn") == {
        "fm": {"n_negatives": 2, "batch_size": None},
        name: {"n_negatives": 2, "batch_size": None, "k": 3},
    }


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kk": "3"}, "none of gml-fm, fm, ease, popularity has a setting 'kk'"),
        ({"neighbors": "3"}, "none of gml-fm, fm, ease, popularity has a setting 'neighbors'"),
        ({"mf.k": "3"}, "'mf.k' names the model 'mf', which is not among these; known: gml-fm, fm, ease, popularity"),
        ({"fm.l2": "3"}, "the model 'fm' cannot take l2=3: unknown setting 'l2' for the model 'fm'"),
        ({"k": "0"}, "the model 'gml-fm' cannot take k=0: k is 0; expected 1 to 10,000"),
        ({"seed": "1"}, "seed is no setting that --set fixes but an option of its own; use --seed 1"),
        ({"fm.threads": "1"}, "use --threads 1"),
    ],
)
def test_what_cannot_be_fixed_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        fixed_settings(given, MODELS, "topn")


def test_what_belongs_to_a_name_is_not_changed_for_all() -> None:
    """bpr-mf with another loss would be another method under its name."""
    models = ("mf", "bpr-mf")
    with pytest.raises(OptionError, match=r"loss belongs to the name 'bpr-mf'.*name the models: mf.loss=softmax"):
        fixed_settings({"loss": "softmax"}, models, "topn")
    assert fixed_settings({"mf.loss": "softmax"}, models, "topn") == {"mf": {"loss": "softmax"}, "bpr-mf": {}}
    # Who names the model means it.
    assert fixed_settings({"bpr-mf.loss": "softmax"}, models, "topn")["bpr-mf"] == {"loss": "softmax"}
    assert fixed_settings({"loss": "softmax"}, ("bpr-mf",), "topn")["bpr-mf"] == {"loss": "softmax"}
