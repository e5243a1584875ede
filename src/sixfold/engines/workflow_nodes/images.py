"""Image nodes: load, save, scale, color, sharpen and blend, with the same results as ComfyUI."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import cv2
import numpy as np
from PIL import Image

from sixfold.core.catalog.engines import UnusableInput
from sixfold.core.workflows.ports import NodeContext, NodeFile, NodeResult, Run
from sixfold.engines.workflow_nodes import values
from sixfold.engines.workflow_nodes.frame_split import check_size
from sixfold.engines.workflow_nodes.scaling import scaled
from sixfold.engines.workflow_nodes.values import Frames, Mask, frames, png_artifacts

_ROTATIONS = {"none": 0, "90 degrees": -1, "180 degrees": 2, "270 degrees": 1}


# -- in and out ----------------------------------------------------------------------------------


def load(_context: NodeContext, image: NodeFile) -> tuple[Frames, Mask]:
    """Load an image and a mask of its transparent parts."""
    return values.read(_path(image))


def load_mask(_context: NodeContext, image: NodeFile, channel: str) -> tuple[Mask]:
    """Load one channel of an image as a mask; the alpha channel is inverted."""
    pixels, transparency = values.read(_path(image))
    if channel == "alpha":
        return (transparency,)
    return (pixels[..., ("red", "green", "blue").index(channel)],)


def _path(file: Any) -> Any:
    if not isinstance(file, NodeFile):
        raise UnusableInput("The file was not found.")
    return file.path


def save(context: NodeContext, images: Any, filename_prefix: str = "ComfyUI") -> NodeResult:
    return _output(context, images, filename_prefix, temporary=False)


def preview(context: NodeContext, images: Any) -> NodeResult:
    """Save images as temporary PNGs."""
    return _output(context, images, "ComfyUI_temp", temporary=True)


def _output(context: NodeContext, images: Any, prefix: str, *, temporary: bool) -> NodeResult:
    total = len(frames(images))
    files = []
    for at, each in enumerate(png_artifacts(images, prefix, temporary=temporary)):
        files.append(each)
        context.progress(at + 1, total)
    return NodeResult(artifacts=tuple(files))


def save_websocket(context: NodeContext, images: Any) -> NodeResult:
    """Send images to the connected clients without storing them."""
    for artifact in png_artifacts(images, ""):
        context.image(artifact.data)
    return NodeResult()


# -- size ----------------------------------------------------------------------------------------


def scale(
    _context: NodeContext, image: Any, upscale_method: str, width: int, height: int, crop: str
) -> tuple[Frames]:
    """Scale to a size; a side of 0 keeps the aspect ratio."""
    pixels = frames(image)
    rows, columns = pixels.shape[1:3]
    if width == 0 and height == 0:
        return (pixels,)
    width = width or max(1, round(columns * height / rows))
    height = height or max(1, round(rows * width / columns))
    return (scaled(pixels, width, height, upscale_method, crop),)


def scale_by(_context: NodeContext, image: Any, upscale_method: str, scale_by: float) -> tuple[Frames]:
    pixels = frames(image)
    rows, columns = pixels.shape[1:3]
    return (scaled(pixels, round(columns * scale_by), round(rows * scale_by), upscale_method),)


def scale_to_pixels(
    _context: NodeContext, image: Any, upscale_method: str, megapixels: float, resolution_steps: int = 1
) -> tuple[Frames]:
    """Scale to a number of megapixels, keeping the aspect ratio."""
    pixels = frames(image)
    rows, columns = pixels.shape[1:3]
    by = math.sqrt(megapixels * 1024 * 1024 / (columns * rows))
    width, height = (round(side * by / resolution_steps) * resolution_steps for side in (columns, rows))
    return (scaled(pixels, width, height, upscale_method),)


def scale_to_side(_context: NodeContext, image: Any, upscale_method: str, largest_size: int) -> tuple[Frames]:
    """Scale to `largest_size` on the longer side."""
    pixels = frames(image)
    rows, columns = pixels.shape[1:3]
    by = largest_size / max(rows, columns)
    return (scaled(pixels, max(1, round(columns * by)), max(1, round(rows * by)), upscale_method),)


def crop(_context: NodeContext, image: Any, width: int, height: int, x: int, y: int) -> tuple[Frames]:
    pixels = frames(image)
    x, y = min(x, pixels.shape[2] - 1), min(y, pixels.shape[1] - 1)
    return (pixels[:, y : y + height, x : x + width],)


def pad(
    _context: NodeContext, image: Any, left: int, top: int, right: int, bottom: int, **more: int
) -> tuple[Frames, Mask]:
    """Add a gray border for outpainting, and return its mask, feathered into the image."""
    pixels, feathering = frames(image), int(more.get("feathering", 0))
    count, rows, columns, channels = pixels.shape
    check_size(count, rows + top + bottom, columns + left + right, channels)
    grown = np.full((count, rows + top + bottom, columns + left + right, channels), 0.5, np.float32)
    grown[:, top : top + rows, left : left + columns] = pixels
    cover = np.ones(grown.shape[1:3], np.float32)
    inner = np.zeros((rows, columns), np.float32)
    if feathering > 0 and feathering * 2 < rows and feathering * 2 < columns:
        far = np.full((rows, columns), feathering, np.int64)
        down, across = np.arange(rows)[:, None], np.arange(columns)[None]
        sides = ((top, down), (bottom, rows - 1 - down), (left, across), (right, columns - 1 - across))
        for border, distance in sides:
            if border:
                far = np.minimum(far, distance)
        inner = (((feathering - far) / feathering) ** 2).astype(np.float32)
    cover[top : top + rows, left : left + columns] = inner
    return grown, cover[None]


def rotate(_context: NodeContext, image: Any, rotation: str) -> tuple[Frames]:
    """Rotate clockwise by quarter turns."""
    return (np.ascontiguousarray(np.rot90(frames(image), _ROTATIONS[rotation], (1, 2))),)


def flip(_context: NodeContext, image: Any, flip_method: str) -> tuple[Frames]:
    """Flip vertically or horizontally."""
    axis = 1 if flip_method.startswith("x") else 2
    return (np.flip(frames(image), axis).copy(),)


def size(_context: NodeContext, image: Any, **_: Any) -> NodeResult:
    """Return the width, the height and the number of images."""
    count, rows, columns = frames(image).shape[:3]
    text = f"width: {columns}, height: {rows}\n batch size: {count}"
    return NodeResult((columns, rows, count), ui={"text": (text,)})


# -- batches -------------------------------------------------------------------------------------


def batch(_context: NodeContext, image1: Any, image2: Any) -> tuple[Frames]:
    """Join two batches, scaled to the size of the first."""
    first, second = frames(image1), frames(image2)
    second = scaled(second, first.shape[2], first.shape[1], "bilinear", "center")
    return (np.concatenate([first, _channels(second, first.shape[-1])]),)


def batch_all(_context: NodeContext, **images: Any) -> tuple[Frames]:
    batches = [frames(images[name]) for name in sorted(images)]
    joined = batches[0]
    for each in batches[1:]:
        joined = batch(_context, joined, each)[0]
    return (joined,)


def rebatch(_context: NodeContext, images: list[Any], batch_size: list[int]) -> tuple[list[Frames]]:
    """Split several batches into a list of batches of the same length; the last batch may be shorter."""
    single = [each[at : at + 1] for each in map(frames, images) for at in range(len(each))]
    several = [single[at : at + batch_size[0]] for at in range(0, len(single), batch_size[0])]
    if any(image.shape != batch[0].shape for batch in several for image in batch):
        raise UnusableInput("All images of a batch must have the same size.")
    return ([np.concatenate(batch) for batch in several],)


def _channels(image: Frames, count: int) -> Frames:
    if image.shape[-1] < count:
        return np.pad(image, ((0, 0), (0, 0), (0, 0), (0, count - image.shape[-1])), constant_values=1)
    return image[..., :count]


def repeat(_context: NodeContext, image: Any, amount: int) -> tuple[Frames]:
    pixels = frames(image)
    check_size(amount, *pixels.shape)
    return (np.tile(pixels, (amount, 1, 1, 1)),)


def from_batch(_context: NodeContext, image: Any, batch_index: int, length: int) -> tuple[Frames]:
    pixels = frames(image)
    first = min(len(pixels) - 1, batch_index)
    return (pixels[first : first + min(len(pixels) - first, length)].copy(),)


def empty(
    _context: NodeContext, width: int, height: int, batch_size: int = 1, color: int = 0
) -> tuple[Frames]:
    check_size(batch_size, width, height, 3)
    rgb = np.array([color >> 16 & 255, color >> 8 & 255, color & 255], np.float32) / np.float32(255)
    return (np.broadcast_to(rgb, (batch_size, height, width, 3)).copy(),)


# -- color and sharpness -------------------------------------------------------------------------


def invert(_context: NodeContext, image: Any) -> tuple[Frames]:
    return (1 - frames(image),)


def blur(_context: NodeContext, image: Any, blur_radius: int, sigma: float) -> tuple[Frames]:
    """Blur with a Gaussian; `sigma` is in radii."""
    pixels = frames(image)
    if blur_radius == 0:
        return (pixels,)
    kernel = _gaussian(blur_radius, sigma)
    return (np.stack([_convolved(pixel, np.outer(kernel, kernel)) for pixel in pixels]),)


def sharpen(
    _context: NodeContext, image: Any, sharpen_radius: int, sigma: float, alpha: float
) -> tuple[Frames]:
    pixels = frames(image)
    if sharpen_radius == 0:
        return (pixels,)
    gaussian = _gaussian(sharpen_radius, sigma)
    kernel = np.outer(gaussian, gaussian) * -(alpha * 10)
    kernel[sharpen_radius, sharpen_radius] += 1 - kernel.sum()
    return (np.clip(np.stack([_convolved(pixel, kernel) for pixel in pixels]), 0, 1),)


def _gaussian(radius: int, sigma: float) -> Any:
    at = np.linspace(-1, 1, 2 * radius + 1)
    gaussian = np.exp(-(at**2) / (2 * sigma * sigma))
    return gaussian / gaussian.sum()


def _convolved(pixels: Frames, kernel: Any) -> Frames:
    border = cv2.BORDER_REFLECT_101
    return cv2.filter2D(pixels, cv2.CV_32F, kernel, borderType=border).reshape(pixels.shape)


def blend(
    _context: NodeContext, image1: Any, image2: Any, blend_factor: float, blend_mode: str
) -> tuple[Frames]:
    base, layer = frames(image1), frames(image2)
    layer = _channels(scaled(layer, base.shape[2], base.shape[1], "bicubic", "center"), base.shape[-1])
    mixed = _BLENDS[blend_mode](base, layer)
    return (np.clip(base * (1 - blend_factor) + mixed * blend_factor, 0, 1).astype(np.float32),)


def _soft_light(base: Frames, layer: Frames) -> Frames:
    curve = np.where(base <= 0.25, ((16 * base - 12) * base + 4) * base, np.sqrt(np.maximum(base, 0)))
    dark = base - (1 - 2 * layer) * base * (1 - base)
    return np.where(layer <= 0.5, dark, base + (2 * layer - 1) * (curve - base))


_BLENDS: Mapping[str, Callable[[Frames, Frames], Frames]] = {
    "normal": lambda _, layer: layer,
    "multiply": lambda base, layer: base * layer,
    "screen": lambda base, layer: 1 - (1 - base) * (1 - layer),
    "overlay": lambda base, layer: np.where(base <= 0.5, 2 * base * layer, 1 - 2 * (1 - base) * (1 - layer)),
    "soft_light": _soft_light,
    "difference": lambda base, layer: base - layer,
}


def quantize(_context: NodeContext, image: Any, colors: int, dither: str) -> tuple[Frames]:
    method = Image.Dither.FLOYDSTEINBERG if dither == "floyd-steinberg" else Image.Dither.NONE
    results = []
    for frame_bytes in values.to_bytes(frames(image)[..., :3]):
        pixels = Image.fromarray(frame_bytes)
        palette = pixels.quantize(colors)
        few = pixels.quantize(colors, palette=palette, dither=method)
        results.append(np.asarray(few.convert("RGB"), np.float32) / np.float32(255))
    return (np.stack(results),)


def brightness(_context: NodeContext, images: Any, factor: float) -> tuple[Frames]:
    return (np.clip(frames(images) * np.float32(factor), 0, 1),)


def contrast(_context: NodeContext, images: Any, factor: float) -> tuple[Frames]:
    """Change the contrast around mid-gray by a factor."""
    return (np.clip((frames(images) - 0.5) * np.float32(factor) + 0.5, 0, 1).astype(np.float32),)


def canny(_context: NodeContext, image: Any, low_threshold: float, high_threshold: float) -> tuple[Frames]:
    """Detect edges, white on black."""
    results = []
    for frame_bytes in values.to_bytes(frames(image)[..., :3]):
        gray = cv2.GaussianBlur(cv2.cvtColor(frame_bytes, cv2.COLOR_RGB2GRAY), (5, 5), 1)
        edges = cv2.Canny(gray, low_threshold * 255, high_threshold * 255, L2gradient=True)
        results.append(np.repeat(edges[..., None], 3, -1).astype(np.float32) / np.float32(255))
    return (np.stack(results),)


_SHAPES = {
    "erode": cv2.MORPH_ERODE,
    "dilate": cv2.MORPH_DILATE,
    "open": cv2.MORPH_OPEN,
    "close": cv2.MORPH_CLOSE,
    "gradient": cv2.MORPH_GRADIENT,
    "top_hat": cv2.MORPH_TOPHAT,
    "bottom_hat": cv2.MORPH_BLACKHAT,
}


def morphology(_context: NodeContext, image: Any, operation: str, kernel_size: int) -> tuple[Frames]:
    """Apply dilation, erosion or one of their combinations."""
    kernel = np.ones((kernel_size, kernel_size), np.uint8)
    results = [cv2.morphologyEx(frame, _SHAPES[operation], kernel) for frame in frames(image)]
    return (np.stack(results),)


RUNS: Mapping[str, Run] = {
    "LoadImage": load,
    "LoadImageMask": load_mask,
    "SaveImage": save,
    "PreviewImage": preview,
    "SaveImageWebsocket": save_websocket,
    "ImageScale": scale,
    "ImageScaleBy": scale_by,
    "ImageScaleToTotalPixels": scale_to_pixels,
    "ImageScaleToMaxDimension": scale_to_side,
    "ImageCrop": crop,
    "ImagePadForOutpaint": pad,
    "ImageRotate": rotate,
    "ImageFlip": flip,
    "GetImageSize": size,
    "ImageBatch": batch,
    "BatchImagesNode": batch_all,
    "RebatchImages": rebatch,
    "RepeatImageBatch": repeat,
    "ImageFromBatch": from_batch,
    "EmptyImage": empty,
    "ImageInvert": invert,
    "ImageBlur": blur,
    "ImageSharpen": sharpen,
    "ImageBlend": blend,
    "ImageQuantize": quantize,
    "AdjustBrightness": brightness,
    "AdjustContrast": contrast,
    "Canny": canny,
    "Morphology": morphology,
}
