from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from gmlfm.errors import DataError
from gmlfm.runs import events
from gmlfm.runs.events import EventLog, forgetting_of, forgotten_users, last_number, marks_of


@pytest.fixture
def log(tmp_path: Path) -> EventLog:
    log = EventLog(tmp_path / "events.jsonl")
    log.append({"kind": "sold", "items": ["a", "b"]}, {"kind": "back", "items": ["b"]})
    return log


def test_events_are_numbered_and_read_by_others(log: EventLog) -> None:
    log.append({"kind": "sold", "items": ["c"]})
    events = EventLog(log.path).events()
    assert [event["kind"] for event in events] == ["log", "sold", "back", "sold"]
    assert [event["n"] for event in events] == [0, 1, 2, 3]
    assert last_number(events) == 3
    assert marks_of(events) == {"a": "sold", "b": "back", "c": "sold"}
    assert EventLog(log.path.with_name("nothing")).events() == []
    assert last_number([]) == -1


def test_what_another_process_adds_is_seen(log: EventLog) -> None:
    assert len(log.events()) == 3
    EventLog(log.path).append({"kind": "sold", "items": ["c"]})
    assert marks_of(log.events())["c"] == "sold"
    log.append({"kind": "back", "items": ["c"]})
    assert [event["n"] for event in EventLog(log.path).events()] == [0, 1, 2, 3, 4]


def test_a_log_written_anew_is_read_anew(log: EventLog) -> None:
    """Also where the new one is longer than the old one was."""
    other = EventLog(log.path)
    other.append({"kind": "sold", "items": ["c"]})
    assert len(log.events()) == 4
    for user in ("u1", "u2"):
        text, events = other.text_without(user)
        log.path.write_text(text)
        assert log.events() == other.events() == events


def test_a_user_who_is_forgotten_leaves_a_hash(log: EventLog) -> None:
    text, events = log.text_without("somebody@example.org")
    log.path.write_text(text)
    assert "somebody" not in text
    ids = [f"u{n}" for n in range(100)] + ["somebody@example.org"]
    assert forgotten_users(events, ids) == ["somebody@example.org"]
    assert forgotten_users(events, ids, since=last_number(events)) == []
    assert forgotten_users(log.events()[:-1], ids) == []
    assert forgotten_users([], ids) == []
    copy = EventLog(log.path.with_name("copy.jsonl"))
    copy.append(*forgetting_of(events))
    assert [event["kind"] for event in copy.events()] == ["log", "forgot"]
    assert forgotten_users(copy.events(), ids) == ["somebody@example.org"]
    other = EventLog(log.path.with_name("other.jsonl"))
    other.append()
    assert other.text_without("somebody@example.org")[1][-1]["user"] != events[-1]["user"]  # another salt


def test_a_line_cut_short_does_not_count_and_is_cut_off(log: EventLog) -> None:
    whole = log.path.read_bytes()
    log.append({"kind": "sold", "items": ["c"]})
    line = log.path.read_bytes()[len(whole) :]
    for length in range(len(line)):
        log.path.write_bytes(whole + line[:length])
        events = EventLog(log.path)
        assert "c" not in marks_of(events.events())
        events.append({"kind": "sold", "items": ["d"]})
        assert marks_of(EventLog(log.path).events()) == {"a": "sold", "b": "back", "d": "sold"}


def test_every_changed_byte_is_damage(log: EventLog) -> None:
    content = log.path.read_bytes()
    newlines = {place for place, byte in enumerate(content) if byte == 10}
    for place in range(len(content)):
        log.path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        if place == len(content) - 1:  # the last end of a line: the line does not count
            assert len(EventLog(log.path).events()) == 2
        else:
            with pytest.raises(DataError, match=r"is damaged in line [123]; restore the file"):
                EventLog(log.path).events()
    assert len(newlines) == 3


