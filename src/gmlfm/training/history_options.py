"""The settings of what users did before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from gmlfm.data.attributes import ROLES, Role
from gmlfm.models.settings import Choice, Real, Setting

AUTO_HISTORY, NO_HISTORY = "auto", "none"


def _expected_roles(text: Any) -> str | None:
    """What a list of roles should have been; None where it is one."""
    names = [name.strip() for name in str(text).split(",")]
    is_list = len(set(names)) == len(names) and set(names) <= set(ROLES)
    return None if text in (AUTO_HISTORY, NO_HISTORY) or is_list else f"auto, none, or some of {','.join(ROLES)}"


@dataclass(frozen=True)
class HistoryOptions:
    """How a user's earlier items count. history: auto is all roles for top-n with times, and none otherwise; a model whose
    registration has it by default (models/registry.py) reads them unless it is told not to."""

    history: Annotated[
        str, Setting("roles in which earlier items stand on the user's side: auto, none, or a list", check=_expected_roles)
    ] = NO_HISTORY
    half_life: Annotated[
        float,
        Setting(
            "rows after which an earlier item counts half in the role recent", above=0, most=1_000_000, search=Real(1.0, 50.0)
        ),
    ] = 5.5
    history_length: Annotated[int, Setting("earlier rows that count, the latest ones", least=1, most=1_000_000)] = 100
    history_dropout: Annotated[
        float, Setting("share of earlier rows left out of a step", least=0, below=1, search=Choice((0.0, 0.1, 0.2, 0.3, 0.5)))
    ] = 0.2
    piece: Annotated[int, Setting("targets of one user that a step takes one after another", least=1, most=10_000)] = 8
    newcomer_row: Annotated[
        bool, Setting("whether users of whom nothing is known share a row, learned where cold_start_rate hides histories")
    ] = True
    user_id: Annotated[bool | None, Setting("whether a user has a row of their own; auto: not where history is on")] = None

    @property
    def roles(self) -> tuple[Role, ...]:
        """Of a history that is no longer auto."""
        names = [name.strip() for name in self.history.split(",")]
        return tuple(role for role in ROLES if role in names)
