from __future__ import annotations

import pytest

from gmlfm.progress import Activity
from gmlfm.progress.wording import amount, duration, sentence, time_left


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0 s"),
        (4.4, "4 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (245, "4 min"),
        (3599, "1 h"),
        (4800, "1 h 20 min"),
        (7200, "2 h"),
    ],
)
def test_a_duration_is_as_exact_as_an_estimate_deserves(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_time_left_is_never_nothing() -> None:
    assert time_left(240) == "about 4 min left"
    assert time_left(-5) == "about 1 s left"


def test_a_sentence_tells_the_time_so_far_or_what_is_left() -> None:
    reading = Activity("reading a.csv", started=100.0)
    assert sentence(reading, 101.0) == "reading a.csv"
    assert sentence(reading, 112.0) == "reading a.csv, 12 s"
    reading.update(30, 90)
    assert sentence(reading, 160.0) == "reading a.csv, about 2 min left"
    reading.update(0, 90)
    assert sentence(reading, 160.0) == "reading a.csv, 1 min"


def test_words_by_the_time_speak_of_it_themselves_and_steer_no_terminal() -> None:
    counted = Activity(lambda now: f"at {now:.0f}\x1b[2J", started=0.0)
    counted.update(1, 2)
    assert sentence(counted, 50.0) == r"at 50\x1b[2J"
    assert sentence(Activity("\x1b[2J"), 0.0) == r"\x1b[2J"


def test_amounts_have_a_unit_and_bytes_are_megabytes() -> None:
    rows, download, nothing = Activity("", "rows"), Activity("", "bytes"), Activity("")
    rows.update(1024, 3600)
    download.update(3_200_000, 5_900_000)
    assert (amount(rows), amount(download), amount(nothing)) == ("1,024 of 3,600 rows", "3.2 of 5.9 MB", "")
    download.update(3_200_000)
    assert amount(download) == "3.2 MB"
