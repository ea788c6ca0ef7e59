"""What there is: items, users, fields, and the runs themselves."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from gmlfm.serve import browsing, contracts, questions
from gmlfm.serve.hosting import Served
from gmlfm.serve.service import InService, RunName

router = APIRouter(tags=["browsing"])
Words = Annotated[str, Query(max_length=200, description="words to find; everything without them, the commonest first")]
Limit = Annotated[int, Query(ge=1, le=200)]
Offset = Annotated[int, Query(ge=0, lt=2**31, description="how many to leave out at the beginning")]


@router.get("/items", response_model=contracts.FoundItems, summary="Items by id or title")
async def find_items(service: InService, q: Words = "", limit: Limit = 20, offset: Offset = 0, run: RunName = None) -> Response:
    return await service.answer(run, lambda served: questions.stamped(browsing.found_items(served, q, limit, offset), served))


@router.get("/items/{item:path}", response_model=contracts.ItemAnswer, summary="An item")
async def item(service: InService, item: str = Path(max_length=1_000), run: RunName = None) -> Response:
    return await service.answer(run, lambda served: questions.stamped(browsing.item_of(served, item), served))


@router.get("/users", response_model=contracts.FoundUsers, summary="Users by id")
async def find_users(service: InService, q: Words = "", limit: Limit = 20, offset: Offset = 0, run: RunName = None) -> Response:
    return await service.answer(run, lambda served: questions.stamped(browsing.found_users(served, q, limit, offset), served))


@router.get("/users/{user:path}", response_model=contracts.UserAnswer, summary="A user's attributes and history")
async def user(service: InService, user: str = Path(max_length=1_000), limit: Limit = 50, run: RunName = None) -> Response:
    return await service.answer(run, lambda served: questions.stamped(browsing.user_of(served, user, limit), served))


@router.get("/schema", response_model=contracts.SchemaAnswer, summary="The fields of users, items and occasions")
async def schema(service: InService, run: RunName = None) -> Response:
    def described(served: Served) -> questions.Answer:
        return questions.stamped({**browsing.schema_of(served), "limits": service.options.limits}, served)

    return await service.answer(run, described)


@router.get("/model", response_model=contracts.ModelAnswer, summary="The run's card")
async def model(service: InService, run: RunName = None) -> Response:
    return await service.answer(run, lambda served: questions.stamped({"card": browsing.card_of(served)}, served))


@router.get("/curve", response_model=contracts.CurveAnswer, summary="Figures of each epoch of the training")
async def curve(service: InService, run: RunName = None) -> Response:
    return await service.answer(run, lambda served: questions.stamped(browsing.curve_of(served), served))