@pytest.mark.parametrize(
    "line",
    ["", "7", "[]", "{}", '{"check": 5}', '{"kind": "lent", "check": "x"}', "[" * 50_000, "\xff"],
    ids=["empty", "number", "list", "nothing", "check", "kind", "deep", "bytes"],
)
def test_lines_that_are_no_events_are_damage(line: str, log: EventLog) -> None:
    log.path.write_bytes(log.path.read_bytes() + line.encode("latin-1") + b"\n")
    with pytest.raises(DataError, match="is damaged in line 4"):
        log.events()


def test_lines_that_are_missing_in_the_middle_are_allowed_and_twice_are_damage(log: EventLog) -> None:
    lines = log.path.read_text().splitlines(keepends=True)
    log.path.write_text(lines[0] + lines[2])
    assert marks_of(EventLog(log.path).events()) == {"b": "back"}
    log.path.write_text("".join([*lines, lines[1]]))
    with pytest.raises(DataError, match="is damaged in line 4"):
        EventLog(log.path).events()
    log.path.write_text(lines[1])
    with pytest.raises(DataError, match="is damaged in line 1"):
        EventLog(log.path).events()


def test_a_full_disk_leaves_the_log_as_it_was(log: EventLog) -> None:
    code = textwrap.dedent("""
        import resource, signal, sys
        from pathlib import Path
        from gmlfm.errors import DataError
        from gmlfm.runs.events import EventLog
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        log = EventLog(Path(sys.argv[1]))
        try:
            log.append({"kind": "sold", "items": ["x" * 2000]})
        except DataError as error:
            assert "could not be written" in str(error) and "nothing was changed" in str(error), error
        else:
            raise AssertionError
        assert len(log.events()) == 3
        log.append({"kind": "sold", "items": ["y"]})
    """)
    before = log.path.read_bytes()
    assert resource.RLIMIT_FSIZE
    assert signal.SIGXFSZ
    subprocess.run([sys.executable, "-c", code, log.path], check=True)
    after = log.path.read_bytes()
    assert after.startswith(before)
    assert json.loads(after[len(before) :])["items"] == ["y"]


