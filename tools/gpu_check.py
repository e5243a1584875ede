"""Run the diffusion engines at full size with random weights, on an accelerator or a CPU.

    PYTHONPATH=src:. python tools/gpu_check.py [--models sd15 sdxl] [--side 512] [--steps 20] [--rows 1 8]

Tiny pipelines do not reproduce black half-precision images, exhausted memory or the cost of offloading. The
check needs the extra `weights` and temporary disk space of the size of the weights (3 GB for `sd15`, 7 GB for
`sdxl`, 15 GB for `wan`, 21 GB for `z-image`, 34 GB for `flux`), but no downloaded weights. Every image passes
the engine's checks (finite numbers, not black, not a single color). The library's call with the same
arguments runs beside the engine. The command prints one JSON line for each measurement, and exits with
status 1 if a measurement failed.
"""

# The library's annotations are narrower than the values that it accepts.
# pyright: reportMissingImports=false, reportPrivateImportUsage=false, reportArgumentType=false

from __future__ import annotations

import argparse
import io
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import torch
from diffusers import DiffusionPipeline
from PIL import Image

from sixfold.core.catalog.engines import BatchJob, Result, Task
from sixfold.engines.image.diffusers import image_checks, placement
from sixfold.engines.image.diffusers.engine import DiffusersEngine
from sixfold.engines.video.diffusers.engine import VideoDiffusersEngine
from tools import full_size

GIB = 2**30


class LogContext:
    """Run context that stores the log lines."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.lines: list[str] = []

    def progress(self, fraction: float) -> None:
        """Ignore the progress."""

    def log(self, line: str) -> None:
        self.lines.append(line)


def reset_peak() -> int:
    """Start a new measurement of the peak; return the bytes that are in use."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    # 5 resets the peak of resident memory that the kernel records for this process.
    Path("/proc/self/clear_refs").write_text("5")
    return resident("VmRSS")


def peak() -> int:
    """Return the peak in bytes since `reset_peak`, on the GPU or in this process."""
    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else resident("VmHWM")


def resident(field: str) -> int:
    """Return a field of the process's memory in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def images(
    engine: DiffusersEngine, inputs: Mapping[str, Any], rows: int, scratch: Path, before: int
) -> dict[str, Any]:
    """Run one denoising loop over `rows` images, and return its duration, throughput and peak memory."""
    context = LogContext(scratch)
    jobs = [BatchJob(Task("t", "ra2", {**inputs, "seed": seed}), context) for seed in range(rows)]
    began = time.perf_counter()
    results = engine.run_many(jobs)
    seconds = time.perf_counter() - began
    for result in results:
        if not isinstance(result, Result):
            raise result
    with Image.open(io.BytesIO(results[0].artifacts[0].data)) as image:  # pyright: ignore[reportAttributeAccessIssue]  # checked above
        pixels = np.asarray(image.convert("RGB"))
    (loaded,) = engine.loaded.values()
    weights = sum(loaded.sizes.values())
    area = inputs["width"] * inputs["height"]
    estimate = placement.decode_bytes(loaded.pipeline, area, loaded.where.item_bytes)
    return {
        "rows": rows,
        "seconds": round(seconds, 3),
        "images_per_second": round(rows / seconds, 4),
        "peak_gib": round(peak() / GIB, 2),
        "weights_gib": round(weights / GIB, 2),
        "above_weights_gib": round((peak() - before - weights) / GIB, 2),
        "decode_estimate_gib": round(estimate / GIB, 2),
        "noise": image_checks.is_noise(pixels),
        "log": context.lines[-1],
    }


def video(
    engine: VideoDiffusersEngine, inputs: Mapping[str, Any], scratch: Path, before: int
) -> dict[str, Any]:
    """Generate one video, and return its duration, size and peak memory."""
    context = LogContext(scratch)
    began = time.perf_counter()
    result = engine.run(Task("t", "video-t2v", dict(inputs)), context)
    seconds = time.perf_counter() - began
    loaded = engine.load()
    weights = sum(loaded.sizes.values())
    return {
        "seconds": round(seconds, 3),
        "frames_per_second": round(inputs["num_frames"] / seconds, 4),
        "peak_gib": round(peak() / GIB, 2),
        "weights_gib": round(weights / GIB, 2),
        "above_weights_gib": round((peak() - before - weights) / GIB, 2),
        "output": result.artifacts[0].info,
        "log": context.lines[-1],
    }


def library(folder: Path, dtype: torch.dtype, side: int, steps: int) -> dict[str, Any]:
    """Measure the library's call for one image with the weights on the device, after one warm-up."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    reset_peak()
    pipeline: Any = DiffusionPipeline.from_pretrained(folder, dtype=dtype, local_files_only=True).to(device)
    pipeline.set_progress_bar_config(disable=True)
    seconds = 0.0
    for seed in range(2):
        began = time.perf_counter()
        pipeline(
            "a lighthouse",
            width=side,
            height=side,
            num_inference_steps=steps,
            generator=torch.Generator("cpu").manual_seed(seed),
        )
        seconds = time.perf_counter() - began
    return {
        "library": diffusers.__version__,
        "seconds": round(seconds, 3),
        "images_per_second": round(1 / seconds, 4),
        "peak_gib": round(peak() / GIB, 2),
    }


