"""Routes by theme."""

from __future__ import annotations

from gmlfm.serve.routes import browsing, operating, questions, writing

ROUTERS = (questions.router, writing.router, browsing.router, operating.router)

__all__ = ["ROUTERS"]
