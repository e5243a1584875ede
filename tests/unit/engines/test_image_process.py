"""Images that are large or whose decoder holds the GIL are decoded in a separate process."""

from __future__ import annotations

import io
import re
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sixfold.core.catalog.engines import EngineError, UnusableInput
from sixfold.engines.image import decoder_process
from sixfold.engines.image.output_format import OutputFormat
from sixfold.engines.providers import image_io
from sixfold.engines.providers.comfyui import image_io as comfyui_images
from sixfold.engines.providers.comfyui.image_io import ImageFinish
from sixfold.engines.thumbnails import image as thumbnails
from sixfold.engines.workflow_nodes import mask_upload, preview
from tests import gil_time
from tests.harness import image_files
from tests.loops.documents import png

SIDE = 3000
LONGEST_MS = 60.0


def picture(path: Path, kind: str, side: int = SIDE, mode: str = "RGBA") -> Path:
    """Write an image of noise, which takes a decoder longest."""
    noise = np.random.default_rng(1).integers(0, 255, (side, side, len(mode)), dtype=np.uint8)
    options = {"WEBP": {"method": 0, "quality": 50}, "AVIF": {"speed": 10, "quality": 50}}
    Image.fromarray(noise, mode).save(path, kind, **options.get(kind, {}))
    return path


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["WEBP", "AVIF"])
def test_decoder_that_holds_the_gil_runs_in_another_process(tmp_path: Path, kind: str) -> None:
    source = picture(tmp_path / "a", kind)
    here = gil_time.longest_call(lambda: preview.render_here(source, "jpeg;50", "rgb"), 0)
    there = gil_time.longest_call(lambda: preview.render(source, "jpeg;50", "rgb"), LONGEST_MS)
    assert there < LONGEST_MS < here or there < here / 4
    sent = gil_time.longest_call(lambda: image_io.prepare_upload(source), LONGEST_MS)
    assert sent < LONGEST_MS
    mask = tmp_path / "result.png"
    gil_time.longest_call(lambda: mask_upload.apply_mask(source, source, mask), LONGEST_MS)
    assert preview.size(mask) == (SIDE, SIDE)


def test_result_is_the_same_as_in_this_process(tmp_path: Path) -> None:
    source = picture(tmp_path / "a", "WEBP", 200)
    assert preview.render(source, None, "a") == preview.render_here(source, None, "a")
    sent, here = image_io.prepare_upload(source), image_io.prepare_here(source, 2048, None)
    assert (sent.data, sent.content_type, sent.source_size, sent.size) == here


@pytest.mark.parametrize("kind", ["JPEG2000", "ICO", "TGA", "PCX"])
def test_other_formats_of_the_library_are_not_decoded(tmp_path: Path, kind: str) -> None:
    out = io.BytesIO()
    Image.new("RGB", (64, 64)).save(out, kind)
    source = tmp_path / "a"
    source.write_bytes(out.getvalue())
    with pytest.raises(UnusableInput, match="not an image in a supported format"):
        preview.render(source, "webp;90", "")
    with pytest.raises(UnusableInput):
        mask_upload.apply_mask(source, source, tmp_path / "result.png")


def test_memory_and_errors_of_the_process_are_bounded(tmp_path: Path) -> None:
    source = picture(tmp_path / "a", "WEBP", 200)
    with pytest.raises(UnusableInput, match="cannot be read"):
        decoder_process.call("builtins:bytearray", 0, 3 * 2**30)
    source.write_bytes(source.read_bytes()[:3000])
    with pytest.raises(UnusableInput, match="cannot be read"):
        preview.render(source, "webp;90", "")


def grown(call: Callable[[], object]) -> int:
    """Return the peak growth of this process in bytes during a call."""
    process = Path("/proc/self")

    def memory(name: str) -> int:
        line = re.search(rf"{name}:\s+(\d+) kB", (process / "status").read_text())
        assert line is not None
        return int(line[1]) * 1024

    before = memory("VmRSS")
    # Resets the peak.
    (process / "clear_refs").write_text("5")
    assert call()
    return memory("VmHWM") - before


