"""Checkpoints: written by rename after every epoch, with a checksum; a damaged one is passed over for the one before."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from gmlfm.errors import DataError

_N_CHECKPOINTS = 2


def save_checkpoint(folder: Path, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
    """numbers must hold 'epoch', which names the file. The last two stay."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / ".draft.safetensors"
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, draft)
        target = folder / f"epoch-{numbers['epoch']:05d}.safetensors"
        header = json.dumps({"sha256": _sha256(draft), **numbers})
        draft_header = folder / ".draft.json"
        draft_header.write_text(header, encoding="utf-8")
        os.replace(draft, target)
        # The checksum comes last: weights without it do not count.
        os.replace(draft_header, target.with_suffix(".json"))
    except (OSError, SafetensorError) as error:
        raise DataError(f"{folder} could not be written ({error}); the checkpoint before it is unchanged.") from error
    for old in sorted(folder.glob("epoch-*.json"))[:-_N_CHECKPOINTS]:
        old.unlink()
        old.with_suffix(".safetensors").unlink(missing_ok=True)


def newest_checkpoint(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The newest checkpoint whose checksum fits, or None."""
    for header_path in sorted(folder.glob("epoch-*.json"), reverse=True):
        path = header_path.with_suffix(".safetensors")
        try:
            numbers = json.loads(header_path.read_text(encoding="utf-8"))
            if _sha256(path) == numbers.pop("sha256"):
                return load_file(path), numbers
        except (OSError, ValueError, KeyError, SafetensorError):
            continue
    return None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
