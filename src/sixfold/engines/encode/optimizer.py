"""The engine of `media-optimizer`: one picture or film in the sizes and formats that pages want."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from sixfold.core.catalog.engines import Artifact, Context, Result, Task, UnusableInput
from sixfold.engines.encode import probe, transcode
from sixfold.engines.image import decode, encode
from sixfold.engines.image.decode import DecodedImage, Pixels
from sixfold.engines.video.encode import KINDS

PICTURES, FILMS = ("webp", "avif", "jpeg"), ("webm", "mp4")
_MOST_SIZES = 20
_SIDES = (16, 8192)
_NUMBER = re.compile(r"\d{1,5}")
AV1 = {
    "webm": replace(KINDS["webm"], codec="libsvtav1", options={}),
    "mp4": replace(KINDS["mp4"], codec="libsvtav1", options={}),
}


@dataclass(slots=True)
class _EncoderCache:
    """What was made: files by name, and a row of facts for each."""

    scratch: Path
    original: int
    artifacts: list[Artifact] = field(default_factory=list[Artifact])
    rows: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def keep(self, name: str, path: Path, content_type: str, facts: Mapping[str, Any]) -> None:
        """Add a file."""
        size = path.stat().st_size
        saved = round(100 * (1 - size / max(1, self.original)), 1)
        row = {"name": name, "content_type": content_type, **facts, "bytes": size, "saved_percent": saved}
        self.rows.append(row)
        self.artifacts.append(Artifact(content_type, info={"name": name, **facts}, path=path))


class OptimizerEngine:
    """Makes of `media` what `operation` says, never larger than it is; equal inputs give equal bytes."""

    name = "optimizer"
    version = "2"

    def run(self, task: Task, context: Context) -> Result:
        """The files by their names, `files` with the facts of each, and the texts that a page needs."""
        path = probe.source(task)
        shelf = _EncoderCache(context.scratch, path.stat().st_size)
        data = _OPERATIONS[str(task.inputs["operation"])](path, task.inputs, shelf, context.progress)
        told = {
            "operation": task.inputs["operation"],
            "original": {**data.pop("original"), "bytes": shelf.original},
        }
        return Result(tuple(shelf.artifacts), {**told, "files": shelf.rows, **data}, "full")


def numbers(text: str, name: str) -> list[int]:
    """Numbers between commas, from small to large; raises `UnusableInput`."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    low, high = _SIDES
    if not parts or not all(_NUMBER.fullmatch(part) and low <= int(part) <= high for part in parts):
        raise UnusableInput(f"{name} must be numbers from {low} to {high} between commas")
    found = sorted({int(part) for part in parts})
    if len(found) > _MOST_SIZES:
        raise UnusableInput(f"{name} must be at most {_MOST_SIZES} numbers")
    return found


def formats(text: str, known: Sequence[str], others: Sequence[str]) -> list[str]:
    """The formats between commas that serve here; `others` are words that do not; raises `UnusableInput`."""
    parts = [
        {"jpg": "jpeg"}.get(part, part) for part in (one.strip().lower() for one in text.split(",")) if part
    ]
    wrong = [part for part in parts if part not in known and part not in others]
    if wrong:
        raise UnusableInput(f"formats must be of {', '.join((*known, *others))}, not {wrong[0][:20]}")
    return [part for part in dict.fromkeys(parts) if part in known] or list(known[:1])


def fitting(wanted: Sequence[int], own: int) -> list[int]:
    """The wanted sides that are not larger than the original's; its own where all are."""
    return [side for side in wanted if side <= own] or [own]


def _responsive(
    path: Path, inputs: Mapping[str, Any], shelf: _EncoderCache, step: Callable[[float], None]
) -> dict[str, Any]:
    """Every width in every format, and a `srcset` for each format."""
    picture = decode.decode(path)
    kinds = formats(str(inputs["formats"]), PICTURES, FILMS)
    widths = fitting(numbers(str(inputs["widths"]), "widths"), picture.width)
    for count, width in enumerate(widths):
        for kind in kinds:
            data = _encoded(picture, width, kind, int(inputs["quality"]))
            _kept(shelf, picture, width, kind, data)
        step((count + 1) / len(widths))
    return {
        "original": _facts(picture),
        "srcset": _srcset(shelf.rows),
        "sizes": f"(max-width: {widths[-1]}px) 100vw, {widths[-1]}px",
    }


