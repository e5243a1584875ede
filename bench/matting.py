"""Measure background removal without weights on composites whose alpha is known.

.venv/bin/python -m bench matting

Four strata of 67 composites each, with seeds that were not used for tuning: plain backgrounds, textures,
shadows and clutter. Overlap is the soft IoU. The edge error is the mean difference of alpha, in percent,
within two pixels of partly transparent pixels; the fringe is the distance of their colors from the
subject's, of 255.
"""

from __future__ import annotations

import time

import cv2
import numpy as np

from bench.reporting import Row, calibration, of_samples
from sixfold.engines.image.matting import edges, segmentation
from tests.corpora import composites
from tests.corpora.composites import Composite

TITLE = "Background removal without weights, 268 composites of 384 x 448"
EACH, FIRST_SEED = 67, 90_000


def scores(known: Composite) -> tuple[float, float, float, float, float]:
    """Return the overlap, edge error in percent, fringe, raw fringe (not cleaned) and confidence."""
    alpha, confidence = segmentation.alpha(known.rgb)
    clean = edges.decontaminate(known.rgb, alpha)
    overlap = np.minimum(alpha, known.alpha).sum() / np.maximum(alpha, known.alpha).sum()
    soft = ((known.alpha > 0.02) & (known.alpha < 0.98)).astype(np.uint8)
    band = cv2.dilate(soft, np.ones((5, 5), np.uint8)) > 0
    error = 100 * float(np.abs(alpha - known.alpha)[band].mean())
    edge = band & (alpha > 0.1) & (known.alpha > 0.1)
    true = known.subject[edge] * 255
    fringe = float(np.abs(clean[edge] - true).mean()) if edge.any() else 0.0
    raw = float(np.abs(known.rgb[edge] - true).mean()) if edge.any() else 0.0
    return float(overlap), error, fringe, raw, confidence


def rows() -> list[Row]:
    """Return the figures of each stratum, and the error of the confidence."""
    cv2.setNumThreads(1)
    result = calibration()
    every: list[tuple[float, float]] = []
    times: list[float] = []
    for stratum in composites.STRATA:
        measured: list[tuple[float, float, float, float, float]] = []
        for seed in range(FIRST_SEED, FIRST_SEED + EACH):
            known = composites.composite(seed, stratum)
            began = time.process_time()
            measured.append(scores(known))
            times.append(time.process_time() - began)
        overlap, error, fringe, raw, confidence = np.array(measured).T
        every += list(zip(overlap, confidence, strict=True))
        low = f"tenth percentile {np.quantile(overlap, 0.1):.3f}, median {np.median(overlap):.3f}"
        result.append(Row(f"{stratum}: mean overlap", 100 * float(overlap.mean()), "%", note=low))
        result.append(Row(f"{stratum}: edge error", float(error.mean()), "%"))
        note = f"{raw.mean():.1f} before colors are cleaned"
        result.append(Row(f"{stratum}: color fringe", float(fringe.mean()), "of 255", note=note))
    truth, response = np.array(every).T
    sure = truth[response >= 0.85]
    result.append(
        Row("confidence: mean distance from the overlap", 100 * float(np.abs(truth - response).mean()), "%")
    )
    note = f"{len(sure)} of {len(truth)} cut-outs report it"
    result.append(Row("mean overlap where the quality is full", 100 * float(sure.mean()), "%", note=note))
    result.append(of_samples("processor time of an image", times, "s"))
    return result
