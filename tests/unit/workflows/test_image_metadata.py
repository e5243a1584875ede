"""Workflows in text chunks: the first of each name, inflated within one budget."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest

from sixfold.core.provenance.formats.parts import MAX_PARTS
from sixfold.core.workflows import image_metadata
from sixfold.core.workflows.editor_format.to_api import NotAWorkflow
from sixfold.core.workflows.limits import GraphLimits, GraphTooLarge

GRAPH = {"1": {"class_type": "PreviewAny", "inputs": {}}}
OTHER = {"1": {"class_type": "SaveImage", "inputs": {}}}
BOMB = b'{"x":"' + b"a" * (16 * 2**20) + b'"}'


def chunk(kind: bytes, name: bytes, text: bytes) -> bytes:
    """A text chunk of any of the three kinds, compressed where the kind can be."""
    packed = zlib.compress(text, 9)
    rest = {b"tEXt": text, b"zTXt": b"\0" + packed, b"iTXt": b"\1\0en\0\0" + packed}[kind]
    body = kind + name + b"\0" + rest
    return (len(body) - 4).to_bytes(4) + body + zlib.crc32(body).to_bytes(4)


def png(*chunks: bytes) -> bytes:
    header = b"IHDR" + bytes(13)
    first = (13).to_bytes(4) + header + zlib.crc32(header).to_bytes(4)
    return b"\x89PNG\r\n\x1a\n" + first + b"".join(chunks) + b"\0\0\0\0IEND\xaeB`\x82"


@pytest.fixture
def inflated(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes that each call inflates."""
    sizes: list[int] = []
    make = zlib.decompressobj

    class Counted:
        def __init__(self) -> None:
            self._own = make()

        def decompress(self, data: bytes, most: int = 0) -> bytes:
            result = self._own.decompress(data, most)
            sizes.append(len(result))
            return result

    monkeypatch.setattr(image_metadata.zlib, "decompressobj", Counted)
    return sizes


@pytest.mark.parametrize("kind", [b"tEXt", b"zTXt", b"iTXt"])
def test_only_the_first_chunk_of_a_name_is_read(kind: bytes, inflated: list[int]) -> None:
    texts = [json.dumps(each).encode() for each in (GRAPH, OTHER)]
    data = png(*(chunk(kind, b"workflow", text) for text in texts * 50))
    assert image_metadata.read(data) == GRAPH
    assert inflated == ([] if kind == b"tEXt" else [len(texts[0])])


@pytest.mark.parametrize("kind", [b"tEXt", b"zTXt", b"iTXt"])
def test_text_above_the_limit_is_not_inflated_completely(kind: bytes, inflated: list[int]) -> None:
    data = png(*(chunk(kind, name, BOMB) for name in (b"workflow", b"prompt") for _ in range(3)))
    for read in (image_metadata.read, image_metadata.extract):
        with pytest.raises(GraphTooLarge):
            read(data)
    assert sum(inflated) <= 4 * 2**20 + 4


def test_both_names_share_one_budget() -> None:
    text = json.dumps({"x": "a" * 900}).encode()
    data = png(chunk(b"zTXt", b"workflow", text), chunk(b"iTXt", b"prompt", text))
    assert set(image_metadata.extract(data, GraphLimits(json_bytes=1000))) == {"workflow", "prompt"}
    with pytest.raises(GraphTooLarge, match=r"900 bytes of JSON \(got 909\)"):
        image_metadata.extract(data, GraphLimits(json_bytes=900))


@pytest.mark.parametrize("head", [b"\xff\xd8\xff\xe1", b"RIFF\0\0\0\0WEBP"])
def test_the_text_of_exif_is_bounded_too(head: bytes) -> None:
    good: Any = head + b"....workflow:" + json.dumps(GRAPH).encode() + b"\0"
    assert image_metadata.read(good) == GRAPH
    with pytest.raises(GraphTooLarge, match="bytes of JSON"):
        image_metadata.read(head + b"....workflow:" + BOMB)


def test_an_image_with_too_many_chunks_is_refused() -> None:
    data = png(chunk(b"tEXt", b"a", b"") * MAX_PARTS)
    with pytest.raises(NotAWorkflow, match="more than 1,000,000 parts"):
        image_metadata.read(data)
