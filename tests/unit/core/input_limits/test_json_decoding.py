"""Decoding large JSON documents in pieces gives the same values without long calls."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest

from sixfold import errors
from sixfold.core.input_limits import json_decoding
from tests import gil_time, loop_time

MIB = 2**20
JUNK = [b"", b"[", b"]", b"{", b'"', b",", b"\xff", b"\\", b"e"]
whole = msgspec.json.Decoder().decode


def value(rng: random.Random, depth: int) -> Any:
    match rng.randrange(8 if depth else 5):
        case 0:
            return rng.choice([None, True, False, 0, -1, 2**70, 1e-310, 0.1, 1e300])
        case 1:
            return rng.choice(["", "é\u2028", '\\"{[,:', "😀" * 9, "a" * rng.randrange(2000)])
        case 2:
            return [rng.random() for _ in range(rng.randrange(100))]
        case 3:
            return {str(at): at for at in range(rng.randrange(30))}
        case 4:
            return rng.randrange(-(2**63), 2**63)
        case 5 | 6:
            return [value(rng, depth - 1) for _ in range(rng.randrange(12))]
        case _:
            return {f"k{at}": value(rng, depth - 1) for at in range(rng.randrange(12))}


def test_numbers_are_decoded_in_short_calls() -> None:
    raw = b"[" + b",".join([b"1e-300"] * (MIB // 7)) + b"]"
    aim_ms = 35.0
    assert gil_time.longest_call(lambda: json_decoding.decode(raw), aim_ms) < aim_ms


def test_values_equal_those_of_a_single_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_decoding, "PIECE_BYTES", 64)
    for seed in range(300):
        rng = random.Random(seed)  # noqa: S311  # repeatable on purpose
        document = value(rng, 5)
        raw = json.dumps(document, ensure_ascii=bool(seed % 2), indent=seed % 3 or None).encode()
        assert json_decoding.decode(raw) == whole(raw) == document, seed


def test_malformed_document_raises_the_error_of_a_single_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_decoding, "PIECE_BYTES", 16)
    good = json.dumps({"a": [1, {"b": "é\n" * 20}, [[1.5, 2]] * 10], "c": {"d": [None] * 40}}).encode()
    for seed in range(3000):
        rng = random.Random(seed)  # noqa: S311  # repeatable on purpose
        raw = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(raw))
            raw[at : at + rng.randrange(3)] = rng.choice(JUNK)
        try:
            expected = whole(bytes(raw))
        except (msgspec.MsgspecError, UnicodeError):
            with pytest.raises((msgspec.MsgspecError, UnicodeError)):
                json_decoding.decode(bytes(raw))
        else:
            assert json_decoding.decode(bytes(raw)) == expected


@pytest.mark.parametrize("text", ["1e400", "-1e309", "1e99999999999", "01", "1.", "NaN", "Infinity", "-"])
def test_number_that_is_malformed_or_out_of_range_is_refused(text: str) -> None:
    with pytest.raises(msgspec.MsgspecError):
        json_decoding.decode(text.encode())


@pytest.mark.parametrize("number", [b"1.2345678901234567e-300", b"1e-320", b"5e-324", b"1e300", b"1.5"])
def test_many_tiny_numbers_take_no_longer_than_others(number: bytes) -> None:
    raw = b"[" + b",".join([number] * 50_000) + b"]"
    assert json_decoding.decode(raw) == [float(number)] * 50_000
    # The decoder's own conversion took 0.35 s.
    assert loop_time.cpu_seconds(lambda: json_decoding.decode(raw), 0.15) < 0.15


def test_long_non_ascii_string_is_refused_and_ascii_is_not() -> None:
    for text in (b"A" * (9 * MIB), b"\\n" * MIB):
        assert len(json_decoding.decode(b'{"a":["' + text + b'"]}')["a"][0]) >= MIB
    for text in ("é".encode() * (5 * MIB), b"A" * (9 * MIB) + "😀".encode(), b"\\u00e9" * (2 * MIB)):
        with pytest.raises(errors.InputTooLarge, match="beyond ASCII may have at most 8,388,608 bytes"):
            json_decoding.decode(b'{"a":[{"b":"' + text + b'"}]}')


def test_large_value_that_is_nested_deep_is_refused() -> None:
    raw = b'"' + b"A" * (9 * MIB) + b'"'
    assert json_decoding.decode(b"[" * 15 + raw + b"]" * 15)
    with pytest.raises(errors.InputTooLarge, match="nested 16 levels deep may have at most 8,388,608 bytes"):
        json_decoding.decode(b"[" * 17 + raw + b"]" * 17)
