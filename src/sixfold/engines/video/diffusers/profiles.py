"""Profiles of video pipelines, from `classes.toml` by class name."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from sixfold.core.catalog.engines import EngineError
from sixfold.engines.image.diffusers.profiles import scale_into


class VideoProfile(msgspec.Struct, frozen=True):
    """The sampling defaults and limits of a pipeline; `area` is a range in pixels."""

    steps: int
    guidance: float
    rate: int
    frames: int
    group: int
    multiple: int
    area: tuple[int, int]
    pictured: str = ""
    words: bool = True
    rated: bool = False
    negative: str = ""
    exact_vae: bool = False

    def size_for(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return the size to generate for a requested size: the same shape within the model's limits."""
        scale = scale_into(size, *self.area)
        across, down = (max(1, round(side * scale / self.multiple)) * self.multiple for side in size)
        return across, down

    def count_for(self, frames: int) -> int:
        """Return how many of the remaining `frames` one run generates: whole groups of frames plus one."""
        groups = max(1, math.ceil((min(frames, self.frames) - 1) / self.group))
        return groups * self.group + 1


def of(pipeline: Any, overrides: Mapping[str, Any]) -> VideoProfile:
    """Return a pipeline's profile; `overrides` (any fields) replace values of the table.

    Raises `EngineError` for a class that is not in the table.
    """
    name = type(pipeline).__name__
    table = _table()
    if name not in table:
        raise EngineError(f"{name} is not a supported video pipeline: use one of {', '.join(table)}.")
    row = dict(table[name])
    switch = row.pop("expanded", "")
    if switch and pipeline.config.get(switch):
        row |= row[switch]
    elif switch:
        row["pictured"] = ""
    names = VideoProfile.__struct_fields__
    row = {key: value for key, value in (row | dict(overrides)).items() if key in names}
    return VideoProfile(**row | {"area": tuple(row["area"])})


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("classes.toml").read_text("utf-8"))