def _cdn(
    path: Path, inputs: Mapping[str, Any], shelf: _EncoderCache, step: Callable[[float], None]
) -> dict[str, Any]:
    """For every width the smallest of the formats, and one file that every browser shows."""
    picture = decode.decode(path)
    kinds = formats(str(inputs["formats"]), PICTURES, FILMS)
    plain = "jpeg" if picture.alpha is None else "png"
    widths = fitting(numbers(str(inputs["widths"]), "widths"), picture.width)
    picked: dict[str, str] = {}
    for count, width in enumerate(widths):
        made = {
            kind: _encoded(picture, width, kind, int(inputs["quality"]))
            for kind in dict.fromkeys((*kinds, plain))
        }
        best = min(made, key=lambda kind: (len(made[kind]), kind))
        picked[str(width)] = best
        _kept(shelf, picture, width, best, made[best])
        if width == widths[-1] and best != plain:
            _kept(shelf, picture, width, plain, made[plain])
        step((count + 1) / len(widths))
    fallback = f"image-{widths[-1]}.{_extension(plain)}"
    rows = [row for row in shelf.rows if row["format"] == picked[str(row["width"])]]
    return {"original": _facts(picture), "picked": picked, "srcset": _srcset(rows), "fallback": fallback}


def _facts(picture: DecodedImage) -> dict[str, Any]:
    return {"width": picture.width, "height": picture.height, "format": picture.format.lower()}


def _smaller(layer: Pixels, size: tuple[int, int]) -> Pixels:
    return np.asarray(cv2.resize(layer, size, interpolation=cv2.INTER_AREA), np.uint8)


def _encoded(picture: DecodedImage, width: int, kind: str, quality: int) -> bytes:
    size = (width, max(1, round(picture.height * width / picture.width)))
    rgb, alpha = picture.rgb, picture.alpha
    if size != (picture.width, picture.height):
        rgb = _smaller(rgb, size)
        alpha = None if alpha is None else _smaller(alpha, size)
    return encode.encode(rgb, alpha, format=kind, quality=quality)


def _extension(kind: str) -> str:
    return {"jpeg": "jpg"}.get(kind, kind)


def _kept(shelf: _EncoderCache, picture: DecodedImage, width: int, kind: str, data: bytes) -> None:
    name = f"image-{width}.{_extension(kind)}"
    path = shelf.scratch / name
    path.write_bytes(data)
    height = max(1, round(picture.height * width / picture.width))
    shelf.keep(name, path, encode.CONTENT_TYPES[kind], {"width": width, "height": height, "format": kind})


def _srcset(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """For each format the text of a `srcset`, with the files' names where their addresses go."""
    kinds = dict.fromkeys(str(row["format"]) for row in rows)
    return {
        kind: ", ".join(f"{row['name']} {row['width']}w" for row in rows if row["format"] == kind)
        for kind in kinds
    }


def _ladder(
    path: Path, inputs: Mapping[str, Any], shelf: _EncoderCache, step: Callable[[float], None]
) -> dict[str, Any]:
    """Every height as AV1 in every container."""
    whole = probe.part(path, {})
    kinds = formats(str(inputs["formats"]), FILMS, PICTURES)
    wanted = numbers(str(inputs["heights"]), "heights")
    shape = transcode.shape_of(whole)
    rungs = [(height, kind) for height in fitting(wanted, shape[1]) for kind in kinds]
    # From a film of little quality (1) to one that is hard to tell from its original (100).
    options = {"preset": "8", "crf": str(round(62 - 0.38 * int(inputs["quality"]))), "svtav1-params": "lp=1"}
    for count, (height, kind) in enumerate(rungs):
        name = f"video-{height}.{kind}"
        rung = replace(AV1[kind], options=options)

        def done(part: float, count: int = count) -> None:
            step((count + part) / len(rungs))

        def choose(own: tuple[int, int], height: int = height) -> tuple[int, int]:
            return transcode.size_of(own, height=height)

        info = transcode.transcoded(whole, rung, shelf.scratch / name, choose, done)
        shelf.keep(name, shelf.scratch / name, rung.content_type, {**info, "format": kind, "codec": "av1"})
    return {"original": {"width": shape[0], "height": shape[1], "duration": round(whole.seconds, 3)}}


_OPERATIONS: Mapping[
    str, Callable[[Path, Mapping[str, Any], _EncoderCache, Callable[[float], None]], dict[str, Any]]
] = {"image-responsive": _responsive, "image-cdn-auto": _cdn, "video-av1-ladder": _ladder}
