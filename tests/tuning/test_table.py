"""A comparison as a table of texts, and as Markdown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gmlfm import load_dataset
from gmlfm.tuning import Budget, Comparison, Plan, compare
from gmlfm.tuning.rows import Row
from gmlfm.tuning.table import headings, legend, markdown, text_rows, title

BEST = Row(
    model="gml-fm",
    means={"ndcg@10": 0.51234, "hr@10": 0.7},
    low=0.5,
    high=0.52,
    seed_spread=0.001,
    against="fm",
    difference=0.0123,
    p_value=0.004,
    validation=0.53,
    trials=20,
    failed=2,
    seconds=61.4,
    final_seconds=20.0,
    at_border=("lr", "k"),
    settings={"lr": 0.0299999, "k": 128, "loss": "bpr"},
    fixed={},
)
OTHER = replace(BEST, model="fm", against="", failed=0, at_border=())
COMPARISON = Comparison(
    "bazaar", "topn", "leave-one-out", "full", "ndcg@10", "20 trials a method", None, 3, True, False, (BEST, OTHER), {}
)


def test_every_row_is_as_long_as_the_headings() -> None:
    rows = text_rows(COMPARISON)
    assert {len(row) for row in rows} == {len(headings(COMPARISON))}
    shown = dict(zip(headings(COMPARISON), rows[0], strict=True))
    assert shown == {
        "method": "gml-fm",
        "NDCG@10": "0.5123",
        "95 % interval": "0.5000 to 0.5200",
        "seeds' spread": "0.0010",
        "HR@10": "0.7000",
        "against the best other": "+0.0123** (fm)",
        "NDCG@10 validation": "0.5300",
        "trials": "20 (2 failed)",
        "seconds: search + final": "41 + 20",
        "best values at a border": "lr=0.03, k=128",
    }
    assert rows[1][5] == rows[1][-1] == "-"


def test_a_share_is_shown_where_it_was_not_enough_and_fixed_settings_where_there_are_some() -> None:
    rows = (replace(BEST, fixed={"k": 64, "batch_size": None}), OTHER)
    for share, shown in ((40.0, "41 + 20 (share 40)"), (61.3, "41 + 20"), (None, "41 + 20")):
        comparison = replace(COMPARISON, share=share, rows=rows)
        cells = [dict(zip(headings(comparison), row, strict=True)) for row in text_rows(comparison)]
        assert cells[0]["seconds: search + final"] == shown
        assert [row["fixed settings"] for row in cells] == ["k=64, batch_size=auto", "-"]
        assert ("A trial that the end of the seconds cuts short counts" in legend(comparison)) == (share is not None)


@pytest.mark.parametrize(("p_value", "marks"), [(0.2, ""), (0.049, "*"), (0.009, "**"), (0.0009, "***")])
def test_stars_are_levels_of_significance(p_value: float, marks: str) -> None:
    comparison = replace(COMPARISON, rows=(replace(BEST, p_value=p_value),))
    assert text_rows(comparison)[0][5] == f"+0.0123{marks} (fm)"


def test_ratings_are_shown_by_rmse_and_mae() -> None:
    row = replace(BEST, means={"rmse": 0.9, "mae": 0.7})
    comparison = replace(COMPARISON, task="rating", rows=(row,))
    assert headings(comparison)[1] == "RMSE"
    assert text_rows(comparison)[0][1:5:3] == ["0.9000", "0.7000"]


def test_the_title_says_what_was_compared_and_how() -> None:
    expected = "bazaar, topn, leave-one-out, full, TEST, refit on train + validation; 20 trials a method, mean of 3 seeds"
    assert title(COMPARISON) == expected
    assert title(replace(COMPARISON, refit=False, seeds=1)).endswith("TEST, no refit; 20 trials a method, mean of 1 seed")


def test_markdown_has_the_table_the_legend_and_who_could_not_take_part() -> None:
    lines = markdown(replace(COMPARISON, failures={"ease": "too large."})).splitlines()
    assert lines[0] == f"# {title(COMPARISON)}"
    assert lines[2].startswith("| method | NDCG@10 |")
    assert lines[3] == "| " + " | ".join(["---"] * 10) + " |"
    assert lines[4].startswith("| gml-fm | 0.5123 |")
    assert legend(COMPARISON) in lines
    assert lines[-1] == "ease could not take part: too large."
    assert legend(COMPARISON).startswith("Choices were made on validation alone")


def test_the_papers_choice_on_test_is_marked(market: Path, tmp_path: Path) -> None:
    plan = Plan(("mf", "fm"), protocol="sampled", seeds=1, preset="paper")
    comparison = compare(load_dataset(market), plan, Budget(trials=1), tmp_path, threads=1)
    text = markdown(comparison)
    assert "CHOICES WERE MADE ON THE TEST PART" in text
    assert "no refit" in text
    assert "NDCG@10 TEST, as published" in text


def test_names_and_values_bring_no_html_and_no_cells_into_markdown() -> None:
    row = replace(BEST, model="<b>mine</b>", settings={"lr": "a|b", "k": 1}, at_border=("lr",))
    page = markdown(replace(COMPARISON, data="<img src=x>", rows=(row,), failures={"fm": "<i>no</i>\n# such"}))
    assert "<" not in page.replace(legend(COMPARISON), "")
    assert "&lt;b&gt;mine&lt;/b&gt;" in page
    assert r"lr=a\|b" in page
    assert page.count("\n#") == 0
    assert len({line.replace(r"\|", "").count("|") for line in page.splitlines() if line.startswith("|")}) == 1
