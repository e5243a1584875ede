"""Urlencoded forms: the values of the library's reader, with limits and in little memory."""

from __future__ import annotations

import random
import tracemalloc
from urllib.parse import parse_qsl

import pytest

from sixfold import errors
from sixfold.web import bodies

PIECES = [b"a", b"%41", b"%C3%A9", "é".encode(), b"+", b"=", b"&", b"%", b"%4", b"%zz", b"%25", b"&&", b"a=1"]


@pytest.mark.parametrize("keep_blank", [False, True])
def test_values_are_those_of_the_library(monkeypatch: pytest.MonkeyPatch, *, keep_blank: bool) -> None:
    monkeypatch.setattr(bodies, "SLICE_BYTES", 7)
    for seed in range(5000):
        rng = random.Random(seed)  # noqa: S311  # repeatable on purpose
        raw = b"".join(rng.choices(PIECES, k=rng.randrange(30)))
        try:
            expected = dict(parse_qsl(raw.decode(), keep_blank_values=keep_blank, errors="strict"))
        except UnicodeDecodeError:
            with pytest.raises(errors.BadRequest):
                bodies.decode_urlencoded(raw, max_fields=1000, keep_blank=keep_blank)
        else:
            assert bodies.decode_urlencoded(raw, max_fields=1000, keep_blank=keep_blank) == expected, raw


@pytest.mark.parametrize("raw", [b"a=\xff", b"a=%ff", b"\xff=a", b"a=%C3", b"a=1&b=1&c=1&d=1"])
def test_malformed_form_and_too_many_fields_are_refused(raw: bytes) -> None:
    with pytest.raises(errors.BadRequest, match="Invalid form body"):
        bodies.decode_urlencoded(raw, max_fields=3)


def test_many_escape_sequences_take_little_memory() -> None:
    raw = b"a=" + b"%C3%A9" * 500_000
    tracemalloc.start()
    try:
        assert bodies.decode_urlencoded(raw, max_fields=3) == {"a": "é" * 500_000}
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The reader of the library took 37 times the size of the body.
    assert peak < 5 * len(raw)
