"""Readers of large bodies hold the GIL for a short time in each call, since other threads wait for it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any

import pytest

from sixfold import errors
from sixfold.api.hosting.fal import schemas as fal_schemas
from sixfold.api.hosting.replicate import schemas as replicate_schemas
from sixfold.api.hosting.replicate import texts
from sixfold.clients.chat.forwarded import media
from sixfold.core.gateway import attempts
from sixfold.core.gateway.attachments import media_inlining
from sixfold.web import bodies
from sixfold.web.multipart import PartHandler, Splitter
from tests import gil_time, loop_time
from tests.harness.cases import nightly_after
from tests.loops import documents
from tests.loops.documents import DOCUMENTS, FORM, JSON, MIB, MULTIPART, Document

MAX_BYTES = 32 * MIB
# Each number is a call, and what a file holds does not matter here.
UNREAD = {"json numbers", "json numbers in fields", "json file"} | {
    f"multipart {document.name}" for document in documents.FILES
}
# A copy of 32 MiB takes 5 to 20 ms; a call for each byte of them takes 80 ms and more.
LONGEST_MS = 60.0
# The decoder reads one object of 100,000 long names in one call.
LONGEST_JSON_MS = {"json keys": 90.0, "json keys in fields": 90.0}


def whole_parts(raw: bytes) -> None:
    """Read all parts and ignore them."""
    Splitter(MULTIPART, PartHandler()).feed(raw)


READERS: dict[str, tuple[Callable[[bytes], Any], ...]] = {
    FORM: (
        lambda raw: bodies.decode_urlencoded(raw, max_fields=1000, keep_blank=True),
        bodies.key_in_urlencoded,
    ),
    MULTIPART: (whole_parts, lambda raw: bodies.key_in_multipart(raw, MULTIPART)),
    JSON: (bodies.parse_object, bodies.key_in_json),
}
LONG = (
    Document("form ampersands", FORM, lambda most: b"&" * most),
    Document("form equals", FORM, lambda most: b"a=" + b"=" * (most - 2)),
    Document("form percents", FORM, lambda most: b"a=" + b"%" * (most - 2)),
    Document("form plus names", FORM, lambda most: b"+" * (most - 2) + b"=1"),
    Document("multipart blanks", MULTIPART, lambda most: b"\r\n" * (most // 2)),
)
# The worst documents of each reader; `make nightly` reads the others.
WORST = {
    "json keys",
    "json blanks",
    "form ampersands",
    "form percents",
    "multipart blanks",
    "multipart field",
}
READ = [
    pytest.param(document, id=document.name, marks=() if document.name in WORST else pytest.mark.nightly)
    for document in (*DOCUMENTS, *LONG)
    if document.name.startswith(("json ", "form ", "multipart ")) and document.name not in UNREAD
]


@pytest.mark.parametrize("document", nightly_after(3, READ))
def test_reading_32_mib_holds_the_gil_shortly_per_call(document: Document) -> None:
    raw = document.build(MAX_BYTES)[:MAX_BYTES]
    for reader in READERS[document.content_type]:

        def read(reader: Callable[[bytes], Any] = reader) -> None:
            with contextlib.suppress(errors.SixfoldError):
                reader(raw)

        aim_ms = LONGEST_JSON_MS.get(document.name, LONGEST_MS)
        assert gil_time.longest_call(read, aim_ms) < aim_ms


@pytest.mark.parametrize("serialize", [replicate_schemas._links, fal_schemas._with_names])
def test_vectors_are_not_serialized_number_by_number(serialize: Callable[[Any], Any]) -> None:
    output = {
        "embeddings": [[0.5] * 1_000 for _ in range(1_000)],
        "files": [1, {"url": "u", "content_type": "c"}],
    }
    results: list[Any] = []
    assert loop_time.cpu_seconds(lambda: results.append(serialize(output)), 0.06) < 0.06
    assert results[0]["embeddings"] == output["embeddings"]
    assert results[0]["files"] != output["files"]


@pytest.mark.parametrize("pattern", [media_inlining._FETCHED_URL, media_inlining._WITH_SCHEME])
def test_blanks_before_a_url_are_read_once(pattern: re.Pattern[str]) -> None:
    blanks = " " * (16 * MIB)
    assert loop_time.cpu_seconds(lambda: pattern.match(blanks), 0.05) < 0.05
    assert pattern.match(f"{blanks[:100]}HTTP://example.com/a.png") is not None
    assert pattern.match(f"{blanks[:100]}data:image/png;base64,") is None


@pytest.mark.parametrize("pattern", [attempts._JSON, media._PAGE])
def test_blanks_before_a_response_are_read_once(pattern: re.Pattern[bytes]) -> None:
    blanks = b" " * (16 * MIB)
    assert loop_time.cpu_seconds(lambda: pattern.match(blanks), 0.05) < 0.05


@pytest.mark.parametrize("text", [b"\xff", "é".encode(), b'{"text":"' + "é".encode() * 16 * MIB + b'"}'])
def test_transcript_is_not_decoded_in_one_call(text: bytes) -> None:
    wire = next(each for each in media.MEDIA_PROTOCOLS if each.name == "transcriptions")
    body = text if text.startswith(b"{") else text * (MAX_BYTES // len(text))
    assert gil_time.longest_call(lambda: wire.usage(body), LONGEST_MS) < LONGEST_MS
    assert wire.usage("é1".encode()) == (None, 2)


def test_text_of_line_breaks_becomes_an_event_in_one_call() -> None:
    text = "\n" * 2 * MIB
    assert loop_time.cpu_seconds(lambda: texts._frame("output", 1, text), 0.1) < 0.1
    assert texts._frame("output", 1, "a\n\nb") == b"event: output\nid: 1\ndata: a\ndata: \ndata: b\n\n"
