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
