"""Decoding: common formats are upright and correct, and malicious files are rejected."""

from __future__ import annotations

import contextlib
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageCms

from sixfold.core.catalog.engines import EngineError
from sixfold.engines.image import decode, encode, headers, output_format
from sixfold.engines.image.decode import UnreadableImage
from sixfold.engines.image.output_format import OutputFormat
from tests.harness import image_files

Pixels = NDArray[np.uint8]


def scene(width: int = 96, height: int = 64) -> Pixels:
    """A ramp, a red square at the top left and a blue one at the bottom right."""
    rows, columns = np.mgrid[0:height, 0:width]
    rgb = np.stack([columns * 255 // width, rows * 255 // height, np.full_like(rows, 90)], axis=2).astype(
        np.uint8
    )
    rgb[4:20, 4:24] = (230, 30, 30)
    rgb[-20:-4, -24:-4] = (30, 30, 230)
    return rgb


def file_of(image: Image.Image, format_: str, **options: Any) -> bytes:
    return image_files.encode(image, format=format_, **options)


def picture() -> Image.Image:
    return Image.fromarray(scene())


def apart(first: Pixels, second: Pixels) -> float:
    return float(np.abs(first.astype(int) - second.astype(int)).mean())


LOSSLESS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "png": ("PNG", lambda: file_of(picture(), "PNG")),
    "webp lossless": ("WEBP", lambda: file_of(picture(), "WEBP", lossless=True)),
    "bmp": ("BMP", lambda: file_of(picture(), "BMP")),
    "tiff": ("TIFF", lambda: file_of(picture(), "TIFF")),
    "tiff deflate": ("TIFF", lambda: file_of(picture(), "TIFF", compression="tiff_adobe_deflate")),
    "tiff lzw": ("TIFF", lambda: file_of(picture(), "TIFF", compression="tiff_lzw")),
    "tiff big": ("TIFF", lambda: file_of(picture(), "TIFF", big_tiff=True)),
}
LOSSY: dict[str, tuple[str, Callable[[], bytes]]] = {
    "jpeg": ("JPEG", lambda: file_of(picture(), "JPEG", quality=95)),
    "jpeg progressive": ("JPEG", lambda: file_of(picture(), "JPEG", quality=95, progressive=True)),
    "jpeg cmyk": ("JPEG", lambda: file_of(picture().convert("CMYK"), "JPEG", quality=95)),
    "webp": ("WEBP", lambda: file_of(picture(), "WEBP", quality=95)),
    "avif": ("AVIF", lambda: file_of(picture(), "AVIF", quality=95)),
    "gif": ("GIF", lambda: file_of(picture(), "GIF")),
    "palette png": ("PNG", lambda: file_of(picture().quantize(200), "PNG")),
}


@pytest.mark.parametrize("name", LOSSLESS)
def test_lossless_file_is_decoded_exactly(name: str) -> None:
    format_, result = LOSSLESS[name]
    read = decode.decode(result())
    assert (read.format, read.alpha) == (format_, None)
    assert np.array_equal(read.rgb, scene())


@pytest.mark.parametrize("name", LOSSY)
def test_lossy_file_is_decoded_closely(name: str) -> None:
    format_, result = LOSSY[name]
    read = decode.decode(result())
    assert read.format == format_
    assert apart(read.rgb, scene()) < 9


@pytest.mark.parametrize("name", [*LOSSLESS, *LOSSY])
def test_probe_reports_format_and_size(name: str, tmp_path: Path) -> None:
    format_, result = {**LOSSLESS, **LOSSY}[name]
    file = tmp_path / "picture"
    file.write_bytes(result())
    assert headers.probe(file) == (format_, 96, 64)
    assert decode.probe(result()) == (format_, 96, 64)


def test_a_probe_imports_neither_numpy_nor_opencv_nor_pillow() -> None:
    code = (
        "import sys; from sixfold.engines.image import headers;"
        "sys.exit(any(name in sys.modules for name in ('numpy', 'cv2', 'PIL')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_gray_bilevel_and_16_bit_gray_become_rgb() -> None:
    ramp = np.tile(np.arange(256, dtype=np.uint8), (16, 1))
    deep = Image.fromarray(ramp.astype(np.uint16) * 257)
    cases = {"L": Image.fromarray(ramp), "I;16": deep}
    for mode, image in cases.items():
        read = decode.decode(file_of(image, "PNG"))
        assert np.array_equal(read.rgb, np.dstack([ramp] * 3)), mode
    two = decode.decode(file_of(Image.fromarray(ramp > 127), "PNG"))
    assert set(np.unique(two.rgb)) == {0, 255}


def test_tiff_floats_and_wide_integers_are_scaled_to_8_bits() -> None:
    ramp = np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8)
    unit = decode.decode(file_of(Image.fromarray(ramp), "TIFF")).rgb
    wide = decode.decode(file_of(Image.fromarray((ramp * 65535).astype(np.int32)), "TIFF")).rgb
    for rgb in (unit, wide):
        assert (int(rgb.min()), int(rgb.max())) == (0, 255)
        assert np.all(np.diff(rgb[..., 0].ravel().astype(int)) >= 0)


