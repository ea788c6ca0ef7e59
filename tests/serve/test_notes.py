from __future__ import annotations

import threading
import warnings

import pytest

from gmlfm.serve.notes import noted


def _warn(text: str, category: type[Warning] = UserWarning) -> None:
    warnings.warn_explicit(text, category, "gmlfm/x.py", 1, module="gmlfm.x")


def test_each_thread_notes_its_own_warnings_once_each() -> None:
    together, noted_by = threading.Barrier(2), dict[str, list[str]]()

    def work(name: str) -> None:
        with noted() as notes:
            together.wait(60)
            for _ in range(3):
                _warn(f"about {name}")
            together.wait(60)
        noted_by[name] = notes

    threads = [threading.Thread(target=work, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert noted_by == {"a": ["about a"], "b": ["about b"]}


def test_every_asker_is_told_again() -> None:
    for _ in range(2):
        with noted() as notes:
            _warn("the same")
        assert notes == ["the same"]


def test_other_warnings_go_where_they_went() -> None:
    with noted() as notes, pytest.warns(DeprecationWarning, match="old"):
        _warn("old", DeprecationWarning)
    assert notes == []
    with noted():
        pass
    with pytest.warns(UserWarning, match="outside of any answer"):
        warnings.warn_explicit("outside of any answer", UserWarning, "x.py", 1, module="gmlfm.x")
