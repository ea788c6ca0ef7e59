"""Is it well, what happened, take the new run; the page and the API's description."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse

from gmlfm.serve import contracts
from gmlfm.serve.describing import docs_page
from gmlfm.serve.hall import InHall, RunName
from gmlfm.serve.metrics import as_text, gathered
from gmlfm.serve.problems import Problem

router = APIRouter(tags=["operating"])


@router.get("/health", response_model=contracts.Health, summary="Live, ready, and what is wrong with the folders")
async def health(hall: InHall) -> Response:
    problems = await hall.aside(hall.problems)
    status = "degraded" if problems else "ok"
    return JSONResponse({"status": status, "live": True, "ready": not hall.is_stopping, "problems": problems})


@router.get("/health/live", response_model=contracts.Health, summary="Does the process answer?")
async def health_live(hall: InHall) -> Response:
    return JSONResponse({"status": "ok", "live": True, "ready": not hall.is_stopping, "problems": []})


@router.get("/health/ready", response_model=contracts.Health, summary="May questions be sent here?")
async def health_ready(hall: InHall) -> Response:
    if hall.is_stopping:
        raise Problem(503, "the service is stopping.", {"Retry-After": "1"})
    return JSONResponse({"status": "ok", "live": True, "ready": True, "problems": []})


@router.get("/metrics", response_class=PlainTextResponse, summary="Figures for Prometheus")
async def metrics(hall: InHall) -> Response:
    figures, n_workers = await hall.aside(lambda: gathered(hall.figures(), hall.options.meeting))
    runs = [("gmlfm_run_info", dict(host.served.stamp), 1.0) for host in hall.hosts.values()]
    return PlainTextResponse(
        as_text(figures, [*runs, ("gmlfm_workers", {}, n_workers)]), media_type="text/plain; version=0.0.4"
    )


@router.get("/runs", response_model=contracts.RunsAnswer, summary="The runs that are served; the first is the default")
async def runs(hall: InHall) -> Response:
    def described(host: Any) -> dict[str, Any]:
        run = host.served.recommender.fitted
        return {
            **host.served.stamp,
            "model": run.settings.model,
            "data": run.data.name,
            "is_default": host is hall.default,
            "problem": host.check(),
        }

    return JSONResponse({"runs": await hall.aside(lambda: [described(host) for host in hall.hosts.values()])})


@router.post("/reload", response_model=contracts.ReloadAnswer, summary="Take the run that stands in the folder now")
async def reload(hall: InHall, run: RunName = None) -> Response:
    hosts = [hall.host(run)] if run is not None else list(hall.hosts.values())
    swapped = await hall.reload(hosts)
    hall.tell_others()
    return JSONResponse({"runs": [dict(host.served.stamp) for host in hosts], "swapped": swapped})


@router.get("/docs", include_in_schema=False)
async def docs(request: Request) -> Response:
    return HTMLResponse(docs_page(request.app.openapi()))
