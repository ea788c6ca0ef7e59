"""Routes by theme."""

from __future__ import annotations

from gmlfm.serve.routes import browsing, mapping, operating, questions, writing

ROUTERS = (questions.router, writing.router, browsing.router, mapping.router, operating.router)

__all__ = ["ROUTERS"]
