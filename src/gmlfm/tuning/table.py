"""A comparison as a table of texts, and as Markdown."""

from __future__ import annotations

from gmlfm.tuning.comparison import Comparison, Row


def headings(found: Comparison) -> list[str]:
    main, other = ("NDCG@10", "HR@10") if found.task == "topn" else ("RMSE", "MAE")
    return [
        "method",
        main,
        "95 % interval",
        "seeds' spread",
        other,
        "against the best other",
        f"{main} {'TEST, as published' if found.as_published else 'validation'}",
        "trials",
        "seconds",
        "best values at a border",
    ]


def lines(found: Comparison) -> list[list[str]]:
    main, other = ("ndcg@10", "hr@10") if found.task == "topn" else ("rmse", "mae")
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
            f"{row.seconds:.0f}",
            ", ".join(f"{name}={_short(row.settings[name])}" for name in row.at_border) or "-",
        ]
        for row in found.rows
    ]


def title(found: Comparison) -> str:
    refit = "refit on train + validation" if found.refit else "no refit"
    return (
        f"{found.data}, {found.task}, {found.split}, {found.protocol}, TEST, {refit}; {found.budget}, "
        f"mean of {found.seeds} seed{'s' if found.seeds > 1 else ''}"
    )


def legend(found: Comparison) -> str:
    chosen = "AS PUBLISHED: CHOICES WERE MADE ON THE TEST PART, for comparison with the paper only"
    return f"{chosen if found.as_published else 'Choices were made on validation alone'}, {_REST}"


_REST = (
    "with the same budget for each method. Intervals are bootstrapped over the tested "
    "rows; 'against' is a paired t-test over them, seeds averaged: * p < .05, ** p < .01, *** p < .001. A best value at a "
    "border of its range may have a better one beyond."
)


def markdown(found: Comparison) -> str:
    head = headings(found)
    rows = ["| " + " | ".join(one) + " |" for one in (head, ["---"] * len(head), *lines(found))]
    failures = [f"\n`{name}` could not take part: {why}" for name, why in found.failures.items()]
    return "\n".join([f"# {title(found)}", "", *rows, "", legend(found), *failures]) + "\n"


def _against(row: Row) -> str:
    if not row.against:
        return "-"
    marks = "*" * sum(row.p_value < level for level in (0.05, 0.01, 0.001))
    return f"{row.difference:+.4f}{marks} ({row.against})"


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
