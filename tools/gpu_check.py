"""Run the diffusion engine at full size on an accelerator, with random weights.

    PYTHONPATH=src:. python tools/gpu_check.py [--side 512] [--steps 20] [--rows 1 8]

Tiny pipelines do not reproduce black half-precision images, exhausted GPU memory or the cost of offloading.
The check needs the extra `weights` and about 3 GB of temporary disk space, but no downloaded weights. Every
image passes the engine's checks (no NaN, not black, not one color). The command prints one JSON line for
each measurement, and exits with status 1 if one failed.
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
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import AutoencoderKL, EulerDiscreteScheduler, StableDiffusionPipeline, UNet2DConditionModel
from PIL import Image
from transformers import CLIPTextConfig, CLIPTextModel

from sixfold.core.catalog.engines import BatchJob, Result, Task
from sixfold.engines.image.diffusers import image_checks, placement
from sixfold.engines.image.diffusers.engine import DiffusersEngine
from tests.unit.engines.diffusers import tiny

GIB = 2**30


class LogContext:
    """Run context that stores the log lines."""

    scratch = Path()

    def __init__(self) -> None:
        self.lines: list[str] = []

    def progress(self, fraction: float) -> None:
        """Ignore the progress."""

    def log(self, line: str) -> None:
        """Store a line."""
        self.lines.append(line)


def build(folder: Path) -> Path:
    """Save random weights in the shape of Stable Diffusion 1.5 in half precision, and return the folder."""
    torch.manual_seed(0)
    text = CLIPTextConfig(
        vocab_size=514,
        bos_token_id=512,
        eos_token_id=513,
        pad_token_id=513,
        hidden_size=768,
        intermediate_size=3072,
        num_attention_heads=12,
        num_hidden_layers=12,
        projection_dim=768,
    )
    pipeline = StableDiffusionPipeline(
        unet=UNet2DConditionModel(sample_size=64, cross_attention_dim=768),
        vae=AutoencoderKL(
            block_out_channels=(128, 256, 512, 512),
            down_block_types=("DownEncoderBlock2D",) * 4,
            up_block_types=("UpDecoderBlock2D",) * 4,
            layers_per_block=2,
            latent_channels=4,
            sample_size=512,
        ),
        text_encoder=CLIPTextModel(text),
        tokenizer=tiny.tokenizer(),
        scheduler=EulerDiscreteScheduler(
            beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", steps_offset=1
        ),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    pipeline.to(torch.bfloat16)
    pipeline.save_pretrained(folder, safe_serialization=True)
    return folder


def measure(engine: DiffusersEngine, rows: int, side: int) -> dict[str, Any]:
    """Run one denoising loop over `rows` images, and return its duration, throughput and peak memory."""
    kind = engine.device
    context = LogContext()
    inputs = {"prompt": "a lighthouse", "width": side, "height": side}
    jobs = [BatchJob(Task("t", "ra2", {**inputs, "seed": seed}), context) for seed in range(rows)]
    if kind == "cuda":
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    results = engine.run_many(jobs)
    seconds = time.perf_counter() - began
    for result in results:
        if not isinstance(result, Result):
            raise result
    with Image.open(io.BytesIO(results[0].artifacts[0].data)) as image:  # pyright: ignore[reportAttributeAccessIssue]  # checked above
        pixels = np.asarray(image.convert("RGB"))
    (loaded,) = engine.loaded.values()
    peak = torch.cuda.max_memory_allocated() if kind == "cuda" else 0
    return {
        "rows": rows,
        "seconds": round(seconds, 3),
        "pictures_per_second": round(rows / seconds, 3),
        "peak_gib": round(peak / GIB, 2),
        "weights_gib": round(sum(loaded.sizes.values()) / GIB, 2),
        "decode_estimate_gib": round(
            placement.decode_bytes(loaded.pipeline, side * side, loaded.where.item_bytes) / GIB, 2
        ),
        "noise": image_checks.is_noise(pixels),
        "log": context.lines[-1],
    }


def trial(folder: Path, options: dict[str, Any], side: int, batches: tuple[int, ...]) -> bool:
    """Measure an engine with these options after one warm-up; return False if it failed."""
    report: dict[str, Any] = dict(options)
    try:
        engine = DiffusersEngine(source=str(folder), **options)
        measure(engine, 1, side)
        for rows in batches:
            print(json.dumps(report | measure(engine, rows, side)), flush=True)
    except Exception as error:  # noqa: BLE001 - a failed trial is reported, the others continue
        print(json.dumps(report | {"failed": f"{type(error).__name__}: {error}"}), flush=True)
        return False
    finally:
        placement.release("cuda" if torch.cuda.is_available() else "cpu")
    return True


def main() -> int:
    """Run a trial for each data type and way of offloading."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=512)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8], help="images in one loop")
    arguments = parser.parse_args()
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "no cuda device"
    print(
        json.dumps(
            {"device": name, "torch": torch.__version__, "side": arguments.side, "steps": arguments.steps}
        )
    )
    trials = [
        ({"dtype": "auto", "offload": "none"}, tuple(arguments.rows)),
        ({"dtype": "float16", "offload": "none"}, (1,)),
        ({"dtype": "float32", "offload": "none"}, (1,)),
    ]
    if torch.cuda.is_available():
        trials += [({"offload": "model"}, (1,)), ({"offload": "sequential"}, (1,))]
    with tempfile.TemporaryDirectory() as scratch:
        folder = build(Path(scratch) / "full")
        passed = [
            trial(folder, {**options, "steps": arguments.steps}, arguments.side, rows)
            for options, rows in trials
        ]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
