"""Which engine trains a model: compiled kernels where the device has some for its spec, its loss and its optimiser."""

from __future__ import annotations

import importlib.util
import logging
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from gmlfm.errors import OptionError, did_you_mean
from gmlfm.kernels.codes import LOSS_CODES, OPTIMISER_CODES
from gmlfm.kernels.spec import KernelSpec
from gmlfm.models.gradient import GradientModel
from gmlfm.training.engines.eager import EagerEngine
from gmlfm.training.engines.packing import NoKernelError
from gmlfm.training.engines.protocol import Engine
from gmlfm.training.objectives import losses_of
from gmlfm.training.rows import RowOptimiser

if TYPE_CHECKING:
    from gmlfm.training.options import TrainingOptions

ENGINES = ("auto", "compiled", "eager")
_OLD_NAMES = {"reference": "eager"}  # in runs written by earlier versions
# What a step calls of a model. A subclass that overrides one of these but not kernel_spec is not what the inherited spec says.
_STEP_METHODS = {
    "row_width",
    "transform_rows",
    "scores",
    "score_sets",
    "penalty",
    "global_term",
    "linear",
    "pair_parts",
    "self_terms",
    "side_vectors",
}
_log = logging.getLogger("gmlfm")
_logged: set[str] = set()


def engine_named(name: str) -> str:
    """One of ENGINES."""
    if name in _OLD_NAMES:
        return _OLD_NAMES[name]
    if name not in ENGINES:
        raise OptionError(f"engine is '{name}'{did_you_mean(name, ENGINES)}")
    return name


def make_engine(
    model: GradientModel,
    rows: RowOptimiser,
    dense: torch.optim.Optimizer,
    options: TrainingOptions,
    field_of_row: npt.NDArray[np.int16] | None = None,
) -> Engine:
    """By options.engine and the table's device. 'auto' takes the eager engine where there is no kernel, and logs why, once."""
    name = engine_named(options.engine)
    if name != "eager":
        try:
            return _compiled_engine(model, rows, dense, options)
        except NoKernelError as error:
            if name == "compiled":
                raise OptionError(f"engine is 'compiled', but {error}; use auto or eager.") from None
            _log_once(error)
    return EagerEngine(model, rows, dense, options.loss, field_of_row)


def _compiled_engine(
    model: GradientModel, rows: RowOptimiser, dense: torch.optim.Optimizer, options: TrainingOptions
) -> Engine:
    name, spec = type(model).__name__, _kernel_spec(model)
    if spec is None:
        raise NoKernelError(f"{name} has no kernel with these settings")
    if {id(parameter) for parameter in model.parameters() if parameter.requires_grad} != {
        id(parameter) for parameter in spec.parameters
    }:
        raise NoKernelError(f"{name} has other parameters than its kernel spec")
    own_losses = losses_of(model).keys() & {options.loss, *LOSS_CODES}
    if own_losses:
        raise NoKernelError(f"the loss '{min(own_losses)}' of {name} has no kernel", logging.WARNING)
    if options.loss not in LOSS_CODES:
        raise NoKernelError(f"the loss '{options.loss}' has no kernel", logging.WARNING)
    if options.optimiser not in OPTIMISER_CODES:
        raise NoKernelError(f"the optimiser '{options.optimiser}' has no kernel", logging.WARNING)
    if rows.table.device.type == "cpu":
        from gmlfm.training.engines.cpu import cpu_engine

        return cpu_engine(spec, rows, dense, options)
    if not importlib.util.find_spec("triton"):
        raise NoKernelError("Triton is not installed")
    from gmlfm.training.engines.cuda import CudaEngine

    return CudaEngine(spec, rows, dense, options)


def _kernel_spec(model: GradientModel) -> KernelSpec | None:
    """The model's spec; None where a subclass changed what a step computes and inherits the spec of what it was before."""
    for cls in type(model).__mro__:
        if "kernel_spec" in vars(cls):
            return model.kernel_spec()
        if vars(cls).keys() & _STEP_METHODS:
            return None
    return None


def _log_once(error: NoKernelError) -> None:
    reason = str(error)
    if reason not in _logged:
        _logged.add(reason)
        _log.log(error.level, "%s; PyTorch takes the steps, operation by operation", reason)
