"""Every model by name. Adding one is a file, a line here, and an equation in its docstring."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gmlfm.errors import OptionError, did_you_mean
from gmlfm.models import afm, deepfm, fm, gmlfm, mamo, mf, ncf, nfm, ngcf, simple, transfm, xdeepfm
from gmlfm.models.afm import AFM
from gmlfm.models.base import ClosedFormModel, GradientModel
from gmlfm.models.deepfm import DeepFM
from gmlfm.models.fm import FM
from gmlfm.models.gmlfm import GMLFM
from gmlfm.models.mamo import Mamo
from gmlfm.models.mf import MF
from gmlfm.models.ncf import NCF
from gmlfm.models.nfm import NFM
from gmlfm.models.ngcf import NGCF
from gmlfm.models.simple import EASE, ItemKNN, Popularity
from gmlfm.models.spaces import Space
from gmlfm.models.transfm import TransFM
from gmlfm.models.xdeepfm import XDeepFM


@dataclass(frozen=True)
class ModelInfo:
    """`make` builds a gradient model, `count` one that is fitted at once, `episodic` one that learns user by user; one of
    the three is there.

    options: its settings where they differ from the defaults, of the model, the training or the batches.
    """

    about: str
    equation: str
    tasks: tuple[str, ...]
    uses_attributes: bool
    make: Callable[..., GradientModel] | None = None
    count: Callable[..., ClosedFormModel] | None = None
    episodic: Callable[..., Mamo] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    space: Mapping[str, Space] = field(default_factory=dict)

    @property
    def factory(self) -> Callable[..., Any]:
        found = self.make or self.count or self.episodic
        assert found is not None
        return found

    @property
    def needs_layout(self) -> bool:
        return "layout" in inspect.signature(self.factory).parameters

    @property
    def newcomers(self) -> str:
        """What it goes by for somebody or something never seen: the cold start."""
        if self.episodic is not None:
            return "attributes, and adapts to first ratings"
        if self.uses_attributes:
            return "attributes"
        return (
            "a history given with the question"
            if self.space and self.count is not None
            else "the unknown row"
            if self.make
            else "the same for all"
        )

    def option_names(self) -> list[str]:
        return [name for name in inspect.signature(self.factory).parameters if name != "layout"]


_ALL_TASKS = ("topn", "rating", "implicit")

MODELS: dict[str, ModelInfo] = {
    "gml-fm": ModelInfo(
        "our recommended form: one tanh layer from an orthogonal start, z at unit length, so that it starts near a plain FM",
        "models/gmlfm.py",
        _ALL_TASKS,
        True,
        GMLFM,
        options={"transform": "dnn", "unit": True, "start": "orthogonal", "h_start": "half"},
        space=gmlfm.SPACE,
    ),
    "gml-fm-dnn": ModelInfo(
        "the paper's DNN distance, exactly as printed",
        "models/gmlfm.py",
        _ALL_TASKS,
        True,
        GMLFM,
        options={"transform": "dnn"},
        space={name: one for name, one in gmlfm.SPACE.items() if name != "unit"},
    ),
    "gml-fm-md": ModelInfo(
        "the paper's Mahalanobis distance, exactly as printed",
        "models/gmlfm.py",
        _ALL_TASKS,
        True,
        GMLFM,
        options={"transform": "mahalanobis"},
        space={name: gmlfm.SPACE[name] for name in ("k", "v_scale")},
    ),
    "fm": ModelInfo("the factorization machine", "models/fm.py", _ALL_TASKS, True, FM, space=fm.SPACE),
    "nfm": ModelInfo("neural FM: bi-interaction pooling, then layers", "models/nfm.py", _ALL_TASKS, True, NFM, space=nfm.SPACE),
    "afm": ModelInfo(
        "attentional FM: a weight for each pair",
        "models/afm.py",
        _ALL_TASKS,
        True,
        AFM,
        options={"v_scale": 0.1},
        space=afm.SPACE,
    ),
    "transfm": ModelInfo(
        "translation-based FM: distances from translated points",
        "models/transfm.py",
        _ALL_TASKS,
        True,
        TransFM,
        space=transfm.SPACE,
    ),
    "deepfm": ModelInfo("an FM and a deep part side by side", "models/deepfm.py", _ALL_TASKS, True, DeepFM, space=deepfm.SPACE),
    "xdeepfm": ModelInfo(
        "a compressed interaction network and a deep part", "models/xdeepfm.py", _ALL_TASKS, True, XDeepFM, space=xdeepfm.SPACE
    ),
    "mf": ModelInfo("matrix factorization with biases", "models/mf.py", _ALL_TASKS, False, MF, space=mf.SPACE),
    "pmf": ModelInfo(
        "probabilistic MF: Gaussian priors, maximum a posteriori",
        "models/mf.py",
        _ALL_TASKS,
        False,
        MF,
        options={"biases": False, "lambda_user": 1e-3, "lambda_item": 1e-3},
        space=mf.PMF_SPACE,
    ),
    "bpr-mf": ModelInfo(
        "MF by Bayesian personalized ranking", "models/mf.py", ("topn",), False, MF, options={"loss": "bpr"}, space=mf.SPACE
    ),
    "ncf": ModelInfo("NeuMF: a product and a deep part over ids", "models/ncf.py", _ALL_TASKS, False, NCF, space=ncf.SPACE),
    "ngcf": ModelInfo(
        "graph convolution over users and items",
        "models/ngcf.py",
        _ALL_TASKS,
        False,
        NGCF,
        options={"batch_size": 16384, "n_negatives": 1, "loss": "bpr"},
        space=ngcf.SPACE,
    ),
    "mamo": ModelInfo(
        "memory-augmented meta-optimization: adapts to a newcomer's few ratings",
        "models/mamo.py",
        ("rating",),
        True,
        episodic=Mamo,
        options={"lr": 0.05},
        space=mamo.SPACE,
    ),
    "popularity": ModelInfo("how often an item was chosen in training", "models/simple.py", ("topn",), False, count=Popularity),
    "item-knn": ModelInfo(
        "items chosen together, by shrunk cosine", "models/simple.py", ("topn",), False, count=ItemKNN, space=simple.KNN_SPACE
    ),
    "ease": ModelInfo(
        "the linear autoencoder in closed form", "models/simple.py", ("topn",), False, count=EASE, space=simple.EASE_SPACE
    ),
}


def model_info(name: str) -> ModelInfo:
    if name not in MODELS:
        raise OptionError(f"model is '{name}'{did_you_mean(name, MODELS)}")
    return MODELS[name]
