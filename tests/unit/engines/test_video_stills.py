"""The memory that a video with a hostile index takes, in workers and in the process of its first frame."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from sixfold.core.catalog.engines import UnusableInput
from sixfold.core.provenance.formats import mp4
from sixfold.engines import demux
from sixfold.engines.thumbnails import video
from sixfold.engines.video import probe
from sixfold.engines.video.decoder import AudioTrack, VideoReader

GIB = 2**30
SAMPLES = 1 << 20
_MEASURE = """
import resource, subprocess, sys
status = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
print(status, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def box(kind: bytes, *content: bytes) -> bytes:
    body = b"".join(content)
    return struct.pack(">I4s", 8 + len(body), kind) + body


def numbers(kind: bytes, *values: int) -> bytes:
    """Return a box of 32-bit numbers, of which the first is the version with flags."""
    return box(kind, struct.pack(f">{len(values)}I", *values))


def track(number: int) -> bytes:
    """Return a track whose tables state a million samples of one byte in a few bytes."""
    entry = box(b"avc1", bytes(6), struct.pack(">H", 1), bytes(16), struct.pack(">HH", 64, 64), bytes(50))
    tables = box(
        b"stbl",
        box(b"stsd", struct.pack(">II", 0, 1), entry),
        numbers(b"stts", 0, 1, SAMPLES, 1),
        numbers(b"stsc", 0, 1, 1, SAMPLES, 1),
        numbers(b"stsz", 0, 1, SAMPLES),
        numbers(b"stco", 0, 1, 48),
    )
    data = box(b"dinf", box(b"dref", struct.pack(">II", 0, 1), numbers(b"url ", 1)))
    media = box(
        b"mdia",
        numbers(b"mdhd", 0, 0, 0, 1000, 1000, 0x55C40000),
        box(b"hdlr", bytes(8), b"vide", bytes(13)),
        box(b"minf", numbers(b"vmhd", 1, 0, 0), data, tables),
    )
    header = numbers(b"tkhd", 3, 0, 0, number, 0, 1000, *[0] * 13, 64 << 16, 64 << 16)
    return box(b"trak", header, media)


def read_streams(path: Path) -> None:
    with demux.open_media(path):
        pass


def many_samples(tracks: int) -> bytes:
    movie = box(b"moov", numbers(b"mvhd", 0, 0, 0, 1000, 1000, *[0] * 20), *map(track, range(1, tracks + 1)))
    return box(b"ftyp", b"isom\0\0\2\0isomiso2avc1mp41") + box(b"mdat", bytes(64)) + movie


@pytest.mark.parametrize("reader", [probe.read, VideoReader, AudioTrack, read_streams])
def test_more_samples_than_bytes_are_refused(tmp_path: Path, reader: Callable[[Path], object]) -> None:
    path = tmp_path / "samples.mp4"
    movie = box(b"moov", track(1))
    run = box(b"moof", box(b"traf", numbers(b"trun", 0, SAMPLES)))
    head = box(b"ftyp", b"isom\0\0\2\0isomiso2avc1mp41")
    unfinished = struct.pack(">I4s", 2**31, b"free")
    for content in (movie, run, box(b"udta", box(b"skip"), track(1)), unfinished + movie, track(1)):
        path.write_bytes(head + box(b"mdat", bytes(64)) + content)
        with pytest.raises((UnusableInput, probe.NotAVideo), match="damaged"):
            reader(path)


def test_samples_of_a_complete_video_are_accepted() -> None:
    movie = box(b"moov", track(1))
    mp4.check_samples(box(b"ftyp", bytes(8)) + box(b"mdat", bytes(SAMPLES)) + movie)
    mp4.check_samples(box(b"ftyp", bytes(8)) + box(b"mdat", b"stsz" + b"\xff" * 100) + box(b"moov"))


def test_header_of_many_samples_takes_bounded_memory(tmp_path: Path) -> None:
    """FFmpeg allocates 24 bytes for each sample of each track: 40 KB would take 2.4 GB."""
    path = tmp_path / "samples.mp4"
    # The file has enough bytes for its samples.
    path.write_bytes(many_samples(100) + box(b"free", bytes(100 * SAMPLES)))
    command = [sys.executable, "-P", "-m", "sixfold.engines.limited_process"]
    command += ["sixfold.engines.thumbnails.video:make", str(3 * GIB), "60"]
    request = msgspec.msgpack.encode((str(path), "thumbnail"))
    # The peak of a process includes that of its parent before `exec`, so a small process starts it.
    result = subprocess.run([sys.executable, "-c", _MEASURE, *command], input=request, capture_output=True)
    status, peak_kib = map(int, result.stdout.split()[-2:])
    assert status != 0
    assert peak_kib * 1024 < 1.3 * GIB
    with pytest.raises(UnusableInput):
        video.render(str(path), "thumbnail")
