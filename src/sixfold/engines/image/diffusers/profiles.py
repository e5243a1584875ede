"""Defaults and limits of pipelines by class, from `classes.toml`."""

# pyright: reportMissingImports=false

from __future__ import annotations

import inspect
import math
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

_UNKNOWN_MULTIPLE = 16
_UNKNOWN_SIDE = 1024
_LONGEST_SIDE = 4096


class ModelProfile(msgspec.Struct, frozen=True):
    """The settings of one pipeline; `native` is in pixels, `area` in multiples of `native` squared."""

    steps: int = 30
    guidance: float = 5.0
    multiple: int = _UNKNOWN_MULTIPLE
    native: int = _UNKNOWN_SIDE
    area: tuple[float, float] = (0.25, 2.0)
    sequence: int = 0
    pieces: bool = False
    negative: bool = False

    def side_in(self, width: int, height: int) -> tuple[int, int]:
        """Return the size to generate for a requested size.

        The size lies within the model's area, is a multiple of `multiple`, and is not smaller than the
        requested size if the model supports that.
        """
        smallest, largest = (part * self.native**2 for part in self.area)
        scale = min(scale_into((width, height), smallest, largest), _LONGEST_SIDE / max(width, height))
        return self._up(width * scale), self._up(height * scale)

    def _up(self, side: float) -> int:
        return max(1, math.ceil(side / self.multiple - 1e-6)) * self.multiple


def scale_into(size: tuple[int, int], smallest: float, largest: float) -> float:
    """Return the factor for both sides that brings the area in pixels between `smallest` and `largest`."""
    area = math.prod(size)
    return math.sqrt(min(max(area, smallest), largest) / area)


def profile_of(pipeline: Any, overrides: Mapping[str, Any]) -> ModelProfile:
    """Return the profile of a text-to-image pipeline.

    `overrides` contains the operator's `steps` and `guidance`.
    """
    name = type(pipeline).__name__
    table = _table()
    row: dict[str, Any] = dict(table[name]) if name in table else _own_defaults(pipeline)
    facts = _facts(pipeline)
    for special in table["distilled"]:
        conditions = {key: special[key] for key in facts if key in special}
        if conditions and all(facts[key] == value for key, value in conditions.items()):
            row |= {key: value for key, value in special.items() if key not in facts}
            break
    row |= {key: overrides[key] for key in ("steps", "guidance") if overrides.get(key) is not None}
    row.setdefault("native", _native(pipeline))
    row["area"] = tuple(row.get("area", ModelProfile().area))
    return replace(ModelProfile(), **row)


def takes(pipeline: Any, name: str) -> bool:
    """Return whether the pipeline's call has a parameter of this name."""
    return name in _parameters(type(pipeline))


@cache
def _parameters(pipeline_class: type) -> frozenset[str]:
    return frozenset(inspect.signature(pipeline_class.__call__).parameters)


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("classes.toml").read_text("utf-8"))


def _facts(pipeline: Any) -> dict[str, Any]:
    """Return the properties that distinguish a distilled model from the original."""
    scheduler = pipeline.scheduler
    transformer = getattr(pipeline, "transformer", None)
    return {
        "class": type(pipeline).__name__,
        "scheduler": type(scheduler).__name__,
        "timestep_spacing": scheduler.config.get("timestep_spacing"),
        "guidance_embeds": None if transformer is None else transformer.config.get("guidance_embeds"),
    }


def _own_defaults(pipeline: Any) -> dict[str, Any]:
    parameters = inspect.signature(type(pipeline).__call__).parameters
    row: dict[str, Any] = {"negative": "negative_prompt" in parameters}
    for ours, theirs in (
        ("steps", "num_inference_steps"),
        ("guidance", "guidance_scale"),
        ("sequence", "max_sequence_length"),
    ):
        default = parameters[theirs].default if theirs in parameters else None
        if isinstance(default, (int, float)):
            row[ours] = default
    return row


def _native(pipeline: Any) -> int:
    network = getattr(pipeline, "unet", None) or getattr(pipeline, "transformer", None)
    side = None if network is None else network.config.get("sample_size")
    if isinstance(side, int):
        return side * int(getattr(pipeline, "vae_scale_factor", 8))
    return _UNKNOWN_SIDE