def image_trial(folder: Path, inputs: Mapping[str, Any], options: dict[str, Any], rows: list[int]) -> None:
    """Print a measurement of an image engine for each number of rows, after one warm-up."""
    before = reset_peak()
    engine = DiffusersEngine(source=str(folder), **options)
    images(engine, inputs, 1, folder, before)
    for count in rows:
        print(json.dumps(options | images(engine, inputs, count, folder, before)), flush=True)


def trials(name: str, folder: Path, arguments: argparse.Namespace) -> int:
    """Measure a pipeline with each number format and way of offloading; return the number of failures."""
    row = full_size.row_of(name)
    side = arguments.side or row["side"]
    inputs = {"prompt": "a lighthouse", "width": side, "height": side}
    options = [{"dtype": dtype, "offload": "none"} for dtype in arguments.dtypes]
    if torch.cuda.is_available():
        options += [{"offload": "model"}, {"offload": "sequential"}]
    failures = 0
    for at, chosen in enumerate(options):
        every = {**chosen, "steps": arguments.steps}
        try:
            if "frames" in row:
                before = reset_peak()
                engine = VideoDiffusersEngine(source=str(folder), **every)
                inputs["num_frames"] = row["frames"]
                print(json.dumps(every | video(engine, inputs, folder, before)), flush=True)
                del engine
            else:
                image_trial(folder, inputs, every, arguments.rows if at == 0 else [1])
                if dtype := getattr(torch, chosen.get("dtype", ""), None):
                    placement.release("cuda" if torch.cuda.is_available() else "cpu")
                    print(json.dumps(every | library(folder, dtype, side, arguments.steps)), flush=True)
        except Exception as error:  # noqa: BLE001 - a failed trial is reported, the others continue
            failures += 1
            print(json.dumps(every | {"failed": f"{type(error).__name__}: {error}"}), flush=True)
        finally:
            placement.release("cuda" if torch.cuda.is_available() else "cpu")
    return failures


def main() -> int:
    """Build and measure each pipeline; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=["sd15"], choices=full_size.names())
    parser.add_argument("--side", type=int, default=0, help="pixels; the model's own side if missing")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8], help="images in one loop")
    parser.add_argument("--dtypes", nargs="+", default=["auto", "bfloat16", "float32"])
    arguments = parser.parse_args()
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "no cuda device"
    print(json.dumps({"device": name, "torch": torch.__version__, "steps": arguments.steps}))
    failures = 0
    for model in arguments.models:
        with tempfile.TemporaryDirectory() as scratch:
            began = time.perf_counter()
            folder = full_size.build(model, Path(scratch))
            size = sum(file.stat().st_size for file in folder.rglob("*.safetensors"))
            seconds = round(time.perf_counter() - began, 1)
            print(
                json.dumps({"model": model, "files_gib": round(size / GIB, 2), "built_in_s": seconds}),
                flush=True,
            )
            failures += trials(model, folder, arguments)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
