"""Multipart bodies: independent of chunk boundaries, counted, and fast for any content."""

from __future__ import annotations

import gc
import random
import weakref
from typing import Any

import pytest

from sixfold import errors
from sixfold.web.multipart import Head, PartHandler, Splitter
from tests import loop_time

TYPE = "multipart/form-data; boundary=b"
MIB = 2**20


class Reader(PartHandler):
    """Keeps all parts that ended."""

    def __init__(self) -> None:
        self.parts: list[tuple[str, str | None, str, bytes]] = []
        self._data = b""

    def begin(self, head: Head) -> None:
        self._head, self._data = head, b""

    def take(self, data: memoryview) -> None:
        self._data += data

    def end(self) -> None:
        head = self._head
        self.parts.append((head.name, head.filename, head.content_type, self._data))


def part(name: str, data: bytes, more: str = "", headers: str = "") -> bytes:
    head = f'--b\r\nContent-Disposition: form-data; name="{name}"{more}\r\n{headers}\r\n'
    return head.encode() + data + b"\r\n"


def split(body: bytes, sizes: Any = None, **limits: int) -> tuple[Reader, Splitter]:
    """Feed a body in pieces of some sizes."""
    reader = Reader()
    splitter = Splitter(TYPE, reader, **limits)
    at = 0
    while at < len(body):
        size = len(body) if sizes is None else next(sizes)
        splitter.feed(body[at : at + size])
        at += size
    return reader, splitter


BODY = (
    b"\r\n"
    + part("text", b"a\r\n-b\r\n--c\r\n\r\n")
    + part("empty", b"")
    + part("file", bytes(range(256)) * 9, '; filename="a.png"', "Content-Type: image/png\r\n")
    + part("name", "é".encode(), '; filename=""')
    + b"--b-- \r\nepilogue"
)
PARTS = [
    ("text", None, "", b"a\r\n-b\r\n--c\r\n\r\n"),
    ("empty", None, "", b""),
    ("file", "a.png", "image/png", bytes(range(256)) * 9),
    ("name", "", "", "é".encode()),
]


def test_parts_are_independent_of_chunks() -> None:
    for size in (1, 2, 3, 5, 7, 64, len(BODY)):
        reader, splitter = split(BODY, iter([size] * len(BODY)))
        assert (reader.parts, splitter.ended) == (PARTS, True), size
    for seed in range(200):
        rng = random.Random(seed)  # noqa: S311  # repeatable on purpose
        reader, splitter = split(BODY, iter(lambda rng=rng: rng.randrange(1, 60), 0))
        assert (reader.parts, splitter.ended) == (PARTS, True), seed


@pytest.mark.parametrize("more", range(-8, 3))
def test_a_large_part_is_one_view_of_the_body(more: int, monkeypatch: pytest.MonkeyPatch) -> None:
    views: list[memoryview] = []
    reader = Reader()
    monkeypatch.setattr(reader, "take", views.append)
    data = b"x" * (2 * MIB + more)
    body = part("file", data, '; filename="a.png"') + b"--b--"
    Splitter(TYPE, reader).feed(body)
    (view,) = views
    assert view == data
    assert view.obj is body


def test_parser_and_its_parts_are_freed_without_a_collection() -> None:
    gc.disable()
    try:
        _, splitter = split(part("file", b"x" * 1000)[:-2])
        freed = weakref.ref(splitter)
        del splitter
        assert freed() is None
    finally:
        gc.enable()


def test_truncated_part_has_no_end() -> None:
    reader, splitter = split(BODY[: BODY.index(b'name="file"') + 400])
    assert (reader.parts, splitter.ended) == (PARTS[:2], False)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"preamble" + BODY, "does not begin with its boundary"),
        (b"--bx\r\n", "unexpected data after the boundary"),
        (part("a", b"x") + b"--b" + b" " * 200, "unexpected data after the boundary"),
        (b"--b\r\n" + b"A" * 9000, "headers of a part must have at most 8,192 bytes"),
        (b"--b\r\n" + b"a: b\r\n" * 2000, "headers of a part must have at most 8,192 bytes"),
        (b"--b\r\nContent-Type: a/b\r\n\r\nx\r\n--b--", "a part does not have a name"),
        (b"--b\r\n\r\nx\r\n--b--", "a part does not have a name"),
        (part("a", b"") * 4, "it must have at most 3 fields"),
        (part("a", b"", '; filename="b"') * 3, "it must have at most 2 files"),
        (part("a", b"x" * (MIB + 100)), "a field must have at most 1,048,576 bytes"),
    ],
)
def test_malformed_or_large_body_is_refused_with_the_limit(body: bytes, why: str) -> None:
    for size in (7, len(body)):
        with pytest.raises(errors.BadRequest, match=f"Invalid form body: .*{why}"):
            split(body, iter([size] * len(body)), fields=3, files=2)


@pytest.mark.parametrize(
    "content_type", ["multipart/form-data", f"multipart/form-data; boundary={'x' * 300}"]
)
def test_boundary_that_is_missing_or_long_is_refused(content_type: str) -> None:
    with pytest.raises(errors.BadRequest, match="boundary of 1 to 200 bytes"):
        Splitter(content_type, Reader())


@pytest.mark.parametrize("unit", [b"\r\n--", b"\r\n", b"-", b"\r\n--B", b"x"])
def test_data_that_looks_like_boundaries_takes_no_longer(unit: bytes) -> None:
    body = part("file", unit * (8 * MIB // len(unit)), '; filename="a"') + b"--b--"

    def split_all() -> None:
        splitter = Splitter(TYPE, PartHandler())
        for at in range(0, len(body), 64 * 1024):
            splitter.feed(body[at : at + 64 * 1024])
        assert splitter.ended

    # The library's parser took 4 s and more.
    assert loop_time.cpu_seconds(split_all, 1.0) < 1.0


def test_header_with_too_many_semicolons_is_refused() -> None:
    reader, _ = split(part("file", b"x", '; filename="a;b;c.png"') + b"--b--")
    assert reader.parts == [("file", "a;b;c.png", "", b"x")]
    for more in (";" * 300, '; filename="' + ";" * 300 + '"'):
        with pytest.raises(errors.BadRequest, match=r"at most 300 semicolons \(got 30[12]\)"):
            split(part("file", b"x", more))
    with pytest.raises(errors.BadRequest, match="semicolons"):
        Splitter(f"multipart/form-data; boundary=b{';' * 300}", Reader())


def test_headers_of_many_semicolons_take_little_time() -> None:
    padding = ";" * 250 + "x" * 7_000
    body = b"".join(part("a", b"", padding) for _ in range(125))
    assert loop_time.cpu_seconds(lambda: split(body), 0.1) < 0.2
