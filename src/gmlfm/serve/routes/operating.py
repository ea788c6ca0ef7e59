"""Is it well, what happened, take the new run; the page and the API's description."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse

from gmlfm.serve import contracts
from gmlfm.serve.describing import docs_page
from gmlfm.serve.metrics import as_text, gathered
from gmlfm.serve.problems import Problem
from gmlfm.serve.service import InService, RunName

router = APIRouter(tags=["operating"])


@router.get("/health", response_model=contracts.Health, summary="Live, ready, and what is wrong with the folders")
async def health(service: InService) -> Response:
    problems = await service.in_thread(service.problems)
    status = "degraded" if problems else "ok"
    return JSONResponse({"status": status, "live": True, "ready": not service.is_stopping, "problems": problems})


@router.get("/health/live", response_model=contracts.Health, summary="Does the process answer?")
async def health_live(service: InService) -> Response:
    return JSONResponse({"status": "ok", "live": True, "ready": not service.is_stopping, "problems": []})


@router.get("/health/ready", response_model=contracts.Health, summary="May questions be sent here?")
async def health_ready(service: InService) -> Response:
    if service.is_stopping:
        raise Problem(503, "the service is stopping.")
    return JSONResponse({"status": "ok", "live": True, "ready": True, "problems": []})


@router.get("/metrics", response_class=PlainTextResponse, summary="Figures for Prometheus")
async def metrics(service: InService) -> Response:
    figures, n_workers = await service.in_thread(lambda: gathered(service.figures(), service.options.shared_folder))
    runs = [("gmlfm_run_info", dict(host.served.stamp), 1.0) for host in service.hosts.values()]
    return PlainTextResponse(
        as_text(figures, [*runs, ("gmlfm_workers", {}, n_workers)]), media_type="text/plain; version=0.0.4"
    )


@router.get("/runs", response_model=contracts.RunsAnswer, summary="The runs that are served; the first is the default")
async def runs(service: InService) -> Response:
    def described(host: Any) -> dict[str, Any]:
        run = host.served.recommender.fitted
        return {
            **host.served.stamp,
            "model": run.settings.model,
            "data": run.data.name,
            "is_default": host is service.default,
            "problem": host.check(),
        }

    return JSONResponse({"runs": await service.in_thread(lambda: [described(host) for host in service.hosts.values()])})


@router.post("/reload", response_model=contracts.ReloadAnswer, summary="Take the run that stands in the folder now")
async def reload(service: InService, run: RunName = None) -> Response:
    hosts = [service.host(run)] if run is not None else list(service.hosts.values())
    service.refuse_if_many_reload()
    swapped = await service.reload(hosts)
    service.ask_others_to_reload()
    return JSONResponse({"runs": [dict(host.served.stamp) for host in hosts], "swapped": swapped})


@router.get("/docs", include_in_schema=False)
async def docs(request: Request) -> Response:
    return HTMLResponse(docs_page(request.app.openapi()))
