"""Rules of splits that hold whether the rows lie in memory or come shard by shard."""

from __future__ import annotations

from gmlfm.data.dataset import Task
from gmlfm.data.schema import Repeats

LEAVE_ONE_OUT = "leave-one-out"
NO_TIME_NOTE = "no time is declared: the order of the file decides which row is the latest."
NO_TEST_NOTE = "no row is later than the second cut: the times are too much alike for a test part."


def auto_split(task: Task, *, declares_time: bool, has_all_times: bool, sells_once: bool) -> tuple[str, str]:
    """The split that `auto` stands for, and why, in one sentence; empty where it is the usual one."""
    if task == "implicit":
        return "random", ""  # its drawn instances are
    if not declares_time:
        return "random", "no time is declared, so the rows are split at random; set [interactions] time for the order of time."
    if task == "topn" and sells_once and has_all_times:
        return (
            "global-time",
            "items sell once, so the split is by time: trained on what was sold before, tested on what came later.",
        )
    return LEAVE_ONE_OUT, ""


def time_cuts(n: int, validation: float, test: float) -> tuple[int, int]:
    """Of n rows in the order of time: the places of the last training row and of the last validation row."""
    last_train, last_validation = (max(round(n * share) - 1, 0) for share in (1 - validation - test, 1 - test))
    return last_train, last_validation


def repeats_note(n_trained: int, n_tested: int, repeats: Repeats) -> list[str]:
    """How many tested pairs are also trained on: where the data keep repeats, or pairs have several contexts."""
    if not n_trained:
        return []
    why = 'repeats = "keep"' if repeats == "keep" else "in another context"
    return [f"{n_trained:,} of {n_tested:,} tested pairs are also training pairs ({why})."]
