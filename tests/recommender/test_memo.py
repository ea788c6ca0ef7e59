from __future__ import annotations

from gmlfm.recommender.memo import Memo


def test_what_is_kept_is_made_once() -> None:
    memo, made = Memo[list[int]](2), []

    def make() -> list[int]:
        made.append(len(made))
        return [len(made)]

    assert memo.of("a", make) is memo.of("a", make)
    assert made == [0]
    assert memo.get("b") is None


def test_what_was_kept_longest_goes() -> None:
    memo = Memo[int](2)
    for key in "abac":
        memo.put(key, ord(key))
    assert [memo.get(key) for key in "abc"] == [None, ord("b"), ord("c")]
    assert len(memo) == 2
