"""gmlfm attributes RUN: how much each field contributes."""

from __future__ import annotations

import argparse
from typing import Any

from rich.table import Table

from gmlfm.cli.options import add_command, add_picture, add_run, load_run, shared_options
from gmlfm.cli.output import console_for, field_names, print_json, verbatim
from gmlfm.cli.pictures import picture_path, signed_bars, write_picture
from gmlfm.errors import OptionError
from gmlfm.progress import activity


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "attributes",
        "how much each field contributes",
        "How much worse validation gets when a field is shuffled among its owners and, with --retrain, when the "
        "model is trained without it; and which pairs of fields carry the score. Below 0 a field harms.",
        ["gmlfm attributes runs/demo", "gmlfm attributes runs/demo --retrain --picture fields.svg"],
    )
    add_run(parser)
    parser.add_argument("--retrain", action="store_true", help="also train once without each field")
    add_picture(parser)
    shared_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    from gmlfm.recommender.field_importance import field_importance

    picture = picture_path(options.picture)
    recommender = load_run(options)
    console = console_for(stderr=options.json)
    with activity("measuring") as shown:
        table = field_importance(recommender.fitted, retrain=options.retrain, report=lambda text: shown.update(words=text))
        shown.update(words="adding up pairs of fields")
        try:
            pairs = recommender.field_pairs().head(10)
        except OptionError:
            pairs = None
    metric = "NDCG@10 lost" if recommender.fitted.settings.task == "topn" else "RMSE gained"
    if picture is not None:
        with activity(f"drawing {picture}"):
            losses = {f"{part}.{field}": lost for part, field, lost, _ in table.rows()}
            write_picture(signed_bars(losses, metric), "What validation loses when a field is shuffled", picture)
    if options.json:
        print_json({"fields": table.to_dicts(), "pairs": None if pairs is None else pairs.to_dicts()})
        return
    console.print(f"[italic]What each field contributes: {metric} on validation[/]")
    by_field = Table(header_style="bold")
    for heading in ("field", "shuffled", *(["trained without"] if options.retrain else [])):
        by_field.add_column(heading, justify="left" if heading == "field" else "right")
    for part, field, lost, without in table.rows():
        by_field.add_row(verbatim(f"{part}.{field}"), f"{lost:+.4f}", *([f"{without:+.4f}"] if without is not None else []))
    console.print(by_field)
    if pairs is not None:
        console.print("[italic]Which pairs of fields carry the score, by how much they move it[/]")
        by_pair = Table(header_style="bold")
        for heading in ("fields", "spread", "mean"):
            by_pair.add_column(heading, justify="left" if heading == "fields" else "right", overflow="fold")
        for fields, spread, mean in pairs.rows():
            by_pair.add_row(verbatim(field_names(fields.split(" x "))), f"{spread:.4f}", f"{mean:+.4f}")
        console.print(by_pair)
