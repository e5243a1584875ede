"""What a loaded film pipeline takes, from `classes.toml` by its class."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from sixfold.core.catalog.engines import EngineError
from sixfold.engines.image.diffusers.profiles import scale_into


@dataclass(frozen=True, slots=True)
class VideoProfile:
    """The table's row of one pipeline; `area` in pixels."""

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
        """The size to make for an asked one: within the model's area, in whole multiples, of its shape."""
        scale = scale_into(size, *self.area)
        across, down = (max(1, round(side * scale / self.multiple)) * self.multiple for side in size)
        return across, down

    def count_for(self, frames: int) -> int:
        """How many frames one run makes where `frames` are still wanted: whole groups, and one."""
        groups = max(1, math.ceil((min(frames, self.frames) - 1) / self.group))
        return groups * self.group + 1


def of(pipeline: Any, given: Mapping[str, Any]) -> VideoProfile:
    """A film pipeline's profile; `given` (`steps`, `rate`, any of its fields) goes over the table's row.

    Raises `EngineError` for a class that makes no films.
    """
    name = type(pipeline).__name__
    table = _table()
    if name not in table:
        known = ", ".join(table)
        raise EngineError(f"{name} makes no films that this server knows: it takes {known}.")
    row = dict(table[name])
    switch = row.pop("expanded", "")
    if switch and pipeline.config.get(switch):
        row |= row[switch]
    elif switch:
        row["pictured"] = ""
    mine = {one.name for one in fields(VideoProfile)}
    row = {key: value for key, value in (row | dict(given)).items() if key in mine}
    return VideoProfile(**row | {"area": tuple(row["area"])})


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("classes.toml").read_text("utf-8"))
