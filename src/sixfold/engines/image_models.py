"""Common inputs of the image models on this machine, and the names derived from their files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

MAX_NAME = 100
_SIDE: Mapping[str, Any] = {"type": "integer", "min": 64, "max": 2048}
_SIDE_PATTERN = r"(?:6[4-9]|[7-9]\d|[1-9]\d\d|1\d{3}|20[0-3]\d|204[0-8])"
_WEIGHT = re.compile(r"(.+?)(?::(-?\d(?:\.\d{1,3})?))?", re.DOTALL)
# The number of LoRAs that a model's description lists.
_MAX_NAMED = 20


def sanitized(name: str) -> str:
    """Return a name for a model's id: letters, digits, `.`, `_` and `-`; empty if nothing is left."""
    return re.sub(r"[^A-Za-z0-9._]+", "-", name)[:MAX_NAME].strip("-.")


def parse_lora(text: str) -> tuple[str, float]:
    """Return the name and the weight of `NAME` or `NAME:WEIGHT`; the default weight is 1."""
    match = _WEIGHT.fullmatch(text)
    return (match[1], float(match[2] or 1)) if match is not None else (text, 1.0)


def inputs(side: int) -> dict[str, Mapping[str, Any]]:
    """Return the input descriptors for the prompts, the size and the seed.

    `side` is the default width and height in pixels.
    """
    return {
        "prompt": _text("What the image shows", required=True),
        "negative_prompt": _text("What to leave out", default=""),
        "width": {**_SIDE, "default": side, "description": "Width in pixels"},
        "height": {**_SIDE, "default": side, "description": "Height in pixels"},
        "size": {
            "type": "string",
            "pattern": f"{_SIDE_PATTERN}x{_SIDE_PATTERN}",
            "like": "1024x768",
            "description": "Width and height as WIDTHxHEIGHT, instead of width and height",
        },
        "seed": {
            "type": "integer",
            "min": 0,
            "max": 2147483647,
            "description": "The same seed and inputs give the same image; random when omitted",
        },
    }


def sampling(steps: int | None, cfg: float | None) -> dict[str, Mapping[str, Any]]:
    """Return the rows of `steps` and `cfg`; None omits a default that only the engine knows."""
    rows: dict[str, dict[str, Any]] = {
        "steps": {"type": "integer", "min": 1, "max": 150, "description": "Sampling steps"},
        "cfg": {
            "type": "number",
            "min": 0,
            "max": 30,
            "description": "How closely to follow the prompt; at most 1 ignores the negative prompt",
        },
    }
    usual = {"steps": steps, "cfg": cfg}
    return {
        name: row if usual[name] is None else {**row, "default": usual[name]} for name, row in rows.items()
    }


def lora(names: Iterable[str]) -> dict[str, Any]:
    """Return the row of the input for up to eight LoRAs, or an empty dictionary without LoRAs."""
    all_names = sorted(names)
    if not all_names:
        return {}
    listing = ", ".join(all_names[:_MAX_NAMED]) + (", …" if len(all_names) > _MAX_NAMED else "")
    return {
        "type": "texts",
        "max_items": 8,
        "max_chars": MAX_NAME + 8,
        "pattern": f"(?:{'|'.join(map(re.escape, all_names))})(?::-?\\d(?:\\.\\d{{1,3}})?)?",
        "like": f"{all_names[0]}:0.8",
        "description": f"LoRAs to apply, each as NAME or NAME:WEIGHT (-9.999 to 9.999): {listing}",
    }


def _text(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "max_chars": 4000, "description": description, **more}
