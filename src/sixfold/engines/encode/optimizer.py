"""Engine of `media-optimizer`: an image or video in several sizes and formats for web pages."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import msgspec
import numpy as np
from msgspec.structs import replace

from sixfold.core.catalog.engines import Artifact, Context, Result, Task, UnusableInput
from sixfold.engines.encode import probe, transcode
from sixfold.engines.encode.equal_similarity import EncodedImage, SimilarEncoder
from sixfold.engines.image import decode
from sixfold.engines.image.decode import DecodedImage, Pixels
from sixfold.engines.image.output_format import CONTENT_TYPES
from sixfold.engines.video.encode import KINDS, VideoKind

IMAGE_FORMATS, VIDEO_FORMATS = ("webp", "avif", "jpeg"), ("webm", "mp4")
_MAX_SIZES = 20
_SIDES = (16, 8192)
_NUMBER = re.compile(r"\d{1,5}")
AV1 = {
    "webm": replace(KINDS["webm"], codec="libsvtav1", options={}),
    "mp4": replace(KINDS["mp4"], codec="libsvtav1", options={}),
}


class _Results(msgspec.Struct):
    """The files produced so far, and a row of properties for each."""

    scratch: Path
    original: int
    log: Callable[[str], None]
    artifacts: list[Artifact] = []
    rows: list[dict[str, Any]] = []

    def add(self, name: str, path: Path, content_type: str, properties: Mapping[str, Any]) -> None:
        size = path.stat().st_size
        if size > self.original:
            self.log(f"{name} has {size:,} bytes, more than the {self.original:,} of the source.")
        saved = round(100 * (1 - size / max(1, self.original)), 1)
        row = {
            "name": name,
            "content_type": content_type,
            **properties,
            "bytes": size,
            "saved_percent": saved,
        }
        self.rows.append(row)
        self.artifacts.append(Artifact(content_type, info={"name": name, **properties}, path=path))


class OptimizerEngine:
    """Applies an `operation` to `media` without enlarging it; equal inputs result in equal bytes."""

    name = "optimizer"
    version = "4"

    def run(self, task: Task, context: Context) -> Result:
        """Return the files by name, their properties as `files`, and attributes for HTML such as `srcset`."""
        path = probe.source(task)
        results = _Results(context.scratch, path.stat().st_size, context.log)
        data = _OPERATIONS[str(task.inputs["operation"])](path, task.inputs, results, context.progress)
        summary = {
            "operation": task.inputs["operation"],
            "original": {**data.pop("original"), "bytes": results.original},
        }
        return Result(tuple(results.artifacts), {**summary, "files": results.rows, **data}, "full")


def numbers(text: str, name: str) -> list[int]:
    """Parse comma-separated numbers and sort them; raises `UnusableInput`."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    low, high = _SIDES
    if not parts or not all(_NUMBER.fullmatch(part) and low <= int(part) <= high for part in parts):
        raise UnusableInput(f"{name} must be numbers from {low} to {high} separated by commas")
    values = sorted({int(part) for part in parts})
    if len(values) > _MAX_SIZES:
        raise UnusableInput(f"{name} must have at most {_MAX_SIZES} numbers (got {len(values)})")
    return values


def formats(text: str, supported: Sequence[str], others: Sequence[str]) -> list[str]:
    """Parse comma-separated formats, omitting those in `others`; raises `UnusableInput` for unknown ones."""
    parts = [
        {"jpg": "jpeg"}.get(part, part) for part in (one.strip().lower() for one in text.split(",")) if part
    ]
    unknown = [part for part in parts if part not in supported and part not in others]
    if unknown:
        raise UnusableInput(
            f"formats must be any of {', '.join((*supported, *others))} (got {unknown[0][:20]})"
        )
    return [part for part in dict.fromkeys(parts) if part in supported] or list(supported[:1])


def limit_sides(sides: Sequence[int], original: int) -> list[int]:
    """Return the sides that do not exceed the original's side, or the original's side if all of them do."""
    return [side for side in sides if side <= original] or [original]


def _responsive(
    path: Path, inputs: Mapping[str, Any], results: _Results, progress: Callable[[float], None]
) -> dict[str, Any]:
    """Encode every width in every format; return a `srcset` for each format."""
    image = decode.decode(path)
    kinds = formats(str(inputs["formats"]), IMAGE_FORMATS, VIDEO_FORMATS)
    widths = limit_sides(numbers(str(inputs["widths"]), "widths"), image.width)
    for count, width in enumerate(widths):
        encoder = _encoder(image, width, int(inputs["quality"]))
        for kind in kinds:
            _write(results, image, width, kind, encoder.encode(kind))
        progress((count + 1) / len(widths))
    return {
        "original": _properties(image),
        "srcset": _srcset(results.rows),
        "sizes": f"(max-width: {widths[-1]}px) 100vw, {widths[-1]}px",
    }


