"""The table of formats with real files: type detection, headers, and truncated files."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sixfold.core.provenance.formats import media_types
from sixfold.core.provenance.formats.media_types import FORMATS
from sixfold.core.provenance.formats.parts import MalformedFile, MediaHeader
from tests import loop_time
from tests.unit.core.test_manifest_containers import FILES, HOSTILE, IMAGES, SVG, encoded_file

# Files whose first bytes are also those of a more general format.
SNIFFED = {
    "audio/mp4": "video/mp4",
    "image/apng": "image/png",
    "audio/webm": "video/webm",
    "video/x-matroska": "video/webm",
}
SMALL = {"apng", "several pictures in a jpeg", "moving webp", "moving gif"}
SIZES = {name: (40, 30) if name in SMALL else (61, 37) for name in IMAGES}
SECONDS = {
    "mp4": 2.0,
    "faststart mp4": 2.0,
    "mov": 2.0,
    "m4a": 1.0,
    "webm": 2.0,
    "mkv": 2.0,
    "webm audio": 1.0,
    "wav": 1.0,
    "odd wav": 0.5,
    "flac": 1.0,
}
# Files that state their length; a fragment, or one image of several, is complete by itself.
CUT = sorted((IMAGES.keys() | SECONDS.keys()) - {"several pictures in a jpeg", "flac"})


def format_of(data: bytes) -> media_types.FileFormat:
    result = media_types.find(data)
    assert result is not None
    return result


@pytest.mark.parametrize("name", FILES)
def test_format_is_sniffed_from_the_first_bytes(name: str) -> None:
    content_type, data = encoded_file(name)
    expected = SNIFFED.get(content_type, content_type)
    head = data[: media_types.HEAD_BYTES]
    assert media_types.sniff(head, "text/plain") == expected
    if name != "svg":
        assert media_types.find(head[: media_types.MAGIC_BYTES]) is media_types.find(data)
    assert media_types.EXTENSIONS[expected]


@pytest.mark.parametrize(
    ("claimed", "content_type"),
    [
        ("text/csv", "text/csv"),
        ("text/markdown", "text/markdown"),
        ("application/json", "application/json"),
        ("application/javascript", "text/plain"),
        ("image/png", "text/plain"),
    ],
)
def test_declared_type_selects_among_kinds_of_text(claimed: str, content_type: str) -> None:
    assert media_types.sniff(b"a,b\n1,2\n", claimed) == content_type


@pytest.mark.parametrize("name", SIZES)
def test_a_header_states_the_size_of_an_image(name: str) -> None:
    _, data = encoded_file(name)
    width, height = SIZES[name]
    assert format_of(data).header(data)[:3] == (width, height, width * height)


@pytest.mark.parametrize("name", SECONDS)
def test_a_header_states_the_length_of_video_and_audio(name: str) -> None:
    _, data = encoded_file(name)
    assert format_of(data).header(data).seconds == pytest.approx(SECONDS[name], abs=0.12)


@pytest.mark.parametrize("name", FILES)
def test_a_whole_file_is_complete(name: str) -> None:
    _, data = encoded_file(name)
    assert name == "svg" or format_of(data).is_complete(data)


@pytest.mark.parametrize("name", CUT)
def test_truncated_file_is_not_complete(name: str) -> None:
    _, data = encoded_file(name)
    kind = format_of(data)
    step = max(1, len(data) // 400)
    for end in (*range(40, 400), *range(400, len(data), step), *range(len(data) - 40, len(data))):
        assert not kind.is_complete(data[: min(end, len(data) - 1)]), end


@pytest.mark.parametrize("data", HOSTILE, ids=range(len(HOSTILE)))
def test_false_lengths_raise_malformed_file_fast(data: bytes) -> None:
    def read_by_all() -> None:
        for kind in FORMATS:
            with contextlib.suppress(MalformedFile):
                assert isinstance(kind.header(data), MediaHeader)
            assert kind.is_complete(data) in (True, False)

    # Without budgets, the time would be quadratic.
    assert loop_time.cpu_seconds(read_by_all, 20) < 20


def test_sub_blocks_of_a_gif_are_counted_against_the_budget() -> None:
    data = b"GIF89a" + bytes(7) + b"\x21\xfe" + b"\x01a" * (5 << 20) + b"\0\x3b"
    assert not format_of(data).is_complete(data)


def test_boxes_inside_boxes_are_counted_against_one_budget() -> None:
    inner = b"\0\0\0\x08free" * 60_000
    box = (8 + len(inner)).to_bytes(4) + b"iprp" + inner
    data = b"\0\0\0\x10ftypavif\0\0\0\0" + box * 2
    with pytest.raises(MalformedFile, match="more than 65,536 parts"):
        format_of(data).header(data)


@given(st.binary(max_size=300), st.sampled_from(sorted(FILES)), st.integers(0, 400))
@settings(deadline=None, max_examples=4 * settings().max_examples)
def test_a_damaged_file_has_a_header_or_is_malformed(data: bytes, name: str, head: int) -> None:
    data = encoded_file(name)[1][:head] + data
    for kind in FORMATS:
        with contextlib.suppress(MalformedFile):
            kind.header(data)
        kind.is_complete(data)
    media_types.sniff(data)


@pytest.mark.parametrize(
    ("data", "content_type"),
    [
        (b"BMW is a text", "text/plain"),
        (b"FORMULA ONE", "text/plain"),
        (b"I'm free to go", "text/plain"),
        (b"FORM\0\0\0\0AIFFCOMM", "audio/aiff"),
        (b"RIFF\0\0\0\0AVI LIST", "video/x-msvideo"),
        (b"RF64\xff\xff\xff\xffWAVEds64", "audio/wav"),
        (b"\0\0\0\x18ftypheic\0\0\0\0", "image/heic"),
        (b"\xff\xf1\x50\x80", "audio/aac"),
        (SVG.encode(), "image/svg+xml"),
        (b"  <!DOCTYPE HTML><p>", "text/html"),
        ("ein Löwe".encode()[:-3], "text/plain"),
        (b"\0\1\2\3", media_types.UNKNOWN),
        (b"", media_types.UNKNOWN),
    ],
)
def test_similar_first_bytes_are_distinguished(data: bytes, content_type: str) -> None:
    assert media_types.sniff(data) == content_type


def test_media_types_and_extensions_are_unique() -> None:
    names = [name for each in FORMATS for name in (each.media_type, *each.aliases)]
    assert len(names) == len(set(names))
    assert len(media_types.EXTENSIONS) == len({each.extension for each in FORMATS})
