"""Files whose decoding takes much time or memory: JPEG with many scans, and large files of few pixels."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest
from PIL import Image

from sixfold.core.provenance.formats import jpeg
from sixfold.engines.image import decode, decoder_process, headers
from sixfold.engines.image.decode import UnreadableImage
from tests.harness import image_files

MIB = 1 << 20
LARGE = (3000, 2000)
_CODES = bytes([0x00, 0xFF, 0xD8, 0xFE])


def progressive(size: tuple[int, int], mode: str = "L") -> bytes:
    return image_files.encode(Image.new(mode, size), "JPEG", progressive=True)


def last_scan(data: bytes) -> bytes:
    """Return the last scan of a JPEG, without the end marker."""
    return data[data.rindex(b"\xff\xda") : -2]


def repeated(data: bytes, count: int) -> bytes:
    return data[:-2] + last_scan(data) * count + data[-2:]


def scan_count(data: bytes) -> int:
    return jpeg.scans(data, 1_000).number


def test_too_many_scans_are_refused_without_decoding(tmp_path: Path) -> None:
    data = repeated(progressive((4000, 10000)), 1_000)
    path = tmp_path / "scans.jpg"
    path.write_bytes(data)
    before = time.process_time()
    for read in (decode.decode, headers.probe, lambda file: decoder_process.header(Path(file))):
        with pytest.raises(UnreadableImage, match="more than 100 scans"):
            read(path)
    assert time.process_time() - before < 1


def test_a_jpeg_with_the_maximum_number_of_scans_is_decoded() -> None:
    data = progressive((64, 64))
    full = repeated(data, headers.MAX_SCANS - scan_count(data))
    assert scan_count(full) == headers.MAX_SCANS
    assert decode.decode(full).width == 64


def test_bytes_that_are_not_scans_are_not_counted() -> None:
    data = progressive((64, 64))
    count = scan_count(data)
    # Comments before a scan, and a video after the end of the image, may contain the bytes of a marker.
    comment = b"\xff\xfe\x03\xea" + b"\xff\xda" * 500
    at = data.rindex(b"\xff\xda")
    assert scan_count(data[:at] + comment + data[at:] + last_scan(data) * 500) == count
    assert decode.decode(data + last_scan(data) * 500).height == 64


@pytest.mark.parametrize("pattern", [b"\xff", b"\xff\x00", b"\xff\xd0", b"\x00", b"\xff\xda\x00\x02"])
def test_the_search_takes_linear_time(pattern: bytes) -> None:
    data = progressive((64, 64))[:-2] + (pattern * (8 * MIB))[: 8 * MIB]
    before = time.process_time()
    jpeg.scans(data, headers.MAX_SCANS)
    assert time.process_time() - before < 2


def test_damaged_scans_are_counted_without_another_error() -> None:
    data = repeated(progressive((16, 16)), 3)
    for at, code in itertools.product(range(2, len(data)), _CODES):
        for damaged in (data[:at], data[:at] + bytes([code]) + data[at + 1 :]):
            assert jpeg.scans(damaged, 100).number <= 100


@pytest.mark.parametrize(("progression", "expected"), [(False, False), (True, True)])
def test_large_jpeg_in_several_scans_needs_another_process(
    tmp_path: Path, progression: bool, expected: bool
) -> None:
    """A decoder holds 2 bytes per pixel and component of it, also at a reduced size."""
    path = tmp_path / "image.jpg"
    path.write_bytes(image_files.encode(Image.new("CMYK", LARGE), "JPEG", progressive=progression))
    assert decoder_process.is_needed(path, is_reduced=True) is expected
    assert decoder_process.is_needed(path) is True


def test_a_large_file_of_few_pixels_needs_another_process(tmp_path: Path) -> None:
    """Pillow keeps each comment of a GIF as an object, which takes 36 times its size."""
    data = image_files.encode(Image.new("P", (4, 4)), "GIF")
    path = tmp_path / "comments.gif"
    for count, expected in ((10, False), (MIB, True)):
        path.write_bytes(data[:-1] + b"\x21\xfe\x01a\x00" * count + data[-1:])
        assert decoder_process.is_needed(path) is expected
