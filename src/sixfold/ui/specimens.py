"""What each model's card shows: a real output of it, made small by `make gallery`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from sixfold.ui.pages import STATIC

FOLDER = STATIC / "specimens"
LIST = "specimens.json"
_WIDE, _TALL = 400, 225  # of what is drawn from numbers


@dataclass(frozen=True, slots=True)
class ExampleOutput:
    """One output. `kind` says how to show it: picture, film, sound, words; `line` is a path in 400 by 225.

    `given` are the inputs that made it, as far as they are no files.
    """

    kind: str
    still: str = ""
    clip: str = ""
    line: str = ""
    text: str = ""
    given: Mapping[str, Any] = field(default_factory=dict[str, Any])


def read() -> dict[str, Any]:
    """The list as it was written; empty before the first `make gallery`."""
    path = FOLDER / LIST
    found: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    return found


@cache
def known() -> dict[str, ExampleOutput]:
    """Every specimen by its model."""
    return {name: _specimen(row) for name, row in read().items()}


def _specimen(row: dict[str, Any]) -> ExampleOutput:
    files = {name.rpartition(".")[2]: f"specimens/{name}" for name in row["files"]}
    line = _wave(row["peaks"]) if "peaks" in row else _curve(row["line"]) if "line" in row else ""
    clip = files.get("webm") or files.get("mp3", "")
    return ExampleOutput(
        row["kind"], files.get("webp", ""), clip, line, row.get("text", ""), row.get("given", {})
    )


def _wave(peaks: list[int]) -> str:
    """Upright strokes around the middle, as high as the sound is loud."""
    step, middle = _WIDE / (len(peaks) + 4), _TALL / 2
    half = [max(1.5, 0.75 * middle * peak / 100) for peak in peaks]
    return "".join(f"M{step * (at + 2.5):.1f} {middle - h:.1f}v{2 * h:.1f}" for at, h in enumerate(half))


def _curve(values: list[float]) -> str:
    """A line through the values, from edge to edge."""
    low, high = min(values), max(values)
    step, tall = _WIDE / max(1, len(values) - 1), 0.6 * _TALL
    places = [(step * at, 0.8 * _TALL - tall * (y - low) / (high - low or 1)) for at, y in enumerate(values)]
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
