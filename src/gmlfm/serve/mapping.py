"""The map of items, as answers show it: a bounded sample coloured by a field, and the places of single items."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import numpy as np

from gmlfm.errors import OptionError, did_you_mean
from gmlfm.recommender.item_map import ItemMap, item_map
from gmlfm.serve.catalogue import shown_values
from gmlfm.serve.hosting import Served
from gmlfm.serve.questions import Answer

MOST_POINTS, MOST_ASKED = 10_000, 200
_MOST_VALUES = 200  # of a field, named in the order in which a legend lists them
_LONGEST_TITLE = 120
_WAIT = 0.2  # seconds: a map that is kept on the disk comes at once


_beginning = threading.Lock()


class MapDrawing:
    """Of one served run. Drawing takes some seconds, longer than an answer may: it is done in a thread of its own, once."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._result: ItemMap | Exception | None = None
        self._traceback: TracebackType | None = None
        self._thread = threading.Thread(target=self._draw, name="map", daemon=True)
        self._thread.start()

    def _draw(self) -> None:
        recommender = self._served.recommender
        about = recommender.about
        try:
            # Its version stays the same when a user is forgotten, and so does the map.
            self._result = item_map(recommender.fitted, recommender.folder, str(about.get("version") or about.get("check", "")))
        except Exception as error:
            self._traceback, self._result = error.__traceback__, error

    def result(self) -> ItemMap | None:
        """None as long as it is being drawn, but for a moment that is waited."""
        self._thread.join(_WAIT)
        if isinstance(self._result, Exception):
            raise self._result.with_traceback(self._traceback)  # which each raising would lengthen
        return self._result


def drawing_of(served: Served) -> MapDrawing:
    """Begun with the first question about it."""
    with _beginning:
        drawing: MapDrawing = served.catalogue.made_once("map", lambda: MapDrawing(served))
    return drawing


def map_of(served: Served, drawing: MapDrawing, n: int, field: str | None, including: Sequence[str]) -> Answer:
    """n items, and those that must be among them."""
    run = served.recommender.fitted
    fields = run.data.schema.fields_of("item")
    kinds = {declared.name: declared.kind for declared in fields}
    if field is not None and field not in kinds:
        raise OptionError(f"the data have no item field '{field}'{did_you_mean(field, list(kinds))}")
    numbers = _numbers(served, including)
    drawn = drawing.result()
    answer: Answer = {"is_drawn": drawn is not None, "points": [], "field": None, "n_items": len(run.data.items)}
    if drawn is None:
        return answer
    chosen = drawn.sample(n, numbers)
    points = answer["points"] = _points(served, drawn, chosen)
    if field is None:
        return answer
    column = run.data.items.fields[field] if field in run.data.items.fields.columns else None
    colours = [None] * len(points) if column is None else column[chosen.astype(np.int64)].to_list()
    for point, colour in zip(points, colours, strict=True):
        point["color"] = _plain(colour)
    return {**answer, "field": {"name": field, "kind": kinds[field], "values": _values(points, kinds[field])}}


def places_of(served: Served, drawing: MapDrawing, items: Sequence[str]) -> Answer:
    numbers = np.array(_numbers(served, items), np.int32)
    drawn = drawing.result()
    return {"is_drawn": drawn is not None, "points": [] if drawn is None else _points(served, drawn, numbers)}


def _numbers(served: Served, items: Sequence[str]) -> list[int]:
    """items: an id each, or several with commas between them; an id that has commas itself is taken whole."""
    catalogue = served.catalogue
    known = catalogue.numbers_of(items) if items else []
    parts = [[text] if number >= 0 else text.split(",") for text, number in zip(items, known, strict=True)]
    ids = list(dict.fromkeys(item for some in parts for item in some if item))
    if len(ids) > MOST_ASKED:
        raise OptionError(f"{len(ids):,} items are asked for; expected at most {MOST_ASKED}.")
    numbers = catalogue.numbers_of(ids) if ids else []
    for item, number in zip(ids, numbers, strict=True):
        if number < 0:
            raise OptionError(f"the item '{item[:_LONGEST_TITLE]}' is not in the catalogue, so it has no place on the map.")
    return numbers


def _points(served: Served, drawn: ItemMap, numbers: np.ndarray[Any, Any]) -> list[Answer]:
    run = served.recommender.fitted
    ids = run.encoder.ids_of_items(numbers).to_list()
    titles = run.data.items.titles
    texts = [None] * len(ids) if titles is None else titles[numbers.astype(np.int64)].to_list()
    xy = drawn.xy[numbers].astype(np.float64).round(4).tolist()
    return [
        {"item": item, "title": None if text is None else str(text)[:_LONGEST_TITLE], "x": x, "y": y, "color": None}
        for item, text, (x, y) in zip(ids, texts, xy, strict=True)
    ]


def _plain(value: Any) -> Any:
    """A set's members as a list; a number that is none is missing."""
    shown = shown_values({"value": value})["value"]
    return shown if not isinstance(shown, float) or math.isfinite(shown) else None


def _values(points: Sequence[Answer], kind: str) -> list[str]:
    """Of a category or set, the commonest first; a set counts by its first member, by which it is coloured."""
    if kind == "number":
        return []
    firsts = (point["color"] if not isinstance(point["color"], list) else next(iter(point["color"]), None) for point in points)
    return [value for value, _ in Counter(str(value) for value in firsts if value is not None).most_common(_MOST_VALUES)]
