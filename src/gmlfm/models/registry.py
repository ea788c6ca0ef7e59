"""Every model by name, and models from anywhere: a class, an instance, `module:Class`, a registered name or an entry point.

Adding one of ours is a file, a `register` line here, and an equation in its docstring. Others call `gmlfm.register`, or name an
entry point in the group `gmlfm.models`.
"""

from __future__ import annotations

import importlib
import inspect
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any, TypeVar

from gmlfm.errors import GmlfmError, OptionError, did_you_mean
from gmlfm.models.afm import AFM
from gmlfm.models.base import TASKS, Layout, Model
from gmlfm.models.deepfm import DeepFM
from gmlfm.models.ease import EASE
from gmlfm.models.fm import FM
from gmlfm.models.gated import GatedGMLFM
from gmlfm.models.gmlfm import GMLFM
from gmlfm.models.item_knn import ItemKNN
from gmlfm.models.mamo import Mamo
from gmlfm.models.mf import MF
from gmlfm.models.ncf import NCF
from gmlfm.models.nfm import NFM
from gmlfm.models.ngcf import NGCF
from gmlfm.models.popularity import Popularity
from gmlfm.models.sasrec import SASRec
from gmlfm.models.settings import Declared, Space
from gmlfm.models.transfm import TransFM
from gmlfm.models.xdeepfm import XDeepFM

ENTRY_POINTS = "gmlfm.models"
_log = logging.getLogger("gmlfm")
ModelClass = TypeVar("ModelClass", bound=type[Model])


@dataclass(frozen=True)
class ModelInfo:
    """A model class under a name.

    defaults: settings, of the model, the training or the batches, that differ from their own defaults under this name.
    searched: which of the model's settings `gmlfm tune` tries; None for all that declare a space.
    fixed: settings that belong to the name (the loss of bpr-mf), which tuning leaves alone.
    """

    name: str
    cls: type[Model]
    about: str
    tasks: tuple[str, ...]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    searched: tuple[str, ...] | None = None
    fixed: tuple[str, ...] = ()

    @property
    def equation(self) -> str:
        """The module whose docstring has the equation."""
        return self.cls.__module__

    @property
    def uses_attributes(self) -> bool:
        return self.cls.inputs.attributes

    @property
    def newcomers(self) -> str:
        return self.cls.newcomers()

    @property
    def declared(self) -> dict[str, Declared]:
        return self.cls.declared()

    @property
    def space(self) -> dict[str, Space]:
        """What tuning may choose from, of the model's own settings."""
        declared = self.declared
        names = [name for name in declared if self.searched is None or name in self.searched]
        spaces = {name: declared[name].setting.search for name in names if name not in self.fixed}
        return {name: space for name, space in spaces.items() if space is not None}

    def option_names(self) -> list[str]:
        return list(self.declared)

    def build(self, layout: Layout | None, options: Mapping[str, Any]) -> Model:
        """A fresh model; layout is handed to a class whose __init__ takes one."""
        takes_layout = "layout" in inspect.signature(self.cls.__init__).parameters
        with authors_mistakes(self.cls):
            return self.cls(**options, **({"layout": layout} if takes_layout else {}))


