"""The application: routes over runs, behind the gate."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.responses import FileResponse
from starlette.staticfiles import StaticFiles

from gmlfm import __version__
from gmlfm.recommender import Recommender
from gmlfm.serve.describing import description
from gmlfm.serve.gate import Gate
from gmlfm.serve.hosting import Host, warm
from gmlfm.serve.options import ServeOptions
from gmlfm.serve.problems import HANDLERS, Problem
from gmlfm.serve.routes import ROUTERS
from gmlfm.serve.service import Service
from gmlfm.serve.workers import reload_request

_STATIC = Path(__file__).parent / "static"
_ABOUT = "Recommendations of a trained run, what they consist of, and what users just did."
Runs = Recommender | str | Path | Sequence[Recommender | str | Path]


def create_app(runs: Runs, options: ServeOptions | None = None, *, model: Any = None) -> FastAPI:
    """An ASGI application that serves one or several runs: Recommenders, or run folders.

    model: the class of runs whose model is not gmlfm's own. Recommenders keep what is observed in the folder that they were
    loaded from or saved in; one without a folder keeps it in memory.
    """
    options = options or ServeOptions()
    given = [runs] if isinstance(runs, Recommender | str | Path) else list(runs)
    request = reload_request(options.shared_folder)  # before the runs are read: who asks from here on is heard
    service = Service(_hosts(given, model), options, request)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with service.open():
            yield

    app = FastAPI(title="gmlfm", version=__version__, description=_ABOUT, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.service = service
    app.openapi = lambda: description(app)  # type: ignore[method-assign]
    for router in ROUTERS:
        app.include_router(router)
    for kind, handler in HANDLERS.items():
        app.add_exception_handler(kind, handler)
    app.add_api_route("/static/plotly.min.js", _plotly, include_in_schema=False)
    app.mount("/static", StaticFiles(directory=_STATIC), "static")
    app.add_api_route("/", _page, include_in_schema=False)
    app.add_middleware(Gate, service=service)
    return app


async def _page() -> FileResponse:
    return FileResponse(_STATIC / "index.html")


async def _plotly() -> FileResponse:
    """From Plotly's own wheel, found without importing it."""
    package = find_spec("plotly")
    script = (
        None if package is None or package.origin is None else Path(package.origin).parent / "package_data" / "plotly.min.js"
    )
    if script is None or not script.is_file():
        raise Problem(404, "plotly is not installed, so there are no charts; install it with: pip install 'gmlfm[serve]'.")
    return FileResponse(script, media_type="text/javascript", headers={"Cache-Control": "public, max-age=86400"})


def _hosts(runs: Sequence[Recommender | str | Path], model: Any) -> list[Host]:
    hosts: list[Host] = []
    for run in runs:
        name = _name_for(run, {host.name for host in hosts})
        if isinstance(run, Recommender):
            hosts.append(Host.over(name, run))
        else:
            hosts.append(Host.load(name, Path(run).absolute(), model))
        warm(hosts[-1].served)
    return hosts


def _name_for(run: Recommender | str | Path, taken: set[str]) -> str:
    path = run.folder if isinstance(run, Recommender) else Path(run).absolute()
    name = "run" if path is None else path.name
    number = 2
    while name in taken:
        name, number = f"{name}-{number}" if number == 2 else f"{name.rpartition('-')[0]}-{number}", number + 1
    return name
