"""Measure the overhead around a diffusion pipeline with random weights, and the gain of a batch.

.venv/bin/python -m bench weights

Needs the extra `weights`. The diffusion pipeline is small, which makes the overhead visible; with a real
model the denoising takes seconds and the overhead stays the same.
"""

from __future__ import annotations

import asyncio
import importlib.util
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.reporting import Row, calibration, of_samples

TITLE = "Images with local weights (a tiny pipeline, 64 x 64, 4 steps, one thread)"
ROUNDS, STEPS = 40, 4
BATCHES = (1, 4, 8)


class _Quiet:
    scratch = Path()

    def progress(self, fraction: float) -> None:
        """Ignore the progress."""

    def log(self, line: str) -> None:
        """Ignore the line."""


def _inputs(seed: int) -> dict[str, Any]:
    return {"prompt": "a red fox in snow", "width": 64, "height": 64, "seed": seed}


def _plain(pipeline: Any, seed: int) -> bytes:
    """Call the pipeline and encode the image, as a plain script does."""
    import numpy as np
    import torch

    from sixfold.engines.image import encode

    image = pipeline(
        "a red fox in snow",
        width=64,
        height=64,
        num_inference_steps=STEPS,
        guidance_scale=7.5,
        generator=torch.Generator("cpu").manual_seed(seed),
        output_type="np",
    ).images[0]
    return encode.encode((image * 255).round().astype(np.uint8), format="png")


def _alternating(folder: Path) -> tuple[list[float], list[float], Any]:
    """Return the processor seconds of a script and of the engine, measured alternately, and the engine."""
    from diffusers.pipelines.pipeline_utils import DiffusionPipeline

    from sixfold.core.catalog.engines import Task
    from sixfold.engines.image.diffusers.engine import DiffusersEngine

    pipeline: Any = DiffusionPipeline.from_pretrained(folder, local_files_only=True)
    pipeline.set_progress_bar_config(disable=True)
    engine = DiffusersEngine(source=str(folder), steps=STEPS, threads=1, dtype="float32")
    plain: list[float] = []
    ours: list[float] = []
    for seed in range(ROUNDS + 5):
        began = time.process_time()
        expected = _plain(pipeline, seed)
        between = time.process_time()
        inputs = engine.run(Task("t", "ra2", _inputs(seed)), _Quiet()).artifacts[0].data
        ended = time.process_time()
        assert inputs == expected, "the engine's picture is not the library's"
        if seed >= 5:
            plain.append(between - began)
            ours.append(ended - between)
    return plain, ours, engine


def _batches(engine: Any) -> list[Row]:
    from sixfold.core.catalog.engines import BatchJob, Task

    results: list[Row] = []
    first = 0.0
    for size in BATCHES:
        rates: list[float] = []
        for turn in range(12):
            jobs = [BatchJob(Task("t", "ra2", _inputs(n + turn)), _Quiet()) for n in range(size)]
            began = time.process_time()
            engine.run_many(jobs)
            rates.append(size / (time.process_time() - began))
        rate = statistics.median(rates[2:])
        first = first or rate
        note = "" if size == 1 else f"{rate / first:.2f} times batch 1"
        results.append(Row(f"images per CPU second, batch of {size}", rate, "per s", note=note))
    return results


async def _prediction_overhead(folder: Path, weights: Path) -> tuple[list[float], float]:
    """Return the overhead of whole predictions in seconds, and the time of the first, cold one."""
    from sixfold.app import catalog as app_catalog
    from sixfold.core.predictions.service import PredictionRequest
    from tests.api.app_fixture import running_app

    options = {"source": str(weights), "steps": STEPS, "threads": 1}
    tables = {"engines": {"weights-image": options}}
    samples: list[float] = []
    cold = 0.0
    models = app_catalog.models_document()
    async with running_app(folder, models, driver="process", tables=tables) as app:
        pipeline = app.predictions
        for seed in range(ROUNDS + 2):
            order = PredictionRequest(app.account.owner, "ra2", _inputs(seed), "bench", f"req_{seed}")
            began = time.perf_counter()
            ended = await pipeline.wait(await pipeline.submit(order), 120)
            took = time.perf_counter() - began
            assert ended.engine == "weights-image", ended.error
            assert ended.error is None, ended.error
            cold = cold or took
            samples.append(took - (ended.durations.run or 0) / 1e6)
    return samples[2:], cold


def rows() -> list[Row]:
    """Measure the overhead if the extra is installed."""
    if importlib.util.find_spec("diffusers") is None:
        return []
    from tests.unit.engines.diffusers import tiny

    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        folder = Path(name)
        weights = tiny.stable_diffusion(folder / "tiny")
        plain, ours, engine = _alternating(weights)
        batches = _batches(engine)
        pipeline, cold = asyncio.run(_prediction_overhead(folder / "data", weights))
    added = (statistics.median(ours) - statistics.median(plain)) * 1e3
    return [
        *calibration(),
        of_samples("diffusers in a script: call, encode (processor time)", plain, "ms"),
        of_samples("the engine, the same bytes (processor time)", ours, "ms", f"{added:+.1f} ms"),
        of_samples("the pipeline around the engine, priced to captured", pipeline, "ms", "aim 10"),
        Row("first prediction: worker, torch, weights", cold, "s"),
        *batches,
    ]
