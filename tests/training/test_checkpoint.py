from __future__ import annotations

from pathlib import Path

import torch

from gmlfm.training.checkpoint import newest_checkpoint, save_checkpoint


def save(folder: Path, epoch: int) -> None:
    save_checkpoint(folder, {"w": torch.full((3,), float(epoch))}, {"epoch": epoch, "best_value": 0.5})


def test_the_newest_whole_checkpoint_is_used(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path) is None
    for epoch in (1, 2, 3):
        save(tmp_path, epoch)
    assert sorted(path.name for path in tmp_path.glob("*.safetensors")) == [
        "epoch-00002.safetensors",
        "epoch-00003.safetensors",
    ]
    checkpoint = newest_checkpoint(tmp_path)
    assert checkpoint is not None
    assert checkpoint[1] == {"epoch": 3, "best_value": 0.5}
    assert checkpoint[0]["w"].tolist() == [3.0] * 3


def test_a_damaged_checkpoint_is_passed_over_for_the_earlier(tmp_path: Path) -> None:
    for epoch in (1, 2):
        save(tmp_path, epoch)
    path = tmp_path / "epoch-00002.safetensors"
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    checkpoint = newest_checkpoint(tmp_path)
    assert checkpoint is not None
    assert checkpoint[1]["epoch"] == 1
    (tmp_path / "epoch-00001.safetensors").unlink()
    assert newest_checkpoint(tmp_path) is None


def test_weights_without_their_checksum_do_not_count(tmp_path: Path) -> None:
    for epoch in (1, 2):
        save(tmp_path, epoch)
    (tmp_path / "epoch-00002.json").unlink()
    checkpoint = newest_checkpoint(tmp_path)
    assert checkpoint is not None
    assert checkpoint[1]["epoch"] == 1
