"""What a change says of itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ObserveReport:
    """n: rows that count from now on; n_duplicates: rows that were known already; n_new_users: how many users neither the data
    nor earlier observations had; n_new_items: how many items entered the catalogue with them."""

    n: int = 0
    n_duplicates: int = 0
    n_new_users: int = 0
    n_new_items: int = 0