@contextmanager
def authors_mistakes(cls: type[Model]) -> Iterator[None]:
    """What goes wrong in a model that is not ours is told as its author's, in one sentence; --debug shows where."""
    try:
        yield
    except (AttributeError, IndexError, NameError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        if cls.__module__.partition(".")[0] == "gmlfm":
            raise
        reason = str(error).strip().splitlines()[0] if str(error).strip() else "no reason given"
        raise OptionError(
            f"the model {cls.__name__} ({cls.__module__}) failed: {type(error).__name__}: {reason.rstrip('.')}; see "
            "docs/add-a-model.md, and --debug for the place."
        ) from error


MODELS: dict[str, ModelInfo] = {}


def register(
    name: str,
    *,
    about: str = "",
    tasks: tuple[str, ...] | None = None,
    defaults: Mapping[str, Any] | None = None,
    searched: tuple[str, ...] | None = None,
    fixed: tuple[str, ...] = (),
) -> Callable[[ModelClass], ModelClass]:
    """Give a model class a name: `@gmlfm.register("my-model")`. about: one line; otherwise the class's docstring has it."""
    if not isinstance(name, str) or not name or ":" in name or "," in name:
        raise OptionError(f"a model's name is a text without ':' and ','; got {name!r}. Write @gmlfm.register('my-model').")

    def add(cls: ModelClass) -> ModelClass:
        if not (inspect.isclass(cls) and issubclass(cls, Model)):
            raise OptionError(f"{cls!r} is no gmlfm.Model; derive it from gmlfm.GradientModel or another base.")
        present = MODELS.get(name)
        if present is not None and not _is_same_class(present.cls, cls):
            raise OptionError(
                f"a model named '{name}' is registered already ({present.cls.__module__}:{present.cls.__qualname__}); "
                f"choose another name: @gmlfm.register('{name}-2')."
            )
        MODELS[name] = _info(name, cls, about, tasks, defaults, searched, fixed)
        return cls

    return add


def _info(
    name: str,
    cls: type[Model],
    about: str = "",
    tasks: tuple[str, ...] | None = None,
    defaults: Mapping[str, Any] | None = None,
    searched: tuple[str, ...] | None = None,
    fixed: tuple[str, ...] = (),
) -> ModelInfo:
    line = about or (inspect.getdoc(cls) or name).splitlines()[0].rstrip(".")
    ordered = tuple(task for task in TASKS if task in (tasks or cls.tasks))
    return ModelInfo(name, cls, line, ordered, dict(defaults or {}), searched, fixed)


def _is_same_class(left: type, right: type) -> bool:
    """Also of a module that was loaded a second time."""
    return (left.__module__, left.__qualname__) == (right.__module__, right.__qualname__)


def model_info(model: str | type[Model] | Model) -> ModelInfo:
    """A registered name, `module:Class`, a class or an instance. Only what the caller writes is ever imported."""
    if isinstance(model, Model):
        return _class_info(type(model))
    if inspect.isclass(model):
        if not issubclass(model, Model):
            raise OptionError(f"{model.__name__} is no gmlfm.Model; derive it from gmlfm.GradientModel or another base.")
        return _class_info(model)
    if not isinstance(model, str):
        raise OptionError(f"model is {model!r}; expected a name such as 'gml-fm', a gmlfm.Model class or an instance of one.")
    if ":" in model:
        return _class_info(import_model(model))
    return named_model(model)


def named_model(name: str) -> ModelInfo:
    """A model by its registered name alone, which imports no module that the name could choose."""
    if name not in MODELS:
        load_entry_points()
    if name not in MODELS:
        raise OptionError(f"model is '{name}'{did_you_mean(name, MODELS)}")
    return MODELS[name]


def import_model(path: str) -> type[Model]:
    """The class that a text such as 'my_package.my_module:MyModel' names."""
    module_name, _, class_name = path.partition(":")
    example = "write --model my_package.my_module:MyModel"
    try:
        module = importlib.import_module(module_name)
    except GmlfmError:
        raise
    except Exception as error:
        raise OptionError(
            f"the module '{module_name}' of '{path}' cannot be imported ({type(error).__name__}: {error}); {example}."
        ) from error
    cls = getattr(module, class_name, None) if class_name else None
    if cls is None:
        names = [name for name, member in vars(module).items() if inspect.isclass(member) and issubclass(member, Model)]
        raise OptionError(f"the module '{module_name}' has no class '{class_name}'{did_you_mean(class_name, names)}")
    if not (inspect.isclass(cls) and issubclass(cls, Model)):
        raise OptionError(f"'{path}' is no gmlfm.Model class; derive it from gmlfm.GradientModel or another base.")
    return cls


def _class_info(cls: type[Model]) -> ModelInfo:
    """Under its registered name where it has just one; otherwise under module:Class."""
    names = [name for name, info in MODELS.items() if info.cls is cls]
    return MODELS[names[0]] if len(names) == 1 else _info(f"{cls.__module__}:{cls.__qualname__}", cls)


def all_models() -> Iterator[ModelInfo]:
    """The registered ones, those of installed packages included."""
    load_entry_points()
    return iter(list(MODELS.values()))


_loaded_entry_points = False


def load_entry_points() -> None:
    """Register what installed packages offer, once."""
    global _loaded_entry_points
    if _loaded_entry_points:
        return
    _loaded_entry_points = True
    for point in entry_points(group=ENTRY_POINTS):
        if point.name in MODELS:
            continue
        try:
            register(point.name)(point.load())
        except Exception as error:
            # One broken package must not take the others' models away.
            _log.warning("the model '%s' of an installed package (%s) cannot be used: %s", point.name, point.value, error)


register(
    "gml-fm",
    about="FM with a metric of each role",
    defaults={"history": "auto"},
)(GatedGMLFM)
register(
    "gml-fm-unit",
    about="the paper's DNN distance at unit length, started near FM",
    defaults={"transform": "dnn", "unit": True, "start": "orthogonal", "h_start": "half"},
)(GMLFM)
register(
    "gml-fm-dnn",
    about="the paper's DNN distance, exactly as printed",
    defaults={"transform": "dnn"},
    searched=("k", "layers", "dropout", "v_scale"),
)(GMLFM)
register(
    "gml-fm-md",
    about="the paper's Mahalanobis distance, exactly as printed",
    defaults={"transform": "mahalanobis"},
    searched=("k", "v_scale"),
)(GMLFM)
register("fm", about="the factorization machine", defaults={"history": "auto"})(FM)
register("nfm", about="neural FM: bi-interaction pooling, then layers")(NFM)
register("afm", about="attentional FM: pair weights")(AFM)
register("transfm", about="translation-based FM: translated points")(TransFM)
register("deepfm", about="an FM beside a deep part")(DeepFM)
register("xdeepfm", about="a compressed interaction network and a deep part")(XDeepFM)
register("mf", about="biased matrix factorization", searched=("k", "v_scale"))(MF)
register(
    "pmf",
    about="probabilistic MF: Gaussian priors, maximum a posteriori",
    defaults={"biases": False, "lambda_user": 1e-3, "lambda_item": 1e-3},
    fixed=("loss",),
)(MF)
register(
    "bpr-mf",
    about="MF by Bayesian personalized ranking",
    tasks=("topn",),
    defaults={"loss": "bpr"},
    searched=("k", "v_scale"),
    fixed=("loss",),
)(MF)
register("ncf", about="NeuMF: a product and a deep part over ids")(NCF)
register(
    "ngcf",
    about="graph convolution over users and items",
    defaults={"largest_batch": 16384, "n_negatives": 1, "loss": "bpr", "cold_start_rate": 0.0},
)(NGCF)
register(
    "mamo",
    about="memory-augmented meta-optimization: adapts to a newcomer's few ratings",
    defaults={"lr": 0.05},
)(Mamo)
register(
    "sasrec",
    about="transformer over what a user did before",
    defaults={"loss": "softmax", "lr": 1e-3, "schedule": "cosine", "epochs": 30},
    searched=("k", "layers", "dropout"),
    fixed=("loss", "n_negatives", "batch_size", "weight_decay"),
)(SASRec)
register("popularity", about="how often an item was chosen in training")(Popularity)
register("item-knn", about="items chosen together, by shrunk cosine")(ItemKNN)
register("ease", about="the linear autoencoder in closed form")(EASE)
