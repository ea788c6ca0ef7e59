"""The drawing that keeps neighbours together."""

from __future__ import annotations

import numpy as np

from gmlfm.recommender.neighbour_map import neighbour_map


def groups(n_groups: int = 4, per_group: int = 20, width: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Tight groups far from one another in `width` dimensions."""
    rng = np.random.default_rng(0)
    which = np.repeat(np.arange(n_groups), per_group)
    points = 5.0 * np.eye(n_groups, width)[which] + 0.3 * rng.standard_normal((len(which), width))
    return points.astype(np.float32), which


def test_each_points_nearest_are_of_its_group() -> None:
    points, which = groups()
    rng = np.random.default_rng(1)
    drawn = neighbour_map(points, rng.standard_normal((len(points), 2)).astype(np.float32))
    distances = np.square(drawn[:, None] - drawn[None]).sum(-1)
    np.fill_diagonal(distances, np.inf)
    nearest = np.argsort(distances, axis=1)[:, :5]
    assert (which[nearest] == which[:, None]).mean() > 0.95
    assert np.isfinite(drawn).all()


def test_drawing_twice_gives_the_same() -> None:
    points, _ = groups()
    assert np.array_equal(neighbour_map(points, points[:, :2]), neighbour_map(points, points[:, :2]))


def test_three_points_stay_where_they_begin() -> None:
    start = np.array([[0, 0], [1, 0], [0, 1]], np.float32)
    assert np.array_equal(neighbour_map(np.eye(3, dtype=np.float32), start), start)
