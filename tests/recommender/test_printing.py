from __future__ import annotations

from dataclasses import replace

from gmlfm import Recommender
from gmlfm.recommender.printing import facts


def test_before_it_is_fitted_it_prints_its_settings() -> None:
    assert str(Recommender("fm", k=3)).splitlines() == [
        "Recommender 'fm' for topn",
        "  settings  k=3",
        "  fitted    not yet; call fit(data), or Recommender.load(folder)",
    ]
    assert facts(Recommender())["settings"] == "the defaults"
    assert facts(Recommender(preset="paper"))["settings"].startswith("preset=paper, ")


def test_fitted_it_prints_what_it_learned_from_and_what_validation_said(trained: Recommender) -> None:
    run = trained.fitted
    shown = facts(trained)
    assert (
        shown["settings"]
        == "k=8, epochs=6, lr=0.02, threads=1, batch_size=64, n_negatives=2, history=last,recent,past, user_id=False"
    )
    assert shown["fitted on"] == "'checkerboard': 40 users, 42 items, 760 rows"
    assert shown["fields"] == "user.team, item.colour, item.price, item.tags"
    assert shown["split"] == f"leave-one-out: {len(run.split.train)} / 40 / 40 rows, no refit"
    assert shown["best epoch"] == f"{run.best_epoch} of {len(run.curve)}"
    assert f"ndcg@10 {run.validation['ndcg@10']:.4f}" in shown["validation"]
    assert all(f"  {name}" in str(trained) for name in shown)
    assert "epoch" not in str(Recommender("popularity").fit(run.data))


def test_names_of_others_are_text(trained: Recommender) -> None:
    data = trained.fitted.data
    hostile = Recommender("popularity").fit(replace(data, schema=replace(data.schema, name="<b>\x1b[2J")))
    assert r"'<b>\x1b[2J'" in str(hostile)
    assert "<b>" not in hostile._repr_html_()
    assert "&lt;b&gt;" in hostile._repr_html_()