def black(path: Path) -> Path:
    """Write a PNG of 25 megapixels that compresses to 73 kB."""
    path.write_bytes(png(5000, 5000, zlib.compress(bytes(5000 * (3 * 5000 + 1)), 9)))
    return path


def tiff_of_strips(path: Path, rows: int) -> Path:
    """Write a TIFF of one column with a strip for each row, all with the same data."""
    long, start = 4, 200
    fields = {256: 1, 257: rows, 258: 8, 259: 1, 262: 1, 277: 1, 278: 1}
    entries = b"".join(struct.pack("<HHLL", tag, long, 1, value) for tag, value in fields.items())
    offsets, sizes = (struct.pack("<HHLL", tag, long, rows, start) for tag in (273, 279))
    head = b"II*\0" + struct.pack("<LH", 8, len(fields) + 2) + entries[:60] + offsets + entries[60:] + sizes
    path.write_bytes(head.ljust(start, b"\0") + struct.pack("<L", start) * rows)
    return path


def test_tiff_with_many_strips_uses_memory_of_another_process(tmp_path: Path) -> None:
    small = picture(tmp_path / "b", "TIFF", 200)
    assert thumbnails.render(small, 160) == thumbnails.make(small, 160)
    path = tiff_of_strips(tmp_path / "a.tif", 300_000)
    assert grown(lambda: thumbnails.render(path, 160)) < 8 * 2**20
    assert decoder_process.is_needed(picture(tmp_path / "c", "BMP", 200, "RGB"))


def test_thumbnail_of_a_large_image_uses_bounded_memory(tmp_path: Path) -> None:
    path = black(tmp_path / "a.png")
    assert path.stat().st_size < 100_000
    thumbnails.make(picture(tmp_path / "b", "PNG", 200), 160)
    assert grown(lambda: thumbnails.render(path, 160)) < 32 * 2**20


@pytest.mark.parametrize(("size", "is_unchanged"), [((640, 480), False), ((5000, 5000), True)])
def test_large_image_of_a_provider_uses_bounded_memory(
    tmp_path: Path, size: tuple[int, int], is_unchanged: bool
) -> None:
    """A PNG of the right size is only checked; another image is encoded again, in another process."""
    image_io.encode_output(picture(tmp_path / "b", "PNG", 200), (100, 100), OutputFormat(), "fal")
    path, finish = black(tmp_path / "a"), ImageFinish(*size, crop=False)
    assert grown(lambda: comfyui_images.encode_output(path, finish)) < 32 * 2**20
    assert grown(lambda: image_io.encode_output(path, size, OutputFormat(), "fal")) < 32 * 2**20
    artifact = image_io.encode_output(path, size, OutputFormat(), "fal")
    assert artifact.info == {"width": size[0], "height": size[1]}
    assert (artifact.path is None) is is_unchanged


@pytest.mark.parametrize("crop", [True, False])
def test_image_of_a_provider_is_the_same_in_both_processes(tmp_path: Path, crop: bool) -> None:
    images = {"small": picture(tmp_path / "small", "PNG", 900)}
    with Image.open(images["small"]) as image:
        # Bytes after the end of the file are ignored, and make the file large.
        images["large"] = tmp_path / "large"
        images["large"].write_bytes(image_files.encode(image, "PNG") + bytes(5 * 2**20))
    results = [
        image_io.encode_output(path, (300, 200), OutputFormat(), "fal", crop=crop) for path in images.values()
    ]
    small, large = results
    assert large.path is not None
    assert small.data == large.path.read_bytes()
    damaged = tmp_path / "damaged"
    damaged.write_bytes(images["large"].read_bytes()[:100_000] + bytes(5 * 2**20))
    with pytest.raises(EngineError, match="fal returned an image that cannot be read"):
        image_io.encode_output(damaged, (300, 200), OutputFormat(), "fal")


def test_thumbnail_is_the_same_in_both_processes(tmp_path: Path) -> None:
    path = picture(tmp_path / "a", "WEBP", 200)
    assert thumbnails.render(path, 160) == thumbnails.make(path, 160)