def test_links_are_not_written_through(log: EventLog, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("keep")
    link = tmp_path / "link.jsonl"
    link.symlink_to(other)
    with pytest.raises(DataError):
        EventLog(link).append({"kind": "sold", "items": ["c"]})
    assert other.read_text() == "keep"
    assert os.path.islink(link)


ROWS = [("u1", "i1", 5, None), ("u2", "i2", None, "click"), ("u1", "i3", 2.5, None)]


def test_observed_rows_are_read_by_others_in_order_of_arrival(log: EventLog) -> None:
    other = EventLog(log.path)
    assert other.observed() == []
    log.append_observed(ROWS[:2])
    log.append({"kind": "sold", "items": ["c"]})
    rows = other.observed()
    other.append_observed(ROWS[2:])
    assert log.observed() == other.observed() == EventLog(log.path).observed() == ROWS
    assert other.observed() is rows  # it has grown
    for reader in (log, other, EventLog(log.path)):
        assert [event["kind"] for event in reader.events()] == ["log", "sold", "back", "sold"]
    assert [json.loads(text)["n"] for text in log.path.read_text().splitlines()] == [0, 1, 2, 3, 4, 5]


def test_observed_rows_come_first_in_a_new_log(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    log.append_observed(ROWS)
    assert [json.loads(text)["kind"] for text in log.path.read_text().splitlines()] == ["log", "observed"]
    assert EventLog(log.path).observed() == ROWS
    log.append({"kind": "sold", "items": ["c"]})
    assert marks_of(EventLog(log.path).events()) == {"c": "sold"}


def test_many_rows_at_once_are_some_lines_and_written_at_once(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs: list[int] = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (syncs.append(handle), fsync(handle))[1])
    rows = [(f"u{n % 997}", f"i{n % 31}", n, None) for n in range(50_500)]
    log.append_observed(rows)
    assert len(syncs) == 1
    assert EventLog(log.path).observed() == log.observed() == rows
    assert len(log.path.read_bytes().splitlines()) == 3 + 51


def test_one_more_row_reads_no_more_than_the_end_of_the_log(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log.append_observed([(f"u{n}", "i1", n, None) for n in range(20_000)])
    log.append(*({"kind": "sold", "items": [f"s{n}"]} for n in range(2_000)))
    n_parsed = []
    real = events.parsed
    monkeypatch.setattr(events, "parsed", lambda text: (n_parsed.append(text), real(text))[1])
    for n in range(5):
        log.append_observed([("u1", "i2", n, None)])
    assert n_parsed == []
    EventLog(log.path).append_observed([("u2", "i2", 7, None)])
    n_parsed.clear()
    assert log.observed()[-1] == ("u2", "i2", 7, None)
    assert len(n_parsed) == 1


def test_forgetting_takes_a_user_out_of_the_observed_lines(log: EventLog) -> None:
    rows = [(f"u{n % 3}", f"i{n}", n, None) for n in range(2_500)]
    log.append_observed(rows)
    log.append_observed([("u1", "i1", None, "u1")])  # a line of its own, which goes
    log.append_observed([("u12", "u1", 1, None)])
    reader = EventLog(log.path)
    before = reader.observed()
    n_lines = len(log.path.read_bytes().splitlines())
    text, kept = log.text_without("u1")
    log.path.write_text(text)
    expected = [row for row in [*rows, ("u12", "u1", 1, None)] if row[0] != "u1"]
    assert log.observed() == reader.observed() == EventLog(log.path).observed() == expected
    assert reader.observed() is not before
    assert len(text.splitlines()) == n_lines  # one less, and the hash
    assert log.events() == kept
    log.append_observed([("u1", "i9", 3, None)])  # somebody new, by an old name
    assert EventLog(log.path).observed() == [*expected, ("u1", "i9", 3, None)]


def test_a_line_of_observed_rows_cut_short_does_not_count(log: EventLog) -> None:
    log.append_observed(ROWS[:1])
    whole = log.path.read_bytes()
    log.append_observed(ROWS[1:])
    line = log.path.read_bytes()[len(whole) :]
    for length in range(0, len(line), 7):
        log.path.write_bytes(whole + line[:length])
        later = EventLog(log.path)
        assert later.observed() == ROWS[:1]
        later.append_observed(ROWS[2:])
        assert EventLog(log.path).observed() == [ROWS[0], ROWS[2]]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["full", "stopped"])
def test_rows_that_fail_on_the_way_leave_nothing(error: BaseException, log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log.append_observed(ROWS)
    before, pwrite, calls = log.path.read_bytes(), os.pwrite, []

    def failing(handle: int, text: bytes, place: int) -> int:
        calls.append(place)
        if len(calls) == 2:
            raise error
        return pwrite(handle, text, place)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", failing)
        with pytest.raises(KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else DataError):
            log.append_observed([(f"u{n}", "i" * 50, n, None) for n in range(40_000)])
    assert len(calls) == 2
    assert log.path.read_bytes() == before
    assert log.observed() == EventLog(log.path).observed() == ROWS
    log.append_observed(ROWS[:1])
    assert EventLog(log.path).observed() == [*ROWS, ROWS[0]]


def test_a_reader_who_saw_what_a_writer_took_back_begins_again(log: EventLog) -> None:
    reader = EventLog(log.path)
    before = log.path.read_bytes()
    log.append_observed(ROWS)
    assert reader.observed() == ROWS
    log.path.write_bytes(before)
    assert reader.observed() == []
    EventLog(log.path).append_observed(ROWS[:1])
    assert reader.observed() == ROWS[:1]


def test_observed_rows_leave_the_log_as_often_as_they_are_given(log: EventLog) -> None:
    rows = [("u", "i", None, None), ("u", "j", 3, "click"), ("u", "i", None, None), ("v", "i", 4.5, None)]
    log.append_observed(rows[:2])
    log.append_observed(rows[2:])
    before = log.path.read_text()
    text = log.text_without_rows([rows[0], rows[1]])
    assert log.path.read_text() == before
    log.path.write_text(text)
    for reader in (log, EventLog(log.path)):
        assert reader.observed() == rows[2:]
        assert [event["kind"] for event in reader.events()] == ["log", "sold", "back"]
    log.append_observed(rows[:1])
    assert EventLog(log.path).observed() == [*rows[2:], rows[0]]
