"""gmlfm demo: train, evaluate and recommend on the built-in market, and write a report page."""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table

from gmlfm.cli.options import add_command, shared_options
from gmlfm.cli.output import console_for, field_names, print_json, verbatim
from gmlfm.cli.progress import EpochLines
from gmlfm.cli.report import Report
from gmlfm.data.describe import Summary, describe
from gmlfm.data.sources.bazaar import Market, Oracle, bazaar_dataset
from gmlfm.data.sources.bazaar.tables import item_number
from gmlfm.progress import activity

if TYPE_CHECKING:
    from gmlfm.data.dataset import Dataset, Rows
    from gmlfm.recommender import Recommender

_OUT = "runs/demo"
_EPOCHS_WITH_HISTORY, _WITH_HISTORY = 6, "gml-fm, with histories"
NEWCOMER = {"age": "20-29", "region": "Osaka"}
# Any order that knows nothing, ten places of a hundred: 10 / 100, and the sum of 1 / log2(place + 1) over ten places / 100.
CHANCE = {"hr@10": 0.1, "ndcg@10": sum(1 / math.log2(place + 1) for place in range(1, 11)) / 100}


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "demo",
        "train, evaluate and recommend on the built-in market",
        "About two minutes: the built-in second-hand market, gml-fm-unit trained on who and what, gml-fm on what buyers did "
        "before, too, a table against popularity and the oracle's ceiling, a buyer whose next purchase changes the list, a "
        "newcomer, and a report page with pictures.",
        ["gmlfm demo", "gmlfm demo --users 500 --epochs 3 --out runs/small"],
    )
    parser.add_argument("--out", default=_OUT, metavar="DIR", help=f"the run folder (default: {_OUT}, replaced each time)")
    parser.add_argument("--force", action="store_true", help="replace the run that is in --out")
    parser.add_argument("--users", type=int, metavar="N", help="a smaller or larger market")
    parser.add_argument("--epochs", type=int, default=12, metavar="N", help="at most so many epochs (default: 12)")
    shared_options(parser)
    parser.set_defaults(run=run)


class OracleScores:
    """Scores by the market's true tastes, with the methods of a trained model's ranker: the ceiling."""

    def __init__(self, market: Market, data: Dataset) -> None:
        self._oracle, self._numbers = Oracle(market), item_number(data.items.ids).to_numpy()
        self._seconds = data.interactions["time"].to_numpy() // 1_000_000

    def score_pairs(self, users: Any, items: Any, rows: Rows | None = None) -> Any:
        assert rows is not None
        seconds = np.repeat(self._seconds[rows], items.shape[1])
        repeated = np.repeat(users.astype(np.int64), items.shape[1])
        return self._oracle.score(repeated, self._numbers[items.ravel()], seconds).reshape(items.shape).astype(np.float32)

    def score_all(self, users: Any, items: Any, rows: Rows | None = None) -> Any:
        return self.score_pairs(users, np.tile(items, (len(users), 1)), rows)


