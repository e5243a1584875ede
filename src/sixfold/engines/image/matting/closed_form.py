"""Closed-form matting (Levin, Lischinski and Weiss) in a band of uncertain pixels.

Within each window of 3 x 3 pixels, the alpha is assumed to be a linear function of the color. The squared
deviations from this assumption form a sparse quadratic cost, which conjugate gradients minimize for the band.
The pixels beside the band have known values.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

# Regularization of the windows' linear functions; larger values make flat regions smoother.
_EPSILON = 1e-5
# Conjugate gradients stop at this number of iterations, or at this residual relative to the first one.
_ITERATIONS, _RESIDUAL = 15, 0.01
# Pixels of the band up to which the solution is computed; this bounds the time and the memory.
MAX_PIXELS = 120_000
_WINDOW = 3
_OFFSETS = [(row, column) for row in (-1, 0, 1) for column in (-1, 0, 1)]


def refine(rgb: Array, alpha: Array, band: NDArray[np.bool_], trust: Array) -> Array:
    """Return an alpha (HxW, 0 to 1) whose pixels in `band` follow the colors of `rgb` (HxWx3, 0 to 1).

    `alpha` is the initial solution, and is exact beside the band. `trust` (HxW) is the weight of the initial
    solution relative to that of a window. The alpha is returned unchanged if the band is empty or has more
    than `MAX_PIXELS`.
    """
    count = int(band.sum())
    if not 0 < count <= MAX_PIXELS or min(alpha.shape) < _WINDOW:
        return alpha
    weights, neighbors, unknown = _laplacian(rgb, band)
    values = alpha.ravel().astype(np.float64)
    prior = trust.ravel()[unknown] + 1e-6
    solution = _solve(weights, neighbors, unknown, values, prior)
    refined = alpha.copy()
    refined[band] = np.clip(solution, 0, 1)
    return refined


def _laplacian(rgb: Array, band: NDArray[np.bool_]) -> tuple[Array, NDArray[np.int64], NDArray[np.int64]]:
    """Return the matting Laplacian's rows of the band, as 25 weights and the pixels that they multiply."""
    height, width = band.shape
    window = cv2.dilate(band.astype(np.uint8), np.ones((3, 3), np.uint8))
    window[[0, -1]], window[:, [0, -1]] = 0, 0
    middles = np.flatnonzero(window)
    steps = np.array([row * width + column for row, column in _OFFSETS])
    colors = rgb.reshape(-1, 3)[middles[:, None] + steps].astype(np.float64)
    colors -= colors.mean(1, keepdims=True)
    covariance = np.einsum("nki,nkj->nij", colors, colors) / 9 + np.eye(3) * (_EPSILON / 9)
    affinity = (1 + colors @ np.linalg.inv(covariance) @ colors.transpose(0, 2, 1)) / 9
    unknown = np.flatnonzero(band)
    # Rows of pixels outside the band are collected in an additional row.
    row_of = np.full(height * width, len(unknown))
    row_of[unknown] = np.arange(len(unknown))
    weights = np.zeros((25, len(unknown) + 1))
    for first, (row, column) in enumerate(_OFFSETS):
        rows = row_of[middles + steps[first]]
        for second, (other_row, other_column) in enumerate(_OFFSETS):
            offset = (other_row - row + 2) * 5 + other_column - column + 2
            # A window contributes to each row once, so the indices are unique except for the additional row.
            weights[offset, rows] += (first == second) - affinity[:, first, second]
    reach = np.array([row * width + column for row in range(-2, 3) for column in range(-2, 3)])
    neighbors = np.clip(unknown + reach[:, None], 0, height * width - 1)
    return weights[:, :-1], neighbors, unknown


def _solve(
    weights: Array, neighbors: NDArray[np.int64], unknown: NDArray[np.int64], values: Array, prior: Array
) -> Array:
    """Solve for the band's values by conjugate gradients, with the diagonal as the preconditioner."""
    direction = np.zeros_like(values)

    def product(vector: Array) -> Array:
        return np.einsum("kn,kn->n", weights, vector[neighbors])

    solution = values[unknown]
    residual = -product(values)
    inverse = 1 / (weights[12] + prior)
    scaled = inverse * residual
    direction[unknown] = scaled
    energy = first = float(residual @ scaled)
    for _ in range(_ITERATIONS):
        if energy <= _RESIDUAL**2 * first:
            break
        step = direction[unknown]
        change = product(direction) + prior * step
        rate = energy / float(step @ change)
        solution = solution + rate * step
        residual = residual - rate * change
        scaled = inverse * residual
        before, energy = energy, float(residual @ scaled)
        direction[unknown] = scaled + energy / before * step
    return solution
