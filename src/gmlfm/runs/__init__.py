"""Run folders: safetensors, JSON and Parquet, versioned, never a pickle."""

from __future__ import annotations

from gmlfm.runs.folder import MODEL_FOLDER, load_run, save_run

__all__ = ["MODEL_FOLDER", "load_run", "save_run"]