def test_png_with_16_bits_keeps_its_high_byte() -> None:
    height, width = 8, 8
    line = b"\0" + struct.pack(">HHH", 0xFF00, 0x8000, 0x1000) * width
    data = _png(width, height, depth=16, color=2, idat=zlib.compress(line * height))
    assert decode.decode(data).rgb[3, 3].tolist() == [255, 128, 16]


@pytest.mark.parametrize("format_", ["PNG", "WEBP", "AVIF", "TIFF"])
def test_alpha_is_kept(format_: str) -> None:
    alpha = np.zeros((64, 96), np.uint8)
    alpha[10:50, 20:80] = 200
    image = Image.fromarray(np.dstack([scene(), alpha]))
    read = decode.decode(file_of(image, format_))
    assert read.alpha is not None
    assert apart(read.alpha, alpha) < 2


def test_transparent_palette_becomes_alpha_and_opaque_is_dropped() -> None:
    image = picture().quantize(16)
    assert decode.decode(file_of(image, "PNG", transparency=0)).alpha is not None
    opaque = Image.fromarray(np.dstack([scene(), np.full((64, 96), 255, np.uint8)]))
    assert decode.decode(file_of(opaque, "PNG")).alpha is None


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("format_", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_every_exif_orientation_is_applied(format_: str, orientation: int) -> None:
    undo = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    stored = picture().transpose(undo[orientation]) if orientation in undo else picture()
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"quality": 95} if format_ in ("JPEG", "WEBP") else {}
    read = decode.decode(file_of(stored, format_, exif=exif.tobytes(), **options))
    assert (read.width, read.height) == (96, 64)
    assert apart(read.rgb, scene()) < 7


def test_jpeg_is_decoded_at_a_reduced_size_if_sufficient() -> None:
    large = file_of(Image.fromarray(scene(1600, 1200)), "JPEG")
    small = decode.decode(large, target=(200, 150))
    assert (small.width, small.height) == (200, 150)
    assert decode.decode(large, target=(1600, 1200)).width == 1600


def test_first_frame_of_an_animation_is_decoded() -> None:
    frames = [Image.new("RGB", (20, 20), color) for color in ("red", "lime", "blue")]
    for format_ in ("GIF", "WEBP", "PNG"):
        data = file_of(frames[0], format_, save_all=True, append_images=frames[1:], duration=50)
        assert apart(decode.decode(data).rgb, np.full((20, 20, 3), (255, 0, 0), np.uint8)) < 3, format_


def test_srgb_profile_is_a_no_op_and_broken_one_is_ignored() -> None:
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    assert np.array_equal(decode.decode(file_of(picture(), "PNG", icc_profile=srgb)).rgb, scene())
    broken = decode.decode(file_of(picture(), "PNG", icc_profile=b"x" * 500))
    assert np.array_equal(broken.rgb, scene())


def test_image_of_one_pixel_is_decoded() -> None:
    assert decode.decode(file_of(Image.new("RGB", (1, 1), "red"), "PNG")).rgb.tolist() == [[[255, 0, 0]]]


# -- refusals -----------------------------------------------------------------------------------------


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _png(
    width: int, height: int, *, depth: int = 8, color: int = 2, idat: bytes = b"", extra: bytes = b""
) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
    body = _chunk(b"IHDR", header) + extra + _chunk(b"IDAT", idat) + _chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def _zeros(size: int) -> bytes:
    """Return a whole number of MiB of zeros, compressed with zlib in equal blocks of 1 MiB."""
    blocks = size >> 20
    packer = zlib.compressobj(9)
    first = packer.compress(bytes(2**20)) + packer.flush(zlib.Z_FULL_FLUSH)
    # Another block has no header; the checksum of zeros is their number, and 1.
    second = packer.compress(bytes(2**20)) + packer.flush(zlib.Z_FULL_FLUSH)
    checksum = struct.pack(">HH", (blocks << 20) % 65521, 1)
    return first + second * (blocks - 1) + b"\x03\x00" + checksum


def _tiff(tags: dict[int, int], tail: bytes = b"") -> bytes:
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in sorted(tags.items()))
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4) + tail


