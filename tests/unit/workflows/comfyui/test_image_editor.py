"""Images that the server decodes: memory is reserved first, and bounded."""

from __future__ import annotations

import asyncio
import io
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from PIL import Image

from sixfold.core.catalog.engines import UnusableInput
from sixfold.core.workflows.comfyui.image_editor import ImageCodecs, ImageEditor
from sixfold.engines.workflow_nodes import mask_upload
from sixfold.engines.workflow_nodes import preview as workflow_nodes_preview
from tests.harness import image_files

_MIB = 2**20
_PEAK = """
import resource, sys
from sixfold.engines.workflow_nodes import preview
from PIL import Image, WebPImagePlugin, PngImagePlugin
Image.init()
picture = sys.argv[1]
needed = preview.render_memory(picture, "webp;90")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
preview.render(picture, "webp;90", "")
print(needed, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


def _put(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def _png(width: int, height: int) -> bytes:
    return image_files.encode(Image.new("RGBA", (width, height), (1, 2, 3, 4)))


class _Counted:
    """The real codecs, with the most bytes that were decoded at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = self._count = 0
        self.peak_bytes = self.peak_count = 0
        self.codecs = ImageCodecs(
            self._viewed,
            workflow_nodes_preview.render_memory,
            mask_upload.apply_mask,
            mask_upload.mask_memory,
        )

    def _viewed(self, picture: Path, preview: str | None, channel: str) -> tuple[bytes, str]:
        needed = workflow_nodes_preview.render_memory(picture, preview)
        self._add(needed, 1)
        try:
            return workflow_nodes_preview.render(picture, preview, channel)
        finally:
            self._add(-needed, -1)

    def _add(self, needed: int, count: int) -> None:
        with self._lock:
            self._now += needed
            self._count += count
            self.peak_bytes = max(self.peak_bytes, self._now)
            self.peak_count = max(self.peak_count, self._count)


@pytest.mark.parametrize(("size", "limit", "at_once"), [(400, 64 * _MIB, 2), (400, 6 * _MIB, 1), (400, 1, 1)])
async def test_images_are_decoded_within_the_limit_or_alone(
    tmp_path: Path, size: int, limit: int, at_once: int
) -> None:
    counted, image = _Counted(), _put(tmp_path / "a.png", _png(size, size))
    editor = ImageEditor(counted.codecs, limit)

    async def load() -> Path:
        return image

    results = await asyncio.gather(*(editor.viewed(load, "webp;90", "") for _ in range(12)))
    assert {kind for _, kind in results} == {"image/webp"}
    assert counted.peak_count <= at_once
    assert counted.peak_bytes <= max(limit, workflow_nodes_preview.render_memory(image, "webp;90"))


async def test_images_are_read_only_when_they_can_be_decoded(tmp_path: Path) -> None:
    counted, picture = _Counted(), _put(tmp_path / "a.png", _png(40, 30))
    editor = ImageEditor(counted.codecs)
    reading, is_open = 0, asyncio.Event()

    async def load() -> Path:
        nonlocal reading
        reading += 1
        await is_open.wait()
        return picture

    tasks = [asyncio.create_task(editor.viewed(load, None, "a")) for _ in range(10)]
    for _ in range(20):
        await asyncio.sleep(0)
    assert reading == 2
    is_open.set()
    assert len(await asyncio.gather(*tasks)) == 10


@pytest.mark.nightly
def test_large_preview_takes_the_estimated_memory(tmp_path: Path) -> None:
    path = tmp_path / "large.png"
    path.write_bytes(_png(6300, 6300))
    child = subprocess.run(
        [sys.executable, "-c", _PEAK, str(path)], capture_output=True, check=True, text=True
    )
    needed, grown = map(int, child.stdout.split())
    assert grown <= needed <= 700 * _MIB
    data, _ = workflow_nodes_preview.render(path, "webp;90", "")
    assert Image.open(io.BytesIO(data)).size == (3150, 3150)


@pytest.mark.parametrize("kind", ["JPEG", "GIF"])
def test_a_preview_is_reduced_in_every_mode(tmp_path: Path, kind: str) -> None:
    data, content_type = workflow_nodes_preview.render(
        _put(
            tmp_path / "a",
            image_files.encode(Image.new("RGB" if kind == "JPEG" else "P", (8000, 2001)), kind),
        ),
        "jpeg;50",
        "",
    )
    assert (Image.open(io.BytesIO(data)).size, content_type) == ((4000, 1001), "image/jpeg")


def test_image_above_the_pixel_limit_is_not_decoded(tmp_path: Path) -> None:
    with pytest.raises(UnusableInput, match="40 megapixels are allowed"):
        workflow_nodes_preview.render(
            _put(tmp_path / "a.png", image_files.encode(Image.new("1", (6400, 6400)))), "webp;90", ""
        )


async def test_mask_counts_the_pixels_of_both_images(tmp_path: Path) -> None:
    image, mask, result = (tmp_path / name for name in ("picture.png", "mask.png", "result.png"))
    for path in (image, mask):
        path.write_bytes(_png(300, 200))
    assert mask_upload.mask_memory(image, mask) == 2 * 300 * 200 * 10
    await ImageEditor(_Counted().codecs, 1).masked(image, mask, result)
    assert workflow_nodes_preview.size(result) == (300, 200)
    mask.write_bytes(b"no picture")
    with pytest.raises(UnusableInput, match="cannot be read"):
        await ImageEditor(_Counted().codecs).masked(image, mask, result)
