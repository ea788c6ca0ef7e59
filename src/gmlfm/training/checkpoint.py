"""Checkpoints: written by rename after every epoch, with a checksum; a damaged one is passed over for the one before."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from gmlfm.errors import DataError
from gmlfm.storage import sha256_of

_N_CHECKPOINTS = 2
_FILE = re.compile(r"epoch-\d{5,}\.(safetensors|json)|\.draft\.(safetensors|json)")


def save_checkpoint(folder: Path, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
    """numbers must hold 'epoch', which names the file. The last two stay."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / ".draft.safetensors"
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, draft)
        target = folder / f"epoch-{numbers['epoch']:05d}.safetensors"
        header = json.dumps({"sha256": sha256_of(draft), **numbers})
        draft_header = folder / ".draft.json"
        draft_header.write_text(header, encoding="utf-8")
        os.replace(draft, target)
        # The checksum comes last: weights without it do not count.
        os.replace(draft_header, target.with_suffix(".json"))
    except (OSError, SafetensorError) as error:
        raise DataError(f"{folder} could not be written ({error}); the checkpoint before it is unchanged.") from error
    for old in sorted(file for file in folder.glob("epoch-*.json") if is_checkpoint_file(file))[:-_N_CHECKPOINTS]:
        old.unlink()
        old.with_suffix(".safetensors").unlink(missing_ok=True)


def newest_checkpoint(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The newest checkpoint whose checksum fits, or None."""
    for header_path in sorted(folder.glob("epoch-*.json"), reverse=True):
        path = header_path.with_suffix(".safetensors")
        try:
            numbers = json.loads(header_path.read_text(encoding="utf-8"))
            if sha256_of(path) == numbers.pop("sha256"):
                return load_file(path), numbers
        except (OSError, ValueError, KeyError, SafetensorError):
            continue
    return None


def is_checkpoint_file(path: Path) -> bool:
    """Whether it is one that `save_checkpoint` writes, by its name."""
    return _FILE.fullmatch(path.name) is not None and not path.is_symlink() and path.is_file()


def remove_checkpoints(folder: Path) -> None:
    """Those that `save_checkpoint` wrote, drafts included, and the folder if nothing else is in it; nothing behind a link."""
    if folder.is_symlink() or not folder.is_dir():
        return
    for file in folder.iterdir():
        if is_checkpoint_file(file):
            file.unlink()
    if not any(folder.iterdir()):
        folder.rmdir()
