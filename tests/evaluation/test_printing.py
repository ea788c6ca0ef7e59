from __future__ import annotations

import numpy as np

from gmlfm.evaluation.protocols import Evaluation

USERS = np.array([0, 0, 1, 2], np.int32)
QUERIES = {"hr@10": np.array([1.0, 0.0, 1.0, 1.0]), "ndcg@10": np.array([1.0, 0.0, 0.5, 0.5])}


def evaluation(notes: tuple[str, ...] = ("4 rows are left out.",)) -> Evaluation:
    metrics = {"hr@10": 0.75, "ndcg@10": 0.5, "coverage@10": 0.1}
    return Evaluation("full", metrics, QUERIES, users=USERS, notes=notes)


def test_metrics_are_printed_with_their_errors_and_how_much_was_tested() -> None:
    errors = evaluation().errors
    assert repr(evaluation()) == (
        f"<Evaluation full, hr@10 0.7500 ± {errors['hr@10']:.4f}, ndcg@10 0.5000 ± {errors['ndcg@10']:.4f}, 4 rows of 3 users>"
    )
    assert str(evaluation()).splitlines() == [
        "full: 4 rows of 3 users; standard errors are over users",
        f"hr@10              0.7500 ± {errors['hr@10']:.4f}",
        f"ndcg@10            0.5000 ± {errors['ndcg@10']:.4f}",
        "coverage@10        0.1000",
        "4 rows are left out.",
    ]


def test_a_notebook_has_a_table_with_the_groups_beside() -> None:
    html = evaluation().by_group(("known", "new <b>"), np.array([0, 0, 1, 1], np.int8))._repr_html_()
    assert "<caption>full: 4 rows of 3 users; standard errors are over users</caption>" in html
    number = '<td style="text-align:right">'
    assert (
        f"<tr><td>hr@10</td>{number}0.7500</td>{number}{evaluation().errors['hr@10']:.4f}</td>{number}0.5000</td>{number}1.0000</td></tr>"
        in html
    )
    assert f"<tr><td>rows</td>{number}4</td><td></td>{number}2</td>{number}2</td></tr>" in html
    assert f"<tr><td>coverage@10</td>{number}0.1000</td><td></td><td></td><td></td></tr>" in html
    assert "<th>new &lt;b&gt;</th>" in html
    assert "<p>4 rows are left out.</p>" in html


def test_without_queries_or_errors_it_prints_what_there_is() -> None:
    assert repr(Evaluation("labels", {"rmse": 1.0})) == "<Evaluation labels, rmse 1.0000, 0 rows of 0 users>"
    alone = Evaluation("full", {"hr@10": 1.0}, {"hr@10": np.ones(1)}, users=np.zeros(1, np.int32))
    assert str(alone).splitlines()[0] == "full: 1 row of 1 user"


def test_notes_are_text() -> None:
    hostile = evaluation(("<i>\x1b[2J",))
    assert "<i>" not in hostile._repr_html_()
    assert r"<i>\x1b[2J" in str(hostile)