def run(options: argparse.Namespace) -> None:
    from gmlfm.evaluation.protocols import evaluate_held_out
    from gmlfm.recommender import Recommender
    from gmlfm.retrieval import Ranker

    console = console_for(stderr=options.json)
    started = time.perf_counter()
    market = Market() if options.users is None else Market(options.users, options.users * 12)
    with activity("making the market"):
        data = bazaar_dataset(market)
        summary = describe(data)
    console.rule("1. The data")
    console.print(f"{_counts(summary)} of a made-up second-hand market.")
    console.print(f"{summary.tail[0].items:,} items were sold once: an item's id tells nothing, its attributes must.")
    console.print(
        f"{summary.attributes:,} attributes in {len(summary.fields)} fields; {_unsold(data):,} items wait for a buyer."
    )
    console.print(
        "Trained on what was sold first, tested on what was sold last, among listings that could be had at that moment."
    )
    console.rule("2. Training")
    console.print("gml-fm-unit, on who and what:")
    plain = Recommender("gml-fm-unit", seed=0, epochs=options.epochs, patience=2).fit(data, observer=EpochLines(console))
    console.print("gml-fm, on what buyers did before, too:")
    model = Recommender("gml-fm", seed=0, epochs=min(options.epochs, _EPOCHS_WITH_HISTORY))
    force = options.force or options.out == _OUT
    model.fit(data, out=options.out, force=force, observer=EpochLines(console))
    popular = Recommender("popularity").fit(data)
    console.rule("3. HR@10 and NDCG@10 among 100, test part")
    fitted = model.fitted
    scorers: dict[str, Ranker] = {
        "popularity": popular.fitted.ranker,
        "gml-fm-unit": plain.fitted.ranker,
        _WITH_HISTORY: fitted.ranker_of("test"),
        "the oracle, who knows every taste": OracleScores(market, data),
    }
    evaluations = {}
    for name, scorer in scorers.items():
        with activity(f"testing {name}"):
            evaluations[name] = evaluate_held_out(scorer, data, fitted.split, "test", "sampled")
    results = {"chance": CHANCE} | {name: evaluation.metrics for name, evaluation in evaluations.items()}
    table = Table(header_style="bold")
    for heading in ("", "HR@10", "NDCG@10"):
        table.add_column(heading, justify="left" if not heading else "right")
    for name, metrics in results.items():
        table.add_row(name, f"{metrics['hr@10']:.3f}", f"{metrics['ndcg@10']:.3f}")
    console.print(table)
    for note in evaluations[_WITH_HISTORY].notes:
        console.print(f"[dim]{verbatim(note)}[/]")
    console.rule("4. Recommendations")
    buyer = data.users.ids[int(fitted.data.user_numbers[fitted.split.test[0]])]
    _withdraw_earlier(model, buyer)
    with activity("recommending"):
        for_buyer, for_newcomer = model.recommend([buyer], 10), model.recommend_for(NEWCOMER, n=10)
    _show(console, f"Buyer {buyer}, who last bought: {'; '.join(_bought(data, buyer)[-3:])}", for_buyer)
    with activity("explaining"):
        contrast = model.contrast(buyer, for_buyer["item"][0])
        earlier = model.explain(buyer, for_buyer["item"][0]).by_event()
    why = {field_names(fields): value for fields, value in list(contrast.items())[:6]}
    console.print(f"Why the first for {buyer}? More than the catalogue's mean by:")
    for fields, value in why.items():
        console.print(f"  {value:+.3f}  {verbatim(fields)}", highlight=False)
    titles = dict(zip(data.items.ids.to_list(), _titles(data), strict=True))
    strongest = max(earlier, key=lambda item: earlier[item])
    console.print(f"Most of it after: {verbatim(titles[str(strongest)])} ({earlier[strongest]:+.3f})", highlight=False)
    bought = for_buyer["item"][0]
    model.observe({"user": buyer, "item": bought})
    with activity("recommending"):
        changed = model.recommend([buyer], 10)
    n_new = len(set(changed["item"].to_list()) - set(for_buyer["item"].to_list()))
    _show(console, f"The same buyer, having bought {titles[bought]}: {n_new} of 10 are new", changed)
    _show(console, f"Somebody new, {' '.join(NEWCOMER.values())}", for_newcomer)
    path = Path(options.out) / "report.html"
    with activity("drawing the report"):
        _report(model, data, summary, results, for_buyer, for_newcomer, buyer, why).write(path)
    console.print(
        f"The report with pictures: [bold]{verbatim(path)}[/] ({time.perf_counter() - started:.0f} s in all)", soft_wrap=True
    )
    console.print("Your own tables: gmlfm init FILE..., then gmlfm train")
    console.print(f"Explore what was just trained in a browser: [bold]gmlfm serve {verbatim(options.out)}[/]", soft_wrap=True)
    if options.json:
        print_json({"report": str(path), "hash": data.content_hash, "results": results})


def _withdraw_earlier(model: Recommender, buyer: str) -> None:
    """What an earlier demo observed of its buyer, which a training in the same folder keeps, goes: demos show the same lists.
    What somebody else observed has a time or a kind of event, or is of another user."""
    from gmlfm.runs import RunFolder

    rows = [row for row in model.observed.rows_of(buyer) if row[2:] == (None, None)]
    if rows and model.folder is not None:
        RunFolder(model.folder).withdraw(rows)
        model.reload()


