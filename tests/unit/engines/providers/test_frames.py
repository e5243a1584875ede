"""Images for and from providers: exact sizes, no metadata, no damaged files."""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageCms, PngImagePlugin

from sixfold.core.catalog.engines import Artifact, EngineError
from sixfold.engines.image.output_format import OutputFormat
from sixfold.engines.providers import image_io
from tests.fakes import fault_server
from tests.harness import image_files
from tests.unit.engines.providers import parts


def finish_image(content: bytes, size: tuple[int, int] | None = None, format_: str = "png") -> Artifact:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "upstream"
        path.write_bytes(content)
        artifact = image_io.encode_output(path, size, OutputFormat(format_), "fal")
        data = artifact.path.read_bytes() if artifact.path else artifact.data
    return Artifact(artifact.content_type, data, artifact.info)


def as_png(image: Image.Image, **options: Any) -> bytes:
    return image_files.encode(image, **options)


def test_valid_png_keeps_pixels_and_loses_metadata() -> None:
    note = PngImagePlugin.PngInfo()
    note.add_text("prompt", "a secret of the provider")
    inputs = Image.open(io.BytesIO(fault_server.image(320, 200)))
    artifact = finish_image(as_png(inputs, pnginfo=note), (320, 200))
    assert b"secret" not in artifact.data
    assert np.array_equal(np.asarray(parts.decoded_image(artifact)), np.asarray(inputs))


def test_png_without_its_end_is_completed() -> None:
    content = fault_server.image(320, 200)
    assert finish_image(content[:-12], (320, 200)).data.endswith(content[-12:])


@pytest.mark.parametrize("cut", [40, 200, 800])
def test_png_with_missing_pixels_is_refused(cut: int) -> None:
    with pytest.raises(EngineError, match="fal returned an image that cannot be read"):
        finish_image(fault_server.image(320, 200)[:-cut], (320, 200))


def test_image_with_another_color_profile_becomes_srgb() -> None:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB"))
    plain = Image.new("RGB", (64, 64), (200, 30, 30))
    other = as_png(plain, icc_profile=profile.tobytes())
    assert "icc_profile" not in parts.decoded_image(finish_image(other, (64, 64))).info


@pytest.mark.parametrize("size", [(100, 100), (300, 20), (20, 300), (640, 480), (1, 1)])
@pytest.mark.parametrize("format_", ["png", "webp", "jpeg", "avif"])
def test_size_and_format_are_exact(size: tuple[int, int], format_: str) -> None:
    artifact = finish_image(fault_server.image(320, 200, alpha=format_ != "jpeg"), size, format_)
    image = parts.decoded_image(artifact)
    assert image.size == size
    assert artifact.content_type == f"image/{format_}"
    assert artifact.info == {"width": size[0], "height": size[1]}


def test_other_aspect_ratio_is_cropped_to_the_center() -> None:
    bands = np.zeros((100, 300, 3), np.uint8)
    bands[:, 100:200] = 255
    artifact = finish_image(as_png(Image.fromarray(bands)), (100, 100))
    assert np.asarray(parts.decoded_image(artifact))[10:-10, 10:-10].min() > 250


def test_uploaded_source_is_small_upright_and_without_metadata(tmp_path: Path) -> None:
    image = Image.new("RGB", (3000, 1500), "red")
    exif = image.getexif()
    exif[0x0112], exif[0x010F] = 8, "a camera of mine"
    path = tmp_path / "photo.jpg"
    image.save(path, exif=exif)
    sent = image_io.prepare_upload(path)
    assert (sent.content_type, sent.source_size, sent.size) == ("image/jpeg", (1500, 3000), (1024, 2048))
    with Image.open(io.BytesIO(sent.data)) as opened_image:
        assert opened_image.size == (1024, 2048)
    assert b"camera" not in sent.data
    assert sent.name == "image.jpeg"


def test_uploaded_source_keeps_its_transparency(tmp_path: Path) -> None:
    sent = image_io.prepare_upload(parts.source(tmp_path, alpha=True))
    with Image.open(io.BytesIO(sent.data)) as image:
        assert (sent.content_type, image.mode) == ("image/png", "RGBA")


def test_concurrent_threads_do_not_disturb_each_other() -> None:
    results = [fault_server.image(64 + index, 64) for index in range(24)]
    with ThreadPoolExecutor(8) as pool:
        sizes = list(
            pool.map(lambda content: parts.decoded_image(finish_image(content, None, "webp")).size, results)
        )
    assert sizes == [(64 + index, 64) for index in range(24)]


def test_image_is_finished_without_opencv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    assert parts.decoded_image(finish_image(fault_server.image(100, 80), (64, 64))).size == (64, 64)


@pytest.mark.parametrize("module", ["fal", "replicate", "openai", "caption", "speech_to_speech"])
def test_provider_module_is_imported_without_opencv(module: str) -> None:
    program = f"import sys; sys.modules['cv2'] = None; import sixfold.engines.providers.{module}"
    subprocess.run([sys.executable, "-c", program], check=True)
