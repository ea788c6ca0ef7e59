"""Routes by theme."""

from __future__ import annotations

from gmlfm.serve.routes import asking, browsing, operating, writing

ROUTERS = (asking.router, writing.router, browsing.router, operating.router)

__all__ = ["ROUTERS"]