def _counts(summary: Summary) -> str:
    return f"{summary.users:,} buyers, {summary.items:,} items, {summary.interactions:,} purchases"


def _unsold(data: Dataset) -> int:
    return len(data.items) - len(data.seen_items)


def _show(console: Console, title: str, rows: pl.DataFrame) -> None:
    table = Table(title=verbatim(title), title_justify="left", header_style="bold")
    for heading in ("rank", "score", "item", "title"):
        table.add_column(heading, justify="right" if heading in ("rank", "score") else "left")
    for row in rows.iter_rows(named=True):
        table.add_row(str(row["rank"]), f"{row['score']:.3f}", row["item"], row["title"])
    console.print(table)


def _bought(data: Dataset, buyer: str) -> list[str]:
    """In the order of time."""
    number, titles = data.users.ids.to_list().index(buyer), _titles(data)
    rows = data.order_in_time(np.flatnonzero(data.user_numbers == number))
    return [titles[int(item)] for item in data.item_numbers[rows]]


def _titles(data: Dataset) -> list[str]:
    assert data.items.titles is not None
    return data.items.titles.to_list()


def _report(
    model: Recommender,
    data: Dataset,
    summary: Any,
    results: Any,
    for_buyer: pl.DataFrame,
    for_newcomer: pl.DataFrame,
    buyer: str,
    why: dict[str, float],
) -> Report:
    page = Report("gmlfm on the built-in market")
    page.text(f"{_counts(summary)}; data {data.content_hash}, split {model.fitted.split.hash}, seed 0.")
    page.heading("How good is it?")
    page.table(
        ["sampled, test", "HR@10", "NDCG@10"],
        [(name, metrics["hr@10"], metrics["ndcg@10"]) for name, metrics in results.items()],
    )
    epochs = model.fitted.curve
    curves = {name: [epoch["validation"][name] for epoch in epochs] for name in ("hr@10", "ndcg@10")}
    losses = [epoch["loss"] for epoch in epochs]
    page.lines("Training loss and validation metrics by epoch, each on its own scale", {"loss": losses, **curves})
    page.heading("The long tail")
    tail = {
        f"{step.low}{'+' if step.high is None else '' if step.high == step.low else f'-{step.high}'} sales": step
        for step in summary.tail
    }
    items = sum(step.items for step in summary.tail)
    page.bars(
        "Items by how often they were sold",
        {name: {"of items": step.items / items, "of purchases": step.share} for name, step in tail.items()},
    )
    page.heading("Where recommendations fall")
    buyers = data.users.ids.gather_every(max(1, len(data.users) // 200)).to_list()
    recommended = model.recommend(buyers, 10)
    genre_of = dict(zip(data.items.ids.to_list(), data.items.fields["genre"].to_list(), strict=True))
    bought = _shares(data.items.fields["genre"][data.item_numbers])
    chosen = _shares(pl.Series([genre_of[item] for item in recommended["item"].to_list()]))
    shares = {name: {"of purchases": bought[name], "of recommendations": chosen.get(name, 0.0)} for name in sorted(bought)}
    page.bars(f"Genres among purchases and among the ten best for {len(buyers)} buyers", shares)
    page.heading(f"Why the first one for buyer {buyer}?")
    page.waterfall("What it adds to the score beyond the catalogue's mean, by pairs of fields: exact, the six largest", why)
    for title, rows in ((f"For buyer {buyer}", for_buyer), ("For somebody new: " + ", ".join(NEWCOMER.values()), for_newcomer)):
        page.heading(title)
        page.table(
            ["rank", "score", "title"], [(row["rank"], row["score"], row["title"]) for row in rows.iter_rows(named=True)]
        )
    return page


def _shares(values: pl.Series) -> dict[str, float]:
    """Each value's share of all."""
    counts = values.value_counts(normalize=True)
    return dict(zip(counts.to_series(0).to_list(), counts.to_series(1).to_list(), strict=True))
