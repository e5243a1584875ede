"""Images of a ComfyUI server: removal of metadata without a new encoding, and the requested format."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image

from sixfold.core.catalog.engines import EngineError
from sixfold.engines.image import png_cleaning
from sixfold.engines.image.output_format import OutputFormat
from sixfold.engines.providers.comfyui import image_io
from sixfold.engines.providers.comfyui.image_io import ImageFinish
from tests.harness import image_files
from tests.unit.engines.test_comfyui import halves


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "P", "1"])
def test_valid_png_keeps_its_pixels_without_text_chunks(mode: str) -> None:
    image = halves((50, 30)).convert(mode)
    bare = png_cleaning.strip_metadata(image_files.encode(image, dpi=(72, 72)))
    assert bare is not None
    assert Image.open(io.BytesIO(bare)).convert("RGBA").tobytes() == image.convert("RGBA").tobytes()
    assert b"pHYs" not in bare


@pytest.mark.parametrize("cut", [1, 12, 20, 60])
def test_truncated_png_is_refused(cut: int) -> None:
    assert png_cleaning.strip_metadata(image_files.encode(halves((50, 30)))[:-cut]) is None


def test_png_with_a_changed_byte_is_refused(tmp_path: Path) -> None:
    content = bytearray(image_files.encode(halves((50, 30))))
    content[content.index(b"IDAT") + 10] ^= 1
    assert png_cleaning.strip_metadata(bytes(content)) is None
    path = tmp_path / "image"
    path.write_bytes(content)
    with pytest.raises(EngineError, match="cannot be read"):
        image_io.encode_output(path, ImageFinish(50, 30))


def test_unknown_format_is_refused() -> None:
    with pytest.raises(EngineError, match="format must be one of"):
        OutputFormat("bmp")
