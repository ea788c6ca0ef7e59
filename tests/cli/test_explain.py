from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gmlfm import Recommender
from gmlfm.cli import main


def test_terms_sum_to_the_score(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    best, second = Recommender.load(run).recommend(["b0000003"], 2).to_dicts()
    command = ["explain", run, "--user", "b0000003", "--item", best["item"]]
    capsys.readouterr()
    assert main([*command, "--json"]) == 0
    explanation = json.loads(capsys.readouterr().out)
    assert explanation["score"] == pytest.approx(best["score"], abs=1e-5)
    assert sum(term["value"] for term in explanation["terms"]) == pytest.approx(explanation["score"])
    assert {"kind", "fields", "attributes", "value"} <= set(explanation["terms"][0])
    grouped = {tuple(group["fields"]): group["value"] for group in explanation["by_fields"]}
    assert sum(grouped.values()) == pytest.approx(explanation["score"])
    assert grouped[()] == pytest.approx(next(term["value"] for term in explanation["terms"] if term["kind"] == "global"))
    assert main([*command, "--against", second["item"], "--json"]) == 0
    contrast = json.loads(capsys.readouterr().out)
    assert contrast["by_fields"] == explanation["by_fields"]
    difference = sum(group["value"] for group in contrast["against"])
    assert difference == pytest.approx(best["score"] - second["score"], abs=1e-5)
    assert main([*command, "--against", second["item"], "--picture", str(tmp_path / "why.svg")]) == 0
    shown = capsys.readouterr().out
    assert "against" in shown
    assert "weight" not in shown  # those of the score itself, which is not what the title announces
    ElementTree.fromstring((tmp_path / "why.svg").read_text())
    assert main([*command, "--against", "mean"]) == 0
    assert "the catalogue's mean" in capsys.readouterr().out


def test_context_changes_the_explanation(context_run: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["explain", context_run, "--user", "1", "--item", "p3", "--against", "p4", "--json"]
    results = []
    for daytime in ("morning", "evening"):
        capsys.readouterr()
        assert main([*command, "--context", f"daytime={daytime}"]) == 0
        results.append(json.loads(capsys.readouterr().out))
        attributes = {attribute for term in results[-1]["terms"] for attribute in term["attributes"]}
        assert f"context.daytime = {daytime}" in attributes
    assert results[0]["score"] != results[1]["score"]
    assert results[0]["against"] != results[1]["against"]


def test_wrong_use_is_one_sentence(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    for more, message in (([], "is not in the catalogue"), (["-n", "0"], "-n is 0; expected 1 or more")):
        assert main(["explain", run, "--user", "b0000003", "--item", "nothing", *more]) == 2
        assert message in capsys.readouterr().err


def test_a_user_of_whom_nothing_is_known(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    item = Recommender.load(run).fitted.data.items.ids[0]
    assert main(["explain", run, "--user", "nobody", "--item", item]) == 0
    assert "nothing is known of this user" in capsys.readouterr().out


def test_what_stands_below_is_what_the_title_announces(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    recommender = Recommender.load(run)
    best, second = recommender.recommend(["b0000003"], 2)["item"].to_list()
    command = ["explain", run, "--user", "b0000003", "--item", best, "-n", "2"]
    capsys.readouterr()
    assert main(command) == 0
    shown = capsys.readouterr().out
    strongest = max(
        (term for term in recommender.explain("b0000003", best).terms if term.kind == "pair"), key=lambda term: abs(term.value)
    )
    behind = "\n" if strongest.distance is None else " (weight"
    assert f"{' x '.join(strongest.attributes)}: {strongest.value:+.4f}{behind}" in shown
    own, other = (recommender.explain("b0000003", item).by_fields() for item in (best, second))
    for against, name in ((second, f"of {second}"), ("mean", "in the mean")):
        assert main([*command, "--against", against]) == 0
        shown = capsys.readouterr().out
        contrast = recommender.contrast("b0000003", best, None if against == "mean" else against)
        fields, difference = next(iter(contrast.items()))
        label = recommender.explain("b0000003", best).labels()[fields]
        assert f"{label}: {own[fields]:+.4f}, {own[fields] - difference:+.4f} {name}" in shown
        if against == second:
            assert own[fields] - difference == pytest.approx(other[fields])


def test_a_narrow_terminal_has_room_for_the_fields(
    plain_run: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    item = Recommender.load(plain_run).recommend(["b0000003"], 1)["item"][0]
    capsys.readouterr()
    assert main(["explain", plain_run, "--user", "b0000003", "--item", item]) == 0
    table = [row for row in capsys.readouterr().out.splitlines() if row.startswith("│")]
    assert len(table) == 12 + 1  # a row for each, none of two lines
    assert max(map(len, table)) <= 80


@pytest.mark.parametrize(("ending", "start"), [(".svg", b"<svg"), (".png", b"\x89PNG"), (".PDF", b"%PDF")])
def test_a_picture_is_written_as_its_name_ends(ending: str, start: bytes, run: str, tmp_path: Path) -> None:
    item = Recommender.load(run).fitted.data.items.ids[0]
    picture = tmp_path / f"why{ending}"
    assert main(["explain", run, "--user", "b0000003", "--item", item, "--picture", str(picture)]) == 0
    assert picture.read_bytes().startswith(start)


def test_another_ending_is_refused_before_anything_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["explain", "nowhere", "--user", "u", "--item", "i"], ["attributes", "nowhere"]):
        assert main([*command, "--picture", str(tmp_path / "why.jpg")]) == 2
        assert "ends in '.jpg'; expected .svg, .png, .pdf." in capsys.readouterr().err


def test_a_run_with_histories_shows_what_each_earlier_item_adds(
    history_run: str, plain_run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recommender = Recommender.load(history_run)
    best = recommender.recommend(["b0000003"], 1)["item"][0]
    command = ["explain", history_run, "--user", "b0000003", "--item", best]
    capsys.readouterr()
    assert main([*command, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert sum(term["value"] for term in answer["terms"]) == pytest.approx(answer["score"])
    of_history = [term for term in answer["terms"] if "role" in term]
    assert {term["role"] for term in of_history} == {"last", "recent", "past"}
    assert all({"kind", "fields", "attributes", "value", "earlier"} <= set(term) for term in of_history)
    assert not any("earlier" in term for term in answer["terms"] if "role" not in term)
    sums: dict[str, float] = {}
    for term in of_history:
        sums[term["earlier"]] = sums.get(term["earlier"], 0.0) + term["value"]
    assert {event["item"]: event["value"] for event in answer["by_event"]} == pytest.approx(sums)
    values = [abs(event["value"]) for event in answer["by_event"]]
    assert values == sorted(values, reverse=True)
    assert sum(group["value"] for group in answer["by_fields"]) == pytest.approx(answer["score"])
    assert main([*command, "--picture", str(tmp_path / "why.svg")]) == 0
    shown = capsys.readouterr().out
    labels = recommender.explain("b0000003", best).event_labels()
    strongest = answer["by_event"][0]
    assert labels[strongest["item"]].startswith("after ")
    assert f"{labels[strongest['item']]}" in shown
    assert f"{strongest['value']:+.4f}" in shown
    assert "after " in (tmp_path / "why.svg").read_text()
    assert main([*command, "--against", "mean"]) == 0
    assert "past." in capsys.readouterr().out  # by fields, roles and all
    assert main(["explain", plain_run, "--user", "b0000003", "--item", best, "--json"]) == 0
    without = json.loads(capsys.readouterr().out)
    assert "by_event" not in without
    assert not any("role" in term or "earlier" in term for term in without["terms"])
