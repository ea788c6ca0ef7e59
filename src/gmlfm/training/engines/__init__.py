"""Engines take the training steps: eager PyTorch, right for every model, and compiled kernels that agree with it."""

from gmlfm.training.engines.choose import ENGINES, engine_named, make_engine
from gmlfm.training.engines.protocol import Engine

__all__ = ["ENGINES", "Engine", "engine_named", "make_engine"]