def _cdn(
    path: Path, inputs: Mapping[str, Any], results: _Results, progress: Callable[[float], None]
) -> dict[str, Any]:
    """Encode every width in the format with the smallest file, and a fallback for all browsers."""
    image = decode.decode(path)
    kinds = formats(str(inputs["formats"]), IMAGE_FORMATS, VIDEO_FORMATS)
    plain = "jpeg" if image.alpha is None else "png"
    widths = limit_sides(numbers(str(inputs["widths"]), "widths"), image.width)
    variants: dict[str, str] = {}
    for count, width in enumerate(widths):
        encoder = _encoder(image, width, int(inputs["quality"]))
        encoded = {kind: encoder.encode(kind) for kind in dict.fromkeys((*kinds, plain))}
        best = min(encoded, key=lambda kind: (len(encoded[kind].data), kind))
        variants[str(width)] = best
        _write(results, image, width, best, encoded[best])
        if width == widths[-1] and best != plain:
            _write(results, image, width, plain, encoded[plain])
        progress((count + 1) / len(widths))
    fallback = f"image-{widths[-1]}.{_extension(plain)}"
    rows = [row for row in results.rows if row["format"] == variants[str(row["width"])]]
    return {"original": _properties(image), "picked": variants, "srcset": _srcset(rows), "fallback": fallback}


def _properties(image: DecodedImage) -> dict[str, Any]:
    return {"width": image.width, "height": image.height, "format": image.format.lower()}


def _resize(layer: Pixels, size: tuple[int, int]) -> Pixels:
    return np.asarray(cv2.resize(layer, size, interpolation=cv2.INTER_AREA), np.uint8)


def _encoder(image: DecodedImage, width: int, quality: int) -> SimilarEncoder:
    size = (width, max(1, round(image.height * width / image.width)))
    rgb, alpha = image.rgb, image.alpha
    if size != (image.width, image.height):
        rgb = _resize(rgb, size)
        alpha = None if alpha is None else _resize(alpha, size)
    return SimilarEncoder(rgb, alpha, quality)


def _extension(kind: str) -> str:
    return {"jpeg": "jpg"}.get(kind, kind)


def _write(results: _Results, image: DecodedImage, width: int, kind: str, encoded: EncodedImage) -> None:
    name = f"image-{width}.{_extension(kind)}"
    path = results.scratch / name
    path.write_bytes(encoded.data)
    properties = {
        "width": width,
        "height": max(1, round(image.height * width / image.width)),
        "format": kind,
        "quality": encoded.quality,
        "ssim": round(encoded.similarity, 4),
    }
    results.add(name, path, CONTENT_TYPES[kind], properties)


def _srcset(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the `srcset` of each format, with file names in place of URLs."""
    kinds = dict.fromkeys(str(row["format"]) for row in rows)
    return {
        kind: ", ".join(f"{row['name']} {row['width']}w" for row in rows if row["format"] == kind)
        for kind in kinds
    }


def _ladder(
    path: Path, inputs: Mapping[str, Any], results: _Results, progress: Callable[[float], None]
) -> dict[str, Any]:
    """Encode every height as AV1 in every container."""
    video = probe.part(path, {})
    kinds = formats(str(inputs["formats"]), VIDEO_FORMATS, IMAGE_FORMATS)
    heights = numbers(str(inputs["heights"]), "heights")
    shape = transcode.shape_of(video)
    rungs = [(height, kind) for height in limit_sides(heights, shape[1]) for kind in kinds]
    # Quality 1 is a CRF of 62; quality 100 is a CRF of 24, which is close to the original.
    options = {"preset": "8", "crf": str(round(62 - 0.38 * int(inputs["quality"]))), "svtav1-params": "lp=1"}
    for count, (height, kind) in enumerate(rungs):
        name = f"video-{height}.{kind}"
        rung = replace(AV1[kind], options=options)

        def rung_progress(fraction: float, count: int = count) -> None:
            progress((count + fraction) / len(rungs))

        def choose(shape: tuple[int, int], height: int = height) -> tuple[int, int]:
            return transcode.size_of(shape, height=height)

        def rung_kind(_size: tuple[int, int], _frames: int, rung: VideoKind = rung) -> VideoKind:
            return rung

        info = transcode.transcode(video, rung_kind, results.scratch / name, choose, rung_progress)
        results.add(name, results.scratch / name, rung.content_type, {**info, "format": kind, "codec": "av1"})
    return {"original": {"width": shape[0], "height": shape[1], "duration": round(video.seconds, 3)}}


_OPERATIONS: Mapping[
    str, Callable[[Path, Mapping[str, Any], _Results, Callable[[float], None]], dict[str, Any]]
] = {"image-responsive": _responsive, "image-cdn-auto": _cdn, "video-av1-ladder": _ladder}
