"""The map of items in the learned metric."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from gmlfm.serve import contracts, mapping, questions
from gmlfm.serve.hosting import Served
from gmlfm.serve.mapping import MapDrawing
from gmlfm.serve.service import InService, RunName

router = APIRouter(tags=["map"])
Items = Annotated[Sequence[str], Query(max_length=mapping.MOST_ASKED, description="ids, repeated or with commas between them")]


def _with_drawing(question: Callable[[Served, MapDrawing], Any]) -> Callable[[Served], Any]:
    def answered(served: Served) -> Any:
        return questions.stamped(question(served, mapping.drawing_of(served)), served)

    return answered


@router.get("/map", response_model=contracts.MapAnswer, summary="A sample of items in two dimensions")
async def item_map(
    service: InService,
    n: Annotated[int, Query(ge=1, le=mapping.MOST_POINTS, description="how many items are shown")] = 2_000,
    color: Annotated[str | None, Query(max_length=200, description="an item field")] = None,
    items: Items = (),
    run: RunName = None,
) -> Response:
    return await service.answer(run, _with_drawing(lambda served, drawing: mapping.map_of(served, drawing, n, color, items)))


@router.get("/map/place", response_model=contracts.MapPlaces, summary="Where items stand on the map")
async def places(service: InService, items: Items = (), run: RunName = None) -> Response:
    return await service.answer(run, _with_drawing(lambda served, drawing: mapping.places_of(served, drawing, items)))
