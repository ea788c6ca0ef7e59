from __future__ import annotations

from pathlib import Path

from gmlfm.runs.layout import (
    clear_rests,
    clear_training,
    holds_a_run,
    holds_a_training,
    new_generation,
    remove_generation,
    rests,
)


def _file(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    return path


def test_generations_are_counted_on(tmp_path: Path) -> None:
    assert [new_generation(tmp_path).name for _ in range(3)] == ["000001", "000002", "000003"]
    (tmp_path / "generations" / "1000000").mkdir()
    assert new_generation(tmp_path).name == "1000001"


def test_rests_are_what_no_run_names(tmp_path: Path) -> None:
    kept = [_file(tmp_path / name) for name in ("generations/000002/card.md", "notes", ".curve.jsonl.x", "generations/mine/a")]
    gone = [
        _file(tmp_path / name) for name in ("generations/000001/card.md", ".run.json.x", ".events.jsonl.y", "model/run.json")
    ]
    assert len(rests(tmp_path, "000002")) == len(gone)
    clear_rests(tmp_path, "000002")
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == sorted(kept)
    assert rests(tmp_path, "000002") == []


def test_the_old_generation_stays_until_there_is_a_new_one(tmp_path: Path) -> None:
    old = _file(tmp_path / "model" / "run.json")
    clear_rests(tmp_path, "")
    assert old.exists()
    assert holds_a_run(tmp_path)


def test_links_in_a_generation_stay(tmp_path: Path) -> None:
    elsewhere = _file(tmp_path / "elsewhere" / "card.md")
    generation = tmp_path / "generations" / "000001"
    _file(generation / "weights.safetensors")
    (generation / "card.md").symlink_to(elsewhere)
    (generation / "data").symlink_to(elsewhere.parent)
    remove_generation(generation)
    assert elsewhere.exists()
    assert sorted(path.name for path in generation.iterdir()) == ["card.md", "data"]


def test_a_training_is_cleared_by_the_names_of_its_files(tmp_path: Path) -> None:
    ours = ["checkpoints/epoch-00001.json", "checkpoints/.draft.safetensors", "fit.json", ".curve.jsonl.x", ".fit.json.y"]
    for name in ours:
        _file(tmp_path / name)
    foreign = _file(tmp_path / "checkpoints-refit" / "bert.pt")
    assert holds_a_training(tmp_path)
    clear_training(tmp_path)
    assert not holds_a_training(tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [foreign]
