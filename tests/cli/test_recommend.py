from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gmlfm import Recommender
from gmlfm.cli import main

USER = ["--user", "b0000003"]


def _rows(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(["recommend", *arguments, "--json"]) == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return rows


def test_the_best_items(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = _rows([run, *USER, "-n", "3"], capsys)
    assert [row["rank"] for row in rows] == [1, 2, 3]
    assert {"user", "item", "score", "rank"} <= set(rows[0])
    expected = Recommender.load(run).recommend(["b0000003"], 3)["item"].to_list()
    assert [row["item"] for row in rows] == expected
    assert main(["recommend", run, "--user", "nobody", "-n", "2"]) == 0
    assert "user 'nobody' was not met in training: nothing is known of this user" in capsys.readouterr().out


def test_newcomers_by_attributes_and_history(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    history = Recommender.load(run).fitted.data.items.ids[0]
    capsys.readouterr()
    command = ["recommend", run, "--attributes", "age=20-29,region=Osaka", "--history", f"{history},zz", "-n", "4", "--json"]
    assert main(command) == 0
    printed = capsys.readouterr()
    rows = json.loads(printed.out)
    assert len(rows) == 4
    assert history not in [row["item"] for row in rows]
    assert "the item 'zz' of the history is unknown" in printed.err


def test_more_available_ids_than_a_name_is_long(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    ids = ",".join(f"t{number:09d}" for number in range(1, 400))
    assert len(_rows([run, *USER, "-n", "3", "--available", ids], capsys)) == 3


def test_available_items_by_ids_and_by_files(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ids = [row["item"] for row in _rows([run, *USER, "-n", "9"], capsys)][3:6]
    (tmp_path / "ids.txt").write_text("\n".join(ids) + "\n")
    pl.DataFrame({"price": [1, 2, 3], "item": ids}).write_csv(tmp_path / "stock.csv")
    for available in (",".join(ids), str(tmp_path / "ids.txt"), str(tmp_path / "stock.csv")):
        assert [row["item"] for row in _rows([run, *USER, "-n", "3", "--available", available], capsys)] == ids
    rows = _rows([run, "--attributes", "age=20-29", "-n", "3", "--available", ",".join(ids)], capsys)
    assert {row["item"] for row in rows} == set(ids)


def test_at_most_so_many_of_a_value(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = _rows([run, *USER, "-n", "8", "--at-most", "genre=1"], capsys)
    items = Recommender.load(run).fitted.data.items
    genre_of = dict(zip(items.ids.to_list(), items.fields["genre"].to_list(), strict=True))
    chosen = [genre_of[row["item"]] for row in rows]
    assert len(set(chosen)) == len(chosen) == 8


def test_candidates_of_the_catalogue(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Things sell once: what has a sale is gone, unless the whole catalogue is asked for."""
    data = Recommender.load(run).fitted.data
    n_sold, n_all = int(data.single_unit_items[data.seen_items].sum()), len(data.items)
    assert 0 < n_sold < n_all
    items = [
        {row["item"] for row in _rows([run, *USER, "--seen", "-n", str(n), "--candidates", candidates], capsys)}
        for candidates, n in (("interactions", n_all - n_sold), ("catalogue", n_all))
    ]
    assert [len(chosen) for chosen in items] == [n_all - n_sold, n_all]
    assert items[0] < items[1]


def test_context_changes_the_scores(context_run: str, capsys: pytest.CaptureFixture[str]) -> None:
    for user, is_changed in (("1", True), ("nobody", False)):  # what is popular has no context
        command = [context_run, "--user", user, "--seen", "--context"]
        scores = [
            {row["item"]: row["score"] for row in _rows([*command, f"daytime={daytime}"], capsys)}
            for daytime in ("morning", "evening")
        ]
        assert (scores[0] != scores[1]) == is_changed


def test_everybody_into_a_file(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "recs.parquet"
    ids = [row["item"] for row in _rows([run, *USER, "-n", "20"], capsys)]
    available = ["--available", ",".join(ids), "--at-most", "genre=2"]
    assert main(["recommend", run, "--all", "--out", str(out), "-n", "2", "--seen", *available, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"out": str(out), "users": 120}
    table = pl.read_parquet(out)
    assert table.height == 240
    assert set(table["item"]) <= set(ids)
    assert [path.name for path in tmp_path.iterdir()] == ["recs.parquet"]


def test_parts_of_other_options_are_not_taken_over(run: str, tmp_path: Path) -> None:
    parts = tmp_path / ".recs.parquet.parts"
    parts.mkdir()
    (parts / "stamp.json").write_text("[]")
    pl.DataFrame({"user": ["somebody else"]}).write_parquet(parts / "000000000000.parquet")
    out = tmp_path / "recs.parquet"
    assert main(["recommend", run, "--all", "--out", str(out), "-n", "1"]) == 0
    assert pl.read_parquet(out).height == 120


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "say for whom"),
        (["--all"], "--all needs --out FILE.parquet"),
        (["--attributes", "age"], "--attributes takes K=V"),
        (["--user", "a", "--out", "x.parquet"], "--out goes with --all"),
        (["--user", "a", "--history", "i"], "say for whom, in one way"),
        (["--user", "a", "--attribute", "age=20-29"], "say for whom, in one way"),
        (["--attribute", "age"], "--attribute takes K=V, such as \"city=Washington, D.C.\"; got 'age'"),
        (["--attribute", "age=1", "--attribute", "age=2"], "the attribute 'age' is given twice; give each once"),
        (["--attributes", "age=1", "--attribute", "age=2"], "the attribute 'age' is given twice"),
        (["--attributes", "age=20-29", "--seen"], "--seen goes with"),
        (["--attributes", "age=20-29", "--candidates", ""], "candidates is ''; expected interactions or catalogue"),
        ([*USER, "--at-most", "genre"], "--at-most takes K=V"),
        ([*USER, "--at-most", "genre=few"], "--at-most takes FIELD=N with a whole number N; got 'genre=few'"),
        ([*USER, "--at-most", "gender=2"], "did you mean 'genre'"),
        ([*USER, "--available", "gone.csv"], "--available gone.csv does not exist"),
        ([*USER, "--candidates", "all"], "candidates is 'all'; expected interactions or catalogue"),
        ([*USER, "--context", "daytime=9"], "the data have no context"),
    ],
)
def test_wrong_use_is_one_sentence(run: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["recommend", run, *arguments]) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1


def test_a_table_without_items_is_refused(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "stock.csv").write_text("thing,price\na,1\nb,2\n")
    capsys.readouterr()
    assert main(["recommend", run, *USER, "--available", str(tmp_path / "stock.csv")]) == 2
    assert "has the columns thing, price; expected 'item'" in capsys.readouterr().err


def test_a_value_with_commas_has_an_option_of_its_own(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    by_list = _rows([run, "--attributes", "age=20-29,region=Osaka", "-n", "3"], capsys)
    for more in (
        ["--attribute", "region=Osaka", "--attribute", "age=20-29"],
        ["--attributes", "age=20-29", "--attribute", "region=Osaka"],
    ):
        assert _rows([run, *more, "-n", "3"], capsys) == by_list
    assert main(["recommend", run, "--attribute", "region=Washington, D.C.", "-n", "1"]) == 0
    assert "user.region = 'Washington, D.C.' was never met in training" in capsys.readouterr().out


def test_a_history_alone_is_enough(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    recommender = Recommender.load(run)
    history = recommender.fitted.data.items.ids[0]
    rows = _rows([run, "--history", history, "-n", "3"], capsys)
    assert [row["item"] for row in rows] == recommender.recommend_for(history=[history], n=3)["item"].to_list()
    assert main(["recommend", run, "--history", history, "-n", "3"]) == 0
    assert "user" not in capsys.readouterr().out  # there is none to name


def test_seen_items_of_a_history_are_ranked_too(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    first = _rows([run, "--attributes", "age=20-29", "-n", "1"], capsys)[0]["item"]
    asked = [run, "--history", first, "-n", "300", "--candidates", "catalogue"]
    assert first not in {row["item"] for row in _rows(asked, capsys)}
    n = len(Recommender.load(run).fitted.data.items)
    rows = _rows([*asked[:3], "-n", str(n), "--candidates", "catalogue", "--seen"], capsys)
    assert first in {row["item"] for row in rows}


def test_an_unknown_context_is_noted(context_run: str, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in (["recommend"], ["predict", "--item", "p3"], ["explain", "--item", "p3"]):
        capsys.readouterr()
        command = [verb[0], context_run, "--user", "1", *verb[1:], "--context", "daytime=noon"]
        assert main(command) == 0
        assert "note context.daytime = 'noon' was never met in training; it counts as unknown." in capsys.readouterr().out


def test_because_names_an_earlier_item(
    history_run: str, plain_run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recommender = Recommender.load(history_run)
    expected = recommender.recommend(["b0000003"], 5, because=True)
    command = ["recommend", history_run, "-n", "5", "--because"]
    capsys.readouterr()
    assert main([*command, "--user", "b0000003", "--json"]) == 0
    assert [row["because"] for row in json.loads(capsys.readouterr().out)] == expected["because"].to_list()
    assert expected["because"].null_count() < 5
    assert main([*command, "--user", "b0000003"]) == 0
    assert "because" in capsys.readouterr().out
    items = ",".join(recommender.fitted.data.items.ids.to_list()[:2])
    assert main([*command, "--history", items, "--json"]) == 0
    assert {"because"} <= set(json.loads(capsys.readouterr().out)[0])
    out = tmp_path / "all.parquet"
    assert main([*command, "--all", "--out", str(out)]) == 0
    written = pl.read_parquet(out).filter(pl.col("user") == "b0000003")
    assert written["because"].to_list() == expected["because"].to_list()
    capsys.readouterr()
    assert main(["recommend", plain_run, "--user", "b0000003", "--because"]) == 2
    assert "this run of 'gml-fm' does not read what users did before" in capsys.readouterr().err