def _tiles() -> bytes:
    """A compressed 64 x 64 image in one tile that states 24000 x 24000."""
    tags = {256: 64, 257: 64, 258: 8, 259: 8, 262: 1, 277: 1, 322: 24000, 323: 24000}
    at = 8 + 2 + 12 * (len(tags) + 2) + 4
    tile = _zeros(24000 * 24000)
    return _tiff({**tags, 324: at, 325: len(tile)}, tile)


def _jpeg_claim() -> bytes:
    data = bytearray(file_of(picture(), "JPEG"))
    at = data.index(b"\xff\xc0")
    data[at + 5 : at + 9] = struct.pack(">HH", 65000, 65000)
    return bytes(data)


def _gif_claim() -> bytes:
    data = bytearray(file_of(picture(), "GIF"))
    data[6:10] = struct.pack("<HH", 65000, 65000)
    return bytes(data)


def _gif_frame_claim() -> bytes:
    data = bytearray(file_of(picture(), "GIF"))
    at = data.index(b"\x2c", 13 + 3 * 256)
    data[at + 5 : at + 9] = struct.pack("<HH", 65000, 65000)
    return bytes(data)


def _webp_claim() -> bytes:
    body = b"WEBPVP8X" + struct.pack("<I", 10) + bytes([2, 0, 0, 0]) + b"\xff\xff\x00" * 2
    return b"RIFF" + struct.pack("<I", len(body)) + body


def _avif_claim() -> bytes:
    data = file_of(picture(), "AVIF")
    at = data.index(b"ispe") + 8
    return data[:at] + struct.pack(">II", 60000, 60000) + data[at + 8 :]


BOMBS: dict[str, Callable[[], bytes]] = {
    "png of 20000 x 20000": lambda: _png(20000, 20000, idat=_zeros(20 * 2**20)),
    "png just over 40 megapixels": lambda: _png(8000, 5001),
    "png with a packed zTXt": lambda: _png(8, 8, extra=_chunk(b"zTXt", b"Comment\0\0" + _zeros(2**30))),
    "png with a packed iTXt": lambda: _png(8, 8, extra=_chunk(b"iTXt", b"Comment\0\1\0\0\0" + _zeros(2**30))),
    "png with a packed profile": lambda: _png(8, 8, extra=_chunk(b"iCCP", b"p\0\0" + _zeros(2**30))),
    "jpeg of 65000 x 65000": _jpeg_claim,
    "gif of 65000 x 65000": _gif_claim,
    "gif whose frame outgrows its screen": _gif_frame_claim,
    "webp of 65536 x 65536": _webp_claim,
    "tiff of 60000 x 60000": lambda: _tiff({256: 60000, 257: 60000, 258: 8, 259: 1, 262: 1, 273: 200}),
    "tiff with a huge tile": _tiles,
    "bmp of 60000 x 60000": lambda: (
        b"BM" + bytes(12) + struct.pack("<IiiHHI", 40, 60000, -60000, 1, 24, 0) + bytes(40)
    ),
    "avif of 60000 x 60000": _avif_claim,
}

TRICKS: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "one byte": lambda: b"\x89",
    "an SVG named .png": lambda: (
        b'<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>'
    ),
    "HTML named .png": lambda: b"<!doctype html><script>alert(1)</script>" + bytes(64),
    "EPS named .png": lambda: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(%pipe%id) (w) file\n",
    "a PDF named .png": lambda: b"%PDF-1.7\n1 0 obj\n<<>>\nendobj\n" + bytes(64),
    "an HLS playlist": lambda: b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n",
    "an icon": lambda: file_of(Image.new("RGB", (16, 16)), "ICO"),
    "a PPM": lambda: file_of(picture(), "PPM"),
    "noise": lambda: np.random.default_rng(3).bytes(4096),
    "a PNG without IHDR": lambda: b"\x89PNG\r\n\x1a\n" + _chunk(b"IDAT", b"x") + bytes(32),
    "a PNG of no width": lambda: _png(0, 10),
    "a JPEG without a frame": lambda: b"\xff\xd8\xff\xe0\x00\x10" + bytes(14) + b"\xff\xd9",
    "a JPEG of endless markers": lambda: b"\xff\xd8" + b"\xff\xfe\x00\x02" * 10_000,
    "a TIFF that points past its end": lambda: b"II*\0\xff\xff\xff\x7f" + bytes(32),
    "a WebP of another kind": lambda: b"RIFF\0\0\0\0WEBPVP9 " + bytes(32),
}


@pytest.mark.parametrize("name", BOMBS)
def test_decompression_bomb_is_refused_in_bounded_memory(name: str, tmp_path: Path) -> None:
    file = tmp_path / "bomb.png"
    file.write_bytes(BOMBS[name]())
    code = (
        "import resource, sys\n"
        "from sixfold.engines.image import decode\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try:\n"
        "    decode.decode(sys.argv[1])\n"
        "    said = 'decoded'\n"
        "except decode.UnreadableImage as error:\n"
        "    said = str(error)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, said, sep='|')\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=True, timeout=60
    )
    rise, text = ran.stdout.strip().split("|")
    assert int(rise) < 300 * 1024, f"{int(rise) / 1024:.0f} MiB"
    assert text.endswith(".")
    assert "\n" not in text
    assert text != "decoded"


