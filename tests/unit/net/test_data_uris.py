from __future__ import annotations

import base64
import tracemalloc
from urllib.parse import quote, unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sixfold.core.provenance import redaction
from sixfold.errors import FetchFailed, TooLarge
from sixfold.net.data_uris import InlineData, is_data_uri, parse_data_uri
from tests import gil_time, loop_time


@pytest.mark.parametrize(
    ("text", "body", "content_type"),
    [
        ("data:image/png;base64,aGk=", b"hi", "image/png"),
        ("DATA:Image/PNG;BASE64,aGk", b"hi", "image/png"),
        ("data:image/svg+xml;charset=utf-8;base64,aGk=", b"hi", "image/svg+xml"),
        ("data:image/png;base64,aGk%3D", b"hi", "image/png"),
        ("data:image/png;base64, aG\nk= ", b"hi", "image/png"),
        ("data:,Hello%2C%20World!", b"Hello, World!", "text/plain"),
        ("data:;base64,aGk=", b"hi", "text/plain"),
        ("data:text/plain;charset=utf-8,%C3%BC,ü", "ü,ü".encode(), "text/plain"),
        ("data:image/png;base64,", b"", "image/png"),
    ],
)
def test_data_uri_is_decoded_to_bytes_and_type(text: str, body: bytes, content_type: str) -> None:
    assert is_data_uri(text)
    assert parse_data_uri(text, 100) == InlineData(body, content_type)


@pytest.mark.parametrize(
    "text",
    [
        "data:",
        "data:image/png;base64",
        "http://example.com/,",
        "data:image;base64,aGk=",
        "data:image/png/x,aGk=",
        "data:image/png\r\nX: y,aGk=",
        "data:image/png;base64,a",
        "data:image/png;base64,a*b=",
        "data:image/png;base64,aGk=aGk=",
        "data:image/png;base64,日本",
        "data:text/plain,\ud800",
        "data:image/png;base64,%ud800\ud800",
        "data:" + "x" * 5000 + ",a",
    ],
)
def test_invalid_data_uri_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(FetchFailed, match="is not valid"):
        parse_data_uri(text, 100)


@given(st.binary(max_size=300), st.booleans(), st.integers(0, 300))
def test_content_is_decoded_up_to_the_limit(body: bytes, packed: bool, cap: int) -> None:
    content = ";base64," + base64.b64encode(body).decode() if packed else "," + quote(body)
    text = "data:image/png" + content
    if len(body) <= cap:
        assert parse_data_uri(text, cap).body == body
    else:
        with pytest.raises(TooLarge, match=f"larger than {cap} bytes"):
            parse_data_uri(text, cap)


@pytest.mark.parametrize(
    "content", [";base64," + "A" * (32 << 20), "," + "%41" * (10 << 20), ";a" * (8 << 20)]
)
def test_large_data_uri_is_refused_without_decoding(content: str) -> None:
    text = "data:image/png" + content

    def expect_refusal() -> None:
        with pytest.raises((TooLarge, FetchFailed)):
            parse_data_uri(text, 1 << 20)

    assert loop_time.cpu_seconds(expect_refusal, 1.0) < 1.0


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 100, 3 * 2**18 - 1, 3 * 2**18, 3 * 2**18 + 1, 2**21 + 5])
def test_long_base64_is_decoded_in_pieces(size: int) -> None:
    content = bytes(number * 7 % 256 for number in range(size))
    encoded = base64.b64encode(content).decode()
    lines = "\r\n".join(encoded[at : at + 76] for at in range(0, len(encoded), 76))
    for text in (encoded, encoded.rstrip("="), lines, f"{encoded} \n{' ' * 900}"):
        assert parse_data_uri(f"data:image/png;base64,{text}", size).body == content
        if size:
            with pytest.raises(TooLarge):
                parse_data_uri(f"data:image/png;base64,{text}", size - 1)


@pytest.mark.parametrize("text", ["QQ==QUJD", "A" * 2**20 + "QQ==" + "A" * 2**20, "A" * 2**20 + "é", "A"])
def test_inner_padding_and_foreign_characters_are_refused(text: str) -> None:
    with pytest.raises(FetchFailed, match="its content is not base64"):
        parse_data_uri(f"data:image/png;base64,{text}", 2**22)


def test_a_long_uri_does_not_hold_the_interpreter_lock() -> None:
    text = f"data:video/mp4;base64,{'A' * (64 * 2**20)}"
    assert gil_time.longest_call(lambda: parse_data_uri(text, 2**26), 20) < 85


@pytest.mark.parametrize("head", ["data:text/plain,", "data:text/plain;base64,"])
def test_escapes_of_a_long_data_uri_take_bounded_memory(head: str) -> None:
    """One call of `unquote_to_bytes` took 80 times the size of the text, and 2.5 GB for 32 MiB."""
    text = head + "%41" * 2**20
    tracemalloc.start()
    try:
        parse_data_uri(text, 2**22)
        redaction.clean({"image": text})
        assert tracemalloc.get_traced_memory()[1] < 32 * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("shift", range(4))
@pytest.mark.parametrize("escape", ["%C3%BC", "%%41", "%4", "%"])
def test_escapes_are_decoded_as_a_whole_in_every_position(escape: str, shift: int) -> None:
    content = "x" * (2**16 - shift) + escape * 100_000
    expected = unquote_to_bytes(content)
    assert parse_data_uri(f"data:,{content}", 10**6).body == expected
    assert redaction.clean({"image": f"data:,{content}"})["image"] == redaction.digest(expected, "text/plain")
