r"""A drawing of points that keeps neighbours together: t-SNE over at most some thousand points, exact.

.. math:: \min_y \sum_{ij} p_{ij} \log \frac{p_{ij}}{q_{ij}}, \qquad q_{ij} \propto (1 + \|y_i - y_j\|^2)^{-1}

p: how near i and j are in the space that is drawn, with `PERPLEXITY` neighbours each; y: where they are drawn.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
PERPLEXITY = 30.0
_STEPS, _EARLY_STEPS, _EXAGGERATION = 260, 70, 8.0
_SEARCH_STEPS = 30  # of a bisection over each point's width


def neighbour_map(points: Floats, start: Floats) -> Floats:
    """points: (N, D), distinct; start: (N, 2), where the drawing begins. Returns (N, 2). O(N^2) a step, the same every time."""
    if len(points) < 4:
        return start.astype(np.float32)
    p = _nearness(points)
    y = start.astype(np.float32) * np.float32(1e-2 / max(float(start[:, 0].std()), 1e-12))
    speed, gain = np.zeros_like(y), np.ones_like(y)
    rate = np.float32(max(len(points) / _EXAGGERATION / 4.0, 50.0))
    for step in range(_STEPS):
        is_early = step < _EARLY_STEPS
        grad = _grad(p, y, np.float32(_EXAGGERATION if is_early else 1.0))
        # A coordinate that goes on in its direction goes faster, one that turns goes slower.
        gain = np.where(np.sign(grad) != np.sign(speed), gain + 0.2, gain * 0.8).clip(0.01).astype(np.float32)
        speed = np.float32(0.5 if is_early else 0.8) * speed - rate * gain * grad
        y = y + speed
    drawn: Floats = y - y.mean(0)
    return drawn


def _grad(p: Floats, y: Floats, exaggeration: np.float32) -> Floats:
    kernel = _squared_distances(y)
    kernel += 1.0
    np.reciprocal(kernel, out=kernel)
    np.fill_diagonal(kernel, 0.0)
    pull = p * exaggeration
    pull -= kernel * np.float32(1.0 / max(float(kernel.sum(dtype=np.float64)), 1e-12))
    pull *= kernel
    grad: Floats = 4.0 * (pull.sum(1)[:, None] * y - pull @ y)
    return grad


def _nearness(points: Floats) -> Floats:
    """p: (N, N), symmetric, sums to 1. Each point's width is such that it has `PERPLEXITY` neighbours in effect."""
    distances = _squared_distances(points)
    np.fill_diagonal(distances, np.inf)
    distances -= distances.min(1, keepdims=True)
    target = np.log(min(PERPLEXITY, (len(points) - 1) / 3.0))
    finite = np.where(np.isfinite(distances), distances, 0.0)
    low, high = np.zeros(len(points)), np.full(len(points), np.inf)
    beta = 1.0 / np.maximum(finite.mean(1), 1e-12)
    for _ in range(_SEARCH_STEPS):
        weights = np.exp(-distances * beta[:, None].astype(np.float32))
        total = weights.sum(1)
        entropy = np.log(total) + beta * (weights * finite).sum(1) / total
        low, high = np.where(entropy > target, beta, low), np.where(entropy > target, high, beta)
        beta = np.where(np.isinf(high), beta * 2.0, (low + np.where(np.isinf(high), 0.0, high)) / 2.0)
    p = weights / total[:, None]
    p = p + p.T
    shares: Floats = (p / p.sum()).astype(np.float32)
    return shares


def _squared_distances(points: Floats) -> Floats:
    """(N, D) -> (N, N)."""
    squares = np.einsum("nd,nd->n", points, points)
    distances: Floats = points @ (points.T * np.float32(-2.0))
    distances += squares[:, None]
    distances += squares[None, :]
    return np.maximum(distances, 0.0, out=distances)
