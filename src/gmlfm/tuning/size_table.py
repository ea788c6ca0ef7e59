"""Quality against size as a table of texts, and as Markdown."""

from __future__ import annotations

from gmlfm.escaping import markdown_text
from gmlfm.evaluation.metrics import default_metric
from gmlfm.tuning.inputs import Reading, reading_line
from gmlfm.tuning.sizes import AXES, Axis, Point, Sizes

NAMES: dict[Axis, str] = {
    "table_bytes": "bytes of the table",
    "item_bytes": "bytes of all items' vectors",
    "seconds": "seconds of training",
}
_SHORT: dict[Axis, str] = {"table_bytes": "table", "item_bytes": "vectors", "seconds": "seconds"}
_NDCG, _HR = default_metric("ndcg"), default_metric("hr")


def size_headings() -> list[str]:
    quality = [f"{name.upper()} {protocol}" for protocol in ("full", "sampled") for name in (_NDCG, _HR)]
    return ["method", "k", *quality, "table", "other weights", "item vectors", "seconds", "best for"]


def size_rows(sizes: Sizes) -> list[list[str]]:
    return [
        [
            point.model,
            str(point.k),
            *(_figure(point, protocol, name) for protocol in ("full", "sampled") for name in (_NDCG, _HR)),
            bytes_text(point.table_bytes),
            bytes_text(point.dense_bytes),
            "-" if point.item_bytes is None else bytes_text(point.item_bytes),
            f"{point.seconds:.1f}",
            best_for(point),
        ]
        for point in sizes.points
    ]


def _figure(point: Point, protocol: str, name: str) -> str:
    """A catalogue that is too small to sample from has no figure of that protocol."""
    return f"{point.metrics[protocol][name]:.4f}" if protocol in point.metrics else "-"


def best_for(point: Point) -> str:
    """The axes on which nothing is as good for less, in short."""
    return ", ".join(_SHORT[axis] for axis in AXES if axis in point.best_on) or "-"


def size_title(sizes: Sizes) -> str:
    inputs = "" if sizes.inputs is None else f"; inputs {sizes.inputs}"
    seeds = f"mean of {sizes.seeds} seed{'s' if sizes.seeds > 1 else ''}"
    return f"{sizes.data}, topn, {sizes.split}: quality on VALIDATION against size{inputs}; {seeds}"


def size_legend(sizes: Sizes) -> str:
    readings = {model: Reading(words, None) for model, words in sizes.reads.items()}
    mixed = f" {sizes.mixed}" if sizes.mixed else ""
    return f"{_LEGEND} {reading_line(readings)}{mixed}"


_LEGEND = (
    "Settings are defaults and what is fixed; nothing is searched, and the test part is not looked at. table: the rows of "
    "factors; other weights: all else that is learned; item vectors: what retrieval holds of all items, 4 bytes a number, none "
    "where a score is no inner product; seconds: of the steps of all epochs, without validation, on the machine at hand. "
    f"best for: no other line has as high an {_NDCG.upper()} (full) for less of it."
)


def size_markdown(sizes: Sizes) -> str:
    """As a page; names of others cannot bring HTML, links or cells of their own."""
    head, *rows = (list(map(markdown_text, cells)) for cells in (size_headings(), *size_rows(sizes)))
    table = ["| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows)]
    failures = ["\n" + markdown_text(f"{name} failed: {why}") for name, why in sizes.failures.items()]
    return "\n".join([f"# {markdown_text(size_title(sizes))}", "", *table, "", size_legend(sizes), *failures]) + "\n"


def bytes_text(number: float) -> str:
    """'1.5 MB', of 1,000 kB."""
    for unit in ("B", "kB", "MB"):
        if number < 999.5:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} GB"