@pytest.mark.parametrize("name", TRICKS)
def test_file_with_a_false_header_is_refused_in_one_sentence(name: str) -> None:
    with pytest.raises(UnreadableImage) as excinfo:
        decode.decode(TRICKS[name]())
    text = str(excinfo.value)
    assert isinstance(excinfo.value, EngineError)
    assert text.endswith(".")
    assert "/" not in text


@pytest.mark.parametrize("name", [*LOSSLESS, *LOSSY])
def test_a_truncated_file_is_refused_at_any_length(name: str) -> None:
    data = {**LOSSLESS, **LOSSY}[name][1]()
    for share in (0.05, 0.3, 0.6):
        with pytest.raises(UnreadableImage, match=r"truncated|not an image"):
            decode.decode(data[: int(len(data) * share)])


def test_polyglot_file_is_read_only_as_its_image() -> None:
    data = file_of(picture(), "PNG") + b"<script>alert(1)</script>PK\x03\x04"
    assert np.array_equal(decode.decode(data).rgb, scene())


def test_limits_of_bytes_and_pixels_are_in_the_error() -> None:
    data = file_of(picture(), "PNG")
    with pytest.raises(UnreadableImage, match=r"^The image file has .* MiB; at most .* are allowed\.$"):
        decode.decode(data, max_bytes=100)
    with pytest.raises(UnreadableImage, match=r"96 x 64 pixels .* at most 0\.006 megapixels"):
        decode.decode(data, max_pixels=6000)
    with pytest.raises(UnreadableImage, match=r"40\.0 megapixels"):
        decode.decode(_png(8000, 5001))


@pytest.mark.parametrize("name", [*LOSSLESS, *LOSSY])
def test_damaged_file_raises_only_unreadable_image(name: str) -> None:
    data = {**LOSSLESS, **LOSSY}[name][1]()
    rng = np.random.default_rng(len(data))
    for _ in range(60):
        hurt = bytearray(data)
        for at in rng.integers(0, min(len(hurt), 900), int(rng.integers(1, 9))):
            hurt[at] = int(rng.integers(0, 256))
        with contextlib.suppress(UnreadableImage):
            assert decode.decode(bytes(hurt), max_pixels=1_000_000).rgb.dtype == np.uint8


# -- encoding -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("format_", output_format.CONTENT_TYPES)
def test_encoding_round_trips_and_is_deterministic(format_: str) -> None:
    data = encode.encode(scene(), format=format_, quality=90)
    assert data == encode.encode(scene(), format=format_, quality=90)
    read = decode.decode(data)
    assert read.format == format_.upper()
    assert apart(read.rgb, scene()) < (0.01 if format_ == "png" else 6)


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ({}, ("png", 90)),
        ({"format": "JPG", "quality": 70}, ("jpeg", 70)),
        ({"format": "webp", "quality": 0}, ("webp", 1)),
        ({"format": None, "quality": 400.0}, ("png", 100)),
    ],
)
def test_output_format_is_read_from_the_inputs(inputs: dict[str, Any], expected: tuple[str, int]) -> None:
    output = OutputFormat.of(inputs)
    assert (output.name, output.quality) == expected
    assert decode.decode(output.encode(scene())).format == output.name.upper()
    assert output.content_type == f"image/{output.name}"


def test_unknown_output_format_is_refused() -> None:
    with pytest.raises(EngineError, match=r"format must be one of png, jpeg, webp, avif\."):
        OutputFormat.of({"format": "bmp"})


@pytest.mark.parametrize("format_", ["png", "webp", "avif"])
def test_alpha_is_encoded_and_jpeg_has_a_white_background(format_: str) -> None:
    alpha = np.zeros((64, 96), np.uint8)
    alpha[:, 40:] = 255
    read = decode.decode(encode.encode(scene(), alpha, format=format_, quality=90))
    assert read.alpha is not None
    assert apart(read.alpha, alpha) < 2
    flat = decode.decode(encode.encode(scene(), alpha, format="jpeg", quality=95))
    assert flat.rgb[:, :32].min() > 235


def test_lower_quality_gives_a_smaller_file() -> None:
    for format_ in ("jpeg", "webp", "avif"):
        sizes = [
            len(encode.encode(scene(400, 300), format=format_, quality=quality)) for quality in (10, 50, 95)
        ]
        assert sizes == sorted(sizes), format_
