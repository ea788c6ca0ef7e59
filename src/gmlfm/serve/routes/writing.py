"""What changes something: it is on the disk before the answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Path, Response

from gmlfm.serve import contracts
from gmlfm.serve.hosting import Host, Waiting
from gmlfm.serve.notes import noted
from gmlfm.serve.problems import Problem
from gmlfm.serve.questions import Answer, stamped
from gmlfm.serve.service import InService, RunName

router = APIRouter(tags=["writing"])


@router.post("/events", response_model=contracts.EventsAnswer, summary="What users just did")
async def events(asked: contracts.EventsRequest, service: InService, run: RunName = None) -> Response:
    rows = [row.model_dump(exclude_none=True) for row in asked.events]

    def observe(host: Host, waiting: Waiting) -> Answer:
        report = host.observe(waiting)
        service.metrics.add("gmlfm_events_total", report.n)
        counts = {"kept": report.n, "duplicates": report.n_duplicates, "new_users": report.n_new_users}
        return stamped({**counts, "notes": waiting.notes}, host.served)

    return await service.observe(run, rows, observe)


@router.post("/availability", response_model=contracts.AvailabilityAnswer, summary="Items that are sold, or back")
async def availability(asked: contracts.AvailabilityRequest, service: InService, run: RunName = None) -> Response:
    both = {str(item) for item in asked.sold} & {str(item) for item in asked.available}
    if both:
        raise Problem(400, "an item is given as sold and as available; give it once.")

    def mark(host: Host) -> Answer:
        host.mark(asked.sold, asked.available)
        return {"sold": len(asked.sold), "available": len(asked.available)}

    return await service.write(run, _noting(mark))


@router.post("/items", response_model=contracts.ItemsAnswer, summary="New items, from their attributes")
async def items(asked: contracts.ItemsRequest, service: InService, run: RunName = None) -> Response:
    # A few rows whose names all differ would make a table of as many columns as the body has names.
    n_names = len({name for row in asked.items for name in row})
    if n_names > contracts.MOST_FIELDS:
        raise Problem(400, f"the items have {n_names:,} different fields; expected at most {contracts.MOST_FIELDS:,}.")

    def add(host: Host) -> Answer:
        schema = host.served.recommender.fitted.data.schema.items
        name = "item" if schema is None else schema.id
        rows = [{name if key == "item" else key: value for key, value in row.items()} for row in asked.items]
        host.add_items({key: [row.get(key) for row in rows] for key in dict.fromkeys(key for row in rows for key in row)})
        return {"added": len(rows)}

    answer = await service.rewrite(run, _noting(add))
    service.ask_others_to_reload()
    return answer


@router.delete("/users/{user:path}", response_model=contracts.ForgetAnswer, summary="Forget a user")
async def forget(service: InService, user: str = Path(max_length=1_000), run: RunName = None) -> Response:
    def leave_out(host: Host) -> Answer:
        observed = host.current().recommender.observed
        if observed.index.run.encoder.user_numbers([user])[0] < 0 and user not in observed:
            raise Problem(404, "this user is not known here.")
        host.forget(user)
        return {"forgotten": user}

    answer = await service.rewrite(run, _noting(leave_out))
    service.ask_others_to_reload()
    return answer


def _noting(change: Callable[[Host], Answer]) -> Callable[[Host], Any]:
    def noting(host: Host) -> Answer:
        with noted() as notes:
            answer = change(host)
        return stamped({**answer, "notes": notes}, host.served)

    return noting
