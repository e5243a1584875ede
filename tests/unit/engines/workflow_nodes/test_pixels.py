"""Image, mask and audio nodes give ComfyUI's results, by its formulas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sixfold.core.catalog.engines import UnusableInput
from sixfold.core.workflows.ports import NodeFile
from sixfold.engines.workflow_nodes import audio, frame_split, images, masks, scaling, serialization, values
from sixfold.engines.workflow_nodes import text as text_nodes
from sixfold.engines.workflow_nodes.values import AudioValue, VideoValue

# The context of nodes that do not use it.
NOWHERE: Any = None


def picture(rows: int = 6, columns: int = 9, count: int = 1, channels: int = 3) -> Any:
    return np.random.default_rng(3).random((count, rows, columns, channels), np.float32)


def cubic(distance: float) -> float:
    """Return the bicubic kernel for a = -0.75."""
    a, x = -0.75, abs(distance)
    if x <= 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a if x < 2 else 0.0


def interpolate(values: Any, to: int, method: str) -> Any:
    length = len(values)
    results = []
    for at in range(to):
        center = (at + 0.5) * length / to - 0.5
        if method == "nearest-exact":
            results.append(values[min(length - 1, int((at + 0.5) * length / to))])
        elif method == "area":
            results.append(values[at * length // to : -(-(at + 1) * length // to)].mean(0))
        else:
            reach = 1 if method == "bilinear" else 2
            first = int(np.floor(center)) - reach + 1
            weight = (lambda d: max(0.0, 1 - abs(d))) if method == "bilinear" else cubic
            taps = [(min(max(k, 0), length - 1), weight(center - k)) for k in range(first, first + 2 * reach)]
            results.append(sum(values[k] * w for k, w in taps))
    return np.array(results)


@pytest.mark.parametrize("method", ["nearest-exact", "bilinear", "area", "bicubic"])
@pytest.mark.parametrize(("width", "height"), [(17, 13), (4, 5), (9, 3)])
def test_images_are_scaled_as_by_comfyui(method: str, width: int, height: int) -> None:
    inputs = picture()
    down = np.stack([interpolate(inputs[0][:, at], height, method) for at in range(inputs.shape[2])], 1)
    expected = np.stack([interpolate(row, width, method) for row in down])
    result = scaling.scaled(inputs, width, height, method)
    assert result.shape == (1, height, width, 3)
    assert np.abs(result[0] - expected).max() < 2e-6


def test_lanczos_scales_8_bit_values() -> None:
    inputs = picture(20, 20)
    expected = Image.fromarray(values.to_bytes(inputs)[0]).resize((7, 9), Image.Resampling.LANCZOS)
    assert np.array_equal(values.to_bytes(scaling.scaled(inputs, 7, 9, "lanczos"))[0], np.asarray(expected))


def test_center_crop_keeps_the_middle() -> None:
    inputs = np.zeros((1, 4, 8, 3), np.float32)
    inputs[:, :, 2:6] = 1
    assert scaling.scaled(inputs, 4, 4, "nearest-exact", "center").min() == 1


def test_sizes_follow_the_other_side_the_factor_and_the_pixels() -> None:
    inputs = picture(10, 20)
    assert images.scale(NOWHERE, inputs, "bilinear", 0, 5, "disabled")[0].shape[1:3] == (5, 10)
    assert images.scale_by(NOWHERE, inputs, "area", 0.5)[0].shape[1:3] == (5, 10)
    assert images.scale_to_pixels(NOWHERE, inputs, "area", 0.0002)[0].shape[1:3] == (10, 20)
    assert images.scale_to_side(NOWHERE, inputs, "area", 10)[0].shape[1:3] == (5, 10)
    with pytest.raises(UnusableInput):
        images.scale_by(NOWHERE, inputs, "area", 10_000)


def convolve(inputs: Any, kernel: Any) -> Any:
    radius = len(kernel) // 2
    padded = np.pad(inputs, ((radius, radius), (radius, radius), (0, 0)), "reflect")
    rows, columns = inputs.shape[:2]
    shifts = [(y, x) for y in range(len(kernel)) for x in range(len(kernel))]
    return sum(kernel[y, x] * padded[y : y + rows, x : x + columns] for y, x in shifts)


def bell(radius: int, sigma: float) -> Any:
    at = np.linspace(-1, 1, 2 * radius + 1)
    square = np.exp(-(at[:, None] ** 2 + at[None] ** 2) / (2 * sigma**2))
    return square / square.sum()


def test_blur_and_sharpen_are_gaussian_convolutions() -> None:
    inputs = picture(12, 14)
    blurred = images.blur(NOWHERE, inputs, 2, 0.7)[0][0]
    assert np.abs(blurred - convolve(inputs[0], bell(2, 0.7))).max() < 1e-5
    kernel = bell(1, 1.0) * -(0.5 * 10)
    kernel[1, 1] += 1 - kernel.sum()
    sharp = images.sharpen(NOWHERE, inputs, 1, 1.0, 0.5)[0][0]
    assert np.abs(sharp - np.clip(convolve(inputs[0], kernel), 0, 1)).max() < 1e-5
    assert images.blur(NOWHERE, inputs, 0, 1.0)[0] is inputs


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("normal", 0.25),
        ("multiply", 0.2),
        ("screen", 0.85),
        ("overlay", 0.7),
        ("soft_light", 0.8 - 0.5 * 0.8 * 0.2),
        ("difference", 0.55),
    ],
)
def test_blends(mode: str, expected: float) -> None:
    first, second = (np.full((1, 2, 2, 3), value, np.float32) for value in (0.8, 0.25))
    assert images.blend(NOWHERE, first, second, 1.0, mode)[0] == pytest.approx(expected, abs=1e-6)
    half = images.blend(NOWHERE, first, second, 0.5, mode)[0]
    assert half == pytest.approx((0.8 + expected) / 2, abs=1e-6)


def test_images_are_rotated_cropped_padded_and_joined() -> None:
    inputs = picture(4, 6)
    assert np.array_equal(images.invert(NOWHERE, inputs)[0], 1 - inputs)
    assert np.array_equal(images.crop(NOWHERE, inputs, 3, 2, 1, 1)[0], inputs[:, 1:3, 1:4])
    assert np.array_equal(images.rotate(NOWHERE, inputs, "90 degrees")[0][0, 0, 0], inputs[0, -1, 0])
    assert np.array_equal(images.flip(NOWHERE, inputs, "y-axis: horizontally")[0], inputs[:, :, ::-1])
    assert images.batch(NOWHERE, inputs, picture(8, 8))[0].shape == (2, 4, 6, 3)
    assert images.from_batch(NOWHERE, picture(count=5), 3, 9)[0].shape[0] == 2
    assert images.empty(NOWHERE, 2, 1, 1, 0xFF8000)[0][0, 0, 0] == pytest.approx([1, 128 / 255, 0])
    grown, cover = images.pad(NOWHERE, inputs, 2, 0, 1, 0, feathering=1)
    assert (grown.shape, cover.shape) == ((1, 4, 9, 3), (1, 4, 9))
    assert grown[0, 0, 0, 0] == 0.5
    assert cover[0, :, :2].min() == 1
    assert cover[0, 1, 3] == 0


def test_image_is_composited_by_its_mask() -> None:
    below, above = np.zeros((1, 4, 4, 3), np.float32), np.ones((1, 2, 2, 3), np.float32)
    cover = np.array([[[1, 0], [0.5, 1]]], np.float32)
    result = masks.composite(NOWHERE, below, above, 1, 2, resize_source=False, mask=cover)[0][0, ..., 0]
    assert np.array_equal(result[2:, 1:3], cover[0])
    assert result.sum() == cover.sum()
    off = masks.composite(NOWHERE, below, above, -1, -1, resize_source=False)[0][0, ..., 0]
    assert (off[0, 0], off.sum()) == (1, 1)
    assert below.max() == 0


def test_masks() -> None:
    inputs = np.zeros((1, 5, 5), np.float32)
    inputs[0, 2, 2] = 1
    assert masks.grow(NOWHERE, inputs, 1, tapered_corners=True)[0].sum() == 5
    assert masks.grow(NOWHERE, inputs, 1, tapered_corners=False)[0].sum() == 9
    assert masks.grow(NOWHERE, 1 - inputs, -1, tapered_corners=False)[0].sum() == 16
    assert masks.feather(NOWHERE, np.ones((1, 4, 4), np.float32), 2, 0, 0, 0)[0][0, 0].tolist() == [
        0.5,
        1,
        1,
        1,
    ]
    assert masks.combine(NOWHERE, inputs, np.ones((1, 2, 2)), 0, 0, "add")[0].sum() == 5
    assert masks.from_color(NOWHERE, images.empty(NOWHERE, 2, 2, 1, 0x102030)[0], 0x102030)[0].min() == 1
    assert np.array_equal(masks.from_image(NOWHERE, masks.to_image(NOWHERE, inputs)[0], "red")[0], inputs)
    joined = masks.join_alpha(NOWHERE, picture(5, 5), inputs)[0]
    assert np.array_equal(masks.split_alpha(NOWHERE, joined)[1], inputs)


def test_canny_finds_edges() -> None:
    inputs = np.zeros((1, 20, 20, 3), np.float32)
    inputs[:, :, 10:] = 1
    edges = images.canny(NOWHERE, inputs, 0.2, 0.5)[0][0, ..., 0]
    assert set(np.unique(edges)) == {0, 1}
    assert set(np.nonzero(edges)[1]) <= {9, 10}


def test_transparent_pixels_of_a_loaded_image_are_its_mask(tmp_path: Path) -> None:
    pixels = np.zeros((2, 3, 4), np.uint8)
    pixels[0, 0] = (255, 128, 0, 255)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    image, mask = images.load(NOWHERE, NodeFile("d", "image/png", tmp_path / "a.png"))
    assert image[0, 0, 0] == pytest.approx([1, 128 / 255, 0])
    assert (mask[0, 0, 0], mask[0, 1, 1]) == (0, 1)
    (tmp_path / "b.png").write_bytes(b"no picture")
    with pytest.raises(UnusableInput):
        images.load(NOWHERE, NodeFile("d", "image/png", tmp_path / "b.png"))


def test_audio_is_trimmed_joined_and_amplified() -> None:
    wave = np.linspace(-0.5, 0.5, 48_000, dtype=np.float32)[None]
    inputs = AudioValue(wave, 48_000)
    assert audio.trim(NOWHERE, inputs, -0.5, 0.25)[0].wave.shape[1] == 12_000
    assert audio.concat(NOWHERE, inputs, inputs, "after")[0].wave.shape == (2, 96_000)
    assert audio.merge(NOWHERE, inputs, inputs, "add")[0].wave.max() == pytest.approx(1)
    assert audio.volume(NOWHERE, inputs, -6)[0].wave.max() == pytest.approx(0.5 * 10**-0.3)
    assert audio.empty(NOWHERE, 0.5, 44_100, 1)[0].wave.shape == (1, 22_050)


def test_serialized_values_are_restored_unchanged(tmp_path: Path) -> None:
    packer = serialization.NodeValuePacker(tmp_path)
    frames = images.empty(NOWHERE, 3, 2, 2, 0x123456)[0]
    video = tmp_path / "film"
    video.write_bytes(b"film")
    inputs = (
        frames,
        picture(),
        AudioValue(picture(1, 4)[0, 0].T, 44_100),
        "text",
        3,
        None,
        VideoValue(NodeFile("d", "video/mp4", video)),
    )
    data = packer.pack(inputs)
    assert data is not None
    back = packer.unpack(data)
    assert np.array_equal(back[0], frames)
    assert np.array_equal(back[1], inputs[1])
    assert np.array_equal(back[2].wave, inputs[2].wave)
    assert back[3:6] == ("text", 3, None)
    assert back[6].file.path.read_bytes() == b"film"
    assert packer.pack((object(),)) is None
    assert packer.weigh(frames) == frames.nbytes


@pytest.mark.parametrize(
    ("source", "text"),
    [("a", "a"), (3, "3"), ([1, "ö"], '[1, "ö"]'), (object(), "object (not shown as text)")],
)
def test_anything_can_be_shown_as_text(source: Any, text: str) -> None:
    assert text_nodes.preview(NOWHERE, source).ui == {"text": (text,)}


def test_unreadable_video_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"nothing")
    with pytest.raises(UnusableInput, match="not audio or video"):
        frame_split.decode_frames(tmp_path / "x")
