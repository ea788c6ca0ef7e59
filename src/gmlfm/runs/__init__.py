"""Run folders: safetensors, JSON and Parquet, versioned, never a pickle."""

from __future__ import annotations

from gmlfm.runs.claiming import claimed, run_path
from gmlfm.runs.generation import load_run, model_folder, save_run
from gmlfm.runs.run_folder import RunFolder

__all__ = ["RunFolder", "claimed", "load_run", "model_folder", "run_path", "save_run"]
