"""The style engine: restyles an image by a prompt, without weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from sixfold.core.catalog.engines import Artifact, Context, EngineError, Result, Task
from sixfold.engines.image import decode, sheet
from sixfold.engines.image.decode import DecodedImage, Pixels
from sixfold.engines.image.output_format import OutputFormat
from sixfold.engines.image.styles import (
    colors,
    drawing,
    grading,
    mosaic,
    names,
    painting,
    print_styles,
    prompt_parser,
    textures,
)
from sixfold.engines.image.styles.canvas import Canvas
from sixfold.engines.image.styles.prompt_parser import ParsedStyle, StyleLight
from sixfold.engines.image.styles.textures import Array

MAX_SIDE = 4096
# Limits of the long side while painting: strokes do not fit smaller images; larger images only take longer.
_WORK_SIDES = (512, 2048)
_MIN_SHORT = 64
# Media without the hues of the source; a palette is applied after these media instead of before.
_MONOCHROME_MEDIA = frozenset(
    {"pencil sketch", "charcoal", "engraving", "manga", "linocut", "ink wash", "blueprint", "noir"}
)

RECIPES: dict[str, Callable[[Canvas], Array]] = {
    "oil painting": painting.brush_painter("oil"),
    "impressionism": painting.brush_painter("impressionist"),
    "pointillism": painting.brush_painter("pointillism"),
    "van gogh": painting.brush_painter("van gogh"),
    "palette knife": painting.brush_painter("palette knife"),
    "gouache": painting.brush_painter("gouache"),
    "watercolor": painting.watercolor,
    "ink wash": painting.ink_wash,
    "pastel": painting.pastel,
    "embroidery": painting.embroidery,
    "pencil sketch": drawing.pencil,
    "colored pencil": drawing.colored_pencil,
    "charcoal": drawing.charcoal,
    "chalkboard": drawing.chalkboard,
    "engraving": drawing.engraving,
    "comic book": drawing.comic,
    "manga": drawing.manga,
    "anime": drawing.anime,
    "blueprint": drawing.blueprint,
    "pop art": print_styles.pop_art,
    "risograph": print_styles.risograph,
    "ukiyo-e": print_styles.ukiyo_e,
    "linocut": print_styles.linocut,
    "paper cut": print_styles.paper_cut,
    "mosaic": mosaic.mosaic,
    "stained glass": mosaic.stained_glass,
    "low poly": mosaic.low_poly,
    "pixel art": mosaic.pixel_art,
    "cross-stitch": mosaic.cross_stitch,
    "cubism": mosaic.cubism,
    "noir": grading.noir,
    "vintage": grading.vintage,
    "cyberpunk": grading.cyberpunk,
    "vaporwave": grading.vaporwave,
    "hdr": grading.hdr,
    "dreamy": grading.dream,
    "infrared": grading.infrared,
}


class StyleEngine:
    """Restyles `source_image_url` (or `image`) by `style_prompt` (or `prompt`)."""

    name = "style-painter"
    version = "3"

    def run(self, task: Task, context: Context) -> Result:
        """Return one image at the source's size; the quality is `full` for a named style, else `preview`.

        Inputs: `style_prompt`, `quality` (1 to 100), `format` (webp, png, jpeg, avif), `seed`, `strength` (0
        to 1; 0 leaves the source unchanged).
        """
        task = sheet.merge(task, context)
        prompt = str(task.inputs.get("style_prompt") or task.inputs.get("prompt") or "")
        named = names.find_style(prompt)
        plan = prompt_parser.parse(prompt)
        context.log(_description(plan, named))
        source = decode.decode(_source(task), target=(MAX_SIDE, MAX_SIDE))
        context.progress(0.1)
        width, height = _limit_size(source.width, source.height)
        seed = int(task.inputs.get("seed") or 0) % 2**32
        styled = _apply_style(_working_copy(source, width, height), plan, seed, context)
        share = float(np.clip(_number(task.inputs, "strength", 1.0), 0, 1))
        rgb = _final_size(styled, source, (width, height), share)
        alpha = None if source.alpha is None else _resize(source.alpha, (width, height))
        context.progress(0.9)
        data, kind = _encode(rgb, alpha, task.inputs)
        context.progress(1.0)
        info = {"width": width, "height": height}
        return Result(
            (Artifact(kind, data, info),),
            {"style": named or (plan.recognized[0] if plan.nearest_to else prompt)},
            "full" if named else "preview",
            words=plan.words,
        )


def _description(plan: ParsedStyle, named: str | None) -> str:
    """Return the log line that names the style used."""
    if named:
        return f"style: {named}"
    if plan.nearest_to:
        return f"style: {plan.recognized[0]}, the named style that is nearest to {plan.nearest_to!r}"
    if not plan.recognized:
        return f"style: {plan.media[0]}, because the prompt names no style"
    return f"style from the prompt: {', '.join(plan.recognized)}"


def _source(task: Task) -> Path:
    path = task.files.get("source_image_url") or task.files.get("image")
    if path is None:
        raise EngineError("source_image_url is required.")
    return path


def _number(inputs: Mapping[str, Any], name: str, default: float) -> float:
    value = inputs.get(name)
    return default if value is None else float(value)


def _encode(rgb: Pixels, alpha: Pixels | None, inputs: Mapping[str, Any]) -> tuple[bytes, str]:
    output = OutputFormat.of(inputs, "webp", 85)
    return output.encode(rgb, alpha), output.content_type


def _limit_size(width: int, height: int) -> tuple[int, int]:
    scale = min(1.0, MAX_SIDE / max(width, height))
    return max(1, round(width * scale)), max(1, round(height * scale))


def _working_copy(source: DecodedImage, width: int, height: int) -> Array:
    """Return the source at working size, with transparent parts filled from their neighborhood."""
    low, high = _WORK_SIDES
    scale = min(max(max(width, height), low), high) / max(width, height)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    rgb = _resize(source.rgb, size).astype(np.float32) / np.float32(255)
    if source.alpha is not None:
        cover = _resize(source.alpha, size).astype(np.float32) / np.float32(255)
        blurred = textures.blur(np.dstack([rgb * cover[..., None], cover]), max(size) / 24)
        fill = blurred[..., :3] / np.maximum(blurred[..., 3:], 1e-3)
        rgb = np.clip(textures.mix(fill, rgb, cover), 0, 1)
    right, below = max(0, _MIN_SHORT - size[0]), max(0, _MIN_SHORT - size[1])
    return np.pad(rgb, ((0, below), (0, right), (0, 0)), mode="edge")


def _resize(image: Pixels, size: tuple[int, int]) -> Pixels:
    smaller = size[0] * size[1] <= image.shape[0] * image.shape[1]
    if (image.shape[1], image.shape[0]) == size:
        return image
    scaled = cv2.resize(image, size, interpolation=cv2.INTER_AREA if smaller else cv2.INTER_CUBIC)
    return np.asarray(scaled, np.uint8)


def _final_size(styled: Array, source: DecodedImage, size: tuple[int, int], share: float) -> Pixels:
    width, height = size
    low, high = _WORK_SIDES
    scale = min(max(max(size), low), high) / max(size)
    part = styled[: max(1, round(height * scale)), : max(1, round(width * scale))]
    rgb = _resize(np.rint(np.clip(part, 0, 1) * 255).astype(np.uint8), size)
    if share < 1:
        mixed = cv2.addWeighted(rgb, share, _resize(source.rgb, size), 1 - share, 0)
        rgb = np.asarray(mixed, np.uint8)
    return np.ascontiguousarray(rgb)


def _apply_style(rgb: Array, plan: ParsedStyle, seed: int, context: Context) -> Array:
    for light in plan.lights:
        rgb = relight(rgb, light)
    palette_last = bool(plan.media) and plan.media[-1] in _MONOCHROME_MEDIA
    if plan.palette and not palette_last:
        rgb = colors.transfer_palette(rgb, plan.palette, 0.85, 0.4)
    context.progress(0.2)
    passes = ([plan.grade] if plan.grade else []) + list(plan.media)
    for done, style in enumerate(passes):
        painted = RECIPES[style](Canvas(np.ascontiguousarray(rgb, np.float32), seed, plan.rough))
        second = len(plan.media) == 2 and done == len(passes) - 1
        rgb = textures.mix(rgb, painted, 0.55) if second else painted
        context.progress(0.2 + 0.65 * (done + 1) / len(passes))
    if plan.palette and palette_last:
        tone = cv2.cvtColor(rgb.astype(np.float32), cv2.COLOR_RGB2GRAY)
        rgb = colors.map_tones(tone, plan.palette)
    return apply_texture(rgb, plan.texture, seed)


def relight(rgb: Array, light: StyleLight) -> Array:
    """Apply a light setting to an image."""
    unit = max(rgb.shape[:2]) / 1024
    changed = colors.gamma(rgb, 2.0 ** (-2.2 * light.exposure))
    changed = colors.saturate(colors.adjust_contrast(changed, light.contrast), light.chroma)
    if light.shadows:
        changed = colors.split_tone(changed, light.shadows, light.lights, 0.45)
    if light.haze:
        gray = float(changed.mean()) * 0.4 + 0.5
        rows = np.linspace(1.0, 0.45, rgb.shape[0], dtype=np.float32)[:, None] + np.zeros(
            rgb.shape[:2], np.float32
        )
        changed = textures.mix(changed, np.full_like(changed, gray), rows * np.float32(light.haze))
    if light.glow:
        changed = colors.bloom(changed, 18 * unit, light.glow, 0.55)
    return np.clip(changed * textures.vignette(rgb.shape[:2], light.corners)[..., None], 0, 1)


def apply_texture(rgb: Array, kind: str, seed: int) -> Array:
    """Apply a texture (paper, canvas weave or grain); other kinds leave the image unchanged."""
    unit = max(rgb.shape[:2]) / 1024
    size = (rgb.shape[0], rgb.shape[1])
    rng = np.random.default_rng([seed, 7])
    if kind == "paper":
        return np.clip(rgb * (1 + 0.08 * textures.paper(size, unit, rng))[..., None], 0, 1)
    if kind == "weave":
        return np.clip(rgb * (1 + 0.09 * textures.weave(size, max(3.0, 4.2 * unit), rng))[..., None], 0, 1)
    if kind == "grain":
        return np.clip(rgb + 0.045 * textures.noise(size, max(1.0, 1.3 * unit), rng)[..., None], 0, 1)
    return rgb
