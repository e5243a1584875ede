"""Closed-form matting: it solves for the alpha of mixed colors, and is bounded."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from sixfold.engines.image.matting import closed_form, edges
from tests.corpora import composites

Array = NDArray[Any]


def blurred_disc() -> tuple[Array, Array, NDArray[np.bool_]]:
    """Return an image of a blurred disc whose colors vary slowly, its alpha, and the band around its edge."""
    disc = np.asarray(cv2.circle(np.zeros((80, 90), np.uint8), (45, 40), 22, 255, -1))
    truth = cv2.GaussianBlur(disc.astype(np.float32) / 255, (0, 0), 3)
    across = np.linspace(0, 1, 90, dtype=np.float32)[None, :, None]
    front = np.array([0.9, 0.4, 0.2], np.float32) + 0.1 * across
    back = np.array([0.2, 0.4, 0.6], np.float32) + np.array([0.3, -0.2, 0.1], np.float32) * across
    image = truth[..., None] * front + (1 - truth[..., None]) * back
    return image, truth, (truth > 0.001) & (truth < 0.999)


def test_alpha_of_mixed_colors_is_recovered_from_a_hard_mask() -> None:
    image, truth, band = blurred_disc()
    mask = (truth > 0.5).astype(np.float32)
    alpha = closed_form.refine(image, mask, band, np.zeros_like(mask))
    assert np.abs(alpha - truth)[band].mean() < 0.05 < np.abs(mask - truth)[band].mean()
    assert np.array_equal(alpha[~band], mask[~band])


def test_trusted_alpha_is_kept() -> None:
    image, truth, band = blurred_disc()
    mask = (truth > 0.5).astype(np.float32)
    alpha = closed_form.refine(image, mask, band, np.full_like(mask, 1e6))
    assert np.abs(alpha - mask).max() < 1e-3


@pytest.mark.parametrize("shape", [(1, 1), (2, 9), (9, 2), (3, 3)])
def test_image_of_few_pixels_has_a_finite_alpha(shape: tuple[int, int]) -> None:
    rgb = np.random.default_rng(1).random((*shape, 3)).astype(np.float32)
    mask = np.zeros(shape, np.float32)
    alpha = closed_form.refine(rgb, mask, np.ones(shape, bool), mask)
    assert alpha.shape == shape
    assert np.isfinite(alpha).all()


def test_band_above_the_limit_is_not_refined(monkeypatch: pytest.MonkeyPatch) -> None:
    image, truth, band = blurred_disc()
    monkeypatch.setattr(closed_form, "MAX_PIXELS", int(band.sum()) - 1)
    mask = (truth > 0.5).astype(np.float32)
    assert closed_form.refine(image, mask, band, mask) is mask


@pytest.mark.parametrize("stratum", ["textured", "cluttered"])
def test_refinement_reduces_the_error_at_edges_by_a_third(stratum: composites.Stratum) -> None:
    blended, refined = [], []
    for seed in range(430, 433):
        known = composites.composite(seed, stratum)
        mask = known.alpha > 0.5
        blended.append(np.abs(edges.soft_alpha(known.rgb, mask) - known.alpha).mean())
        refined.append(np.abs(edges.refined_alpha(known.rgb, mask, 1.0) - known.alpha).mean())
    assert np.mean(refined) < 0.66 * np.mean(blended), (blended, refined)
