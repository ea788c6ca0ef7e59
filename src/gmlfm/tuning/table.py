"""A comparison as a table of texts, and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping

from gmlfm.escaping import markdown_text
from gmlfm.evaluation.metrics import default_metric
from gmlfm.tuning.budget import LEAST_TRIALS
from gmlfm.tuning.inputs import Reading, is_mixed, mixed_warning, reading_line
from gmlfm.tuning.rising import CUT_SHORT, LAST_EPOCH, MORE
from gmlfm.tuning.rows import Comparison, Row

FIXED = "fixed settings"  # the last column, where there are some
RISING = "still rising"  # a column, where some method does
N_RESULTS = 6  # columns: the method, and what the test says of it; the others tell how it was found


def _metrics(comparison: Comparison) -> tuple[str, str]:
    return (default_metric("ndcg"), default_metric("hr")) if comparison.task == "topn" else ("rmse", "mae")


def headings(comparison: Comparison) -> list[str]:
    main, other = (name.upper() for name in _metrics(comparison))
    fixed = [FIXED] if _has_fixed(comparison) else []
    return [
        "method",
        main,
        "95 % interval",
        "seeds' spread",
        other,
        "against the best other",
        f"{main} {'TEST, as published' if comparison.as_published else 'validation'}",
        "trials",
        "seconds: search + final",
        "best values at a border",
        *([RISING] if _has_rising(comparison) else []),
        *fixed,
    ]


def text_rows(comparison: Comparison) -> list[list[str]]:
    main, other = _metrics(comparison)
    return [
        [
            row.model,
            f"{row.means[main]:.4f}",
            f"{row.low:.4f} to {row.high:.4f}",
            f"{row.seed_spread:.4f}",
            f"{row.means[other]:.4f}",
            _against(row),
            f"{row.validation:.4f}",
            f"{row.trials}" + (f" ({row.failed} failed)" if row.failed else ""),
            _seconds(row, comparison.share),
            _settings({name: row.settings[name] for name in row.at_border}),
            *([_rising(row, comparison.seeds)] if _has_rising(comparison) else []),
            *([_settings(row.fixed)] if _has_fixed(comparison) else []),
        ]
        for row in comparison.rows
    ]


def title(comparison: Comparison) -> str:
    refit = "refit on train + validation" if comparison.refit else "no refit"
    what = f"{comparison.data}, {comparison.task}, {comparison.split}, {comparison.protocol}, TEST, {refit}"
    inputs = "" if comparison.inputs is None else f"; inputs {comparison.inputs}"
    return f"{what}{inputs}; {_budget(comparison)}, mean of {comparison.seeds} seed{'s' if comparison.seeds > 1 else ''}"


def _budget(comparison: Comparison) -> str:
    return comparison.budget.replace("1 trials ", "1 trial ") if comparison.budget.startswith("1 ") else comparison.budget


def legend(comparison: Comparison) -> str:
    chosen = "AS PUBLISHED: CHOICES WERE MADE ON THE TEST PART, for comparison with the paper only"
    seconds = "" if comparison.share is None else f" {_SECONDS}"
    chosen = chosen if comparison.as_published else "Choices were made on validation alone"
    rising = f" {_RISING}" if _has_rising(comparison) else ""
    more = f" {_MORE}" if any(row.given_epochs for row in comparison.rows) else ""
    return f"{chosen}, {_REST}{_apart(comparison)}{seconds}{rising}{more}{_read(comparison)}"


def _read(comparison: Comparison) -> str:
    """What each method read of a user, and whether that was alike."""
    readings = {row.model: Reading(row.reads, row.reads_history) for row in comparison.rows if row.reads}
    if not readings:
        return ""
    with_history = [model for model, reading in readings.items() if reading.of_history]
    return f" {reading_line(readings)}" + (f" {mixed_warning(with_history)}" if is_mixed(readings.values()) else "")


def _apart(comparison: Comparison) -> str:
    """Validation ranks among sampled candidates, which makes figures several times as high as ranking among all."""
    is_apart = comparison.task == "topn" and comparison.protocol == "full"
    return " Validation ranks among 99 sampled items, so its figures are higher." if is_apart else ""


_REST = (
    "with the same budget for each method. Intervals are bootstrapped over the tested "
    "rows; 'against' is a paired t-test over them, seeds averaged: * p < .05, ** p < .01, *** p < .001. A best value at a "
    "border of its range may have a better one beyond."
)
_SECONDS = (
    f"The seconds are shared equally; a method that needs more for {LEAST_TRIALS} trials and its final trainings gets them, "
    "and its share is shown beside what it took. A trial that the end of the seconds cuts short counts if it has a whole epoch."
)


_RISING = (
    "A method still rises where its best trial was best at its last epoch, had the most epochs of the search (under a cosine "
    "schedule, where the last is always near the best), or was cut short by the end of the seconds; or where a final training "
    "was best at its last epoch."
)
_MORE = (
    f"Its final trainings were then given up to {MORE:g} times the epochs of its best trial, beyond its share of the seconds."
)


def markdown(comparison: Comparison) -> str:
    """As a page; names and values of others cannot bring HTML, links or cells of their own."""
    head, *rows = (list(map(markdown_text, cells)) for cells in (headings(comparison), *text_rows(comparison)))
    table = ["| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows)]
    failures = ["\n" + markdown_text(f"{name} could not take part: {why}") for name, why in comparison.failures.items()]
    return "\n".join([f"# {markdown_text(title(comparison))}", "", *table, "", legend(comparison), *failures]) + "\n"


def _against(row: Row) -> str:
    if not row.against:
        return "-"
    marks = "*" * sum(row.p_value < level for level in (0.05, 0.01, 0.001))
    return f"{row.difference:+.4f}{marks} ({row.against})"


def _rising(row: Row, seeds: int) -> str:
    """'best at its last of 50 epochs; given 75; 2 of 3 seeds still rise'"""
    reason = {"": "", CUT_SHORT: f"{CUT_SHORT} at epoch {row.epochs}", LAST_EPOCH: f"{LAST_EPOCH} of {row.epochs} epochs"}
    parts = [
        reason.get(row.rises, f"{row.rises}, {row.epochs} epochs"),
        f"given {row.given_epochs}" if row.given_epochs else "",
        f"{row.rising_seeds} of {seeds} final ones best at their last epoch" if row.rising_seeds else "",
    ]
    return "; ".join(filter(None, parts)) or "-"


def _has_rising(comparison: Comparison) -> bool:
    return any(row.rises or row.rising_seeds for row in comparison.rows)


def _has_fixed(comparison: Comparison) -> bool:
    return any(row.fixed for row in comparison.rows)


def _seconds(row: Row, share: float | None) -> str:
    """What the search and the final trainings took; with the share where it was not enough."""
    over = f" (share {share:.0f})" if share is not None and round(row.seconds) > round(share) else ""
    return f"{row.search_seconds:.0f} + {row.final_seconds:.0f}{over}"


def _settings(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={_short(value)}" for name, value in values.items()) or "-"


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else "auto" if value is None else str(value)
