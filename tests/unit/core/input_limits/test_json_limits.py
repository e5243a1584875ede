"""Limits on the values of JSON documents at, below and above them."""

from __future__ import annotations

import base64
import json
import random
import tracemalloc

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sixfold import errors
from sixfold.core.input_limits import json_decoding, json_limits
from sixfold.core.input_limits.json_limits import JsonLimits

MIB = 2**20
SMALL = JsonLimits(containers=10, members=20, values=30)
JSON = st.recursive(
    st.none() | st.integers() | st.text(alphabet='{}[],:"\\a\n', max_size=12),
    lambda inner: (
        st.lists(inner, max_size=8) | st.dictionaries(st.text('{[,:"\\', max_size=4), inner, max_size=8)
    ),
    max_leaves=60,
)


def accepts(limits: JsonLimits, raw: bytes) -> bool:
    try:
        limits.check(raw)
    except errors.InputTooLarge:
        return False
    return True


def sizes(value: object) -> tuple[int, int, int]:
    """Return the numbers of containers, members, and values inside containers."""
    if isinstance(value, dict):
        results = [sizes(each) for each in value.values()]
        own = (1, len(value), len(value))
    elif isinstance(value, list):
        results = [sizes(each) for each in value]
        own = (1, 0, len(value))
    else:
        return (0, 0, 0)
    columns = zip(own, *results, strict=True)
    containers, members, values = (sum(column) for column in columns)
    return containers, members, values


@given(JSON)
def test_check_any_document_never_accepts_more_than_the_limits(value: object) -> None:
    containers, members, values = sizes(value)
    for raw in (json.dumps(value).encode(), json.dumps(value, ensure_ascii=False, indent=1).encode()):
        if accepts(SMALL, raw):
            assert containers <= SMALL.containers
            assert members <= SMALL.members
            assert values <= SMALL.values
        else:
            assert containers > 10 or members > 20 or values + containers > 30


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (b"[" + b"{}," * 50_000 + b"{}]", "at most 50,000 arrays and objects"),
        (b"[" + b"[]," * 50_000 + b"[]]", "at most 50,000 arrays and objects"),
        (b"[" * 60_000, "at most 50,000 arrays and objects"),
        (b"[" + b"1," * 500_001 + b"1]", "at most 500,000 values"),
        (b"{" + b'"a" : 1,' * 100_001 + b'"a":1}', "at most 100,000 members of objects"),
        (
            b'{"s":"' + b"," * 500_001 + b'","a":[' + b"{}," * 50_001 + b"{}]}",
            "at most 50,000 arrays and objects",
        ),
        (b'{"s":"' + b"," * 500_001 + b'"' * 9_000_000, "at most 600,000 strings"),
    ],
)
def test_check_too_many_items_names_the_limit(raw: bytes, sentence: str) -> None:
    with pytest.raises(errors.InputTooLarge, match=sentence) as excinfo:
        json_limits.DEFAULT.check(raw)
    assert excinfo.value.status == 400


@pytest.mark.parametrize(
    "tail", [b"", b"\\\\", b'\\"', b"\\\\\\\\" * 200_000, b"\\\\" * 131_071, b"x" * 262_143]
)
def test_check_punctuation_in_strings_is_not_counted(tail: bytes) -> None:
    text = b'{"text":"' + b"{[,:" * 600_000 + tail + b'","more":["' + tail + b'"]}'
    assert isinstance(json.loads(text), dict)
    json_limits.DEFAULT.check(text)
    over = text[:-1] + b',"items":[' + b"0," * 500_001 + b"0]}"
    with pytest.raises(errors.InputTooLarge, match="500,000 values"):
        json_limits.DEFAULT.check(over)


def test_check_requests_of_real_clients_are_accepted() -> None:
    rng = random.Random(7)  # noqa: S311 - any fixed data
    image = base64.b64encode(rng.randbytes(8 * MIB)).decode()
    message = {
        "role": "user",
        "content": [{"type": "text", "text": "Yes, but: why?"}, {"type": "text", "text": "{"}],
    }
    bodies = [
        {"model": "m", "input": [f"text {number}, and more" for number in range(2048)]},
        {"model": "m", "input": [rng.randrange(100_000) for _ in range(300_000)]},
        {"model": "m", "messages": [message] * 5000},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": image}}]}]},
        {"series": [{"t": f"2026-01-01T00:00:{number}", "y": number / 7} for number in range(20_000)]},
    ]
    for body in bodies:
        json_limits.DEFAULT.check(json.dumps(body).encode())


def test_check_of_a_large_document_allocates_under_1_5_mb() -> None:
    raw = b'{"text":"' + b'a, \\"b\\": {c} ' * MIB + b'"}'
    tracemalloc.start()
    try:
        json_limits.DEFAULT.check(raw)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.5 * MIB


@pytest.mark.parametrize("value", [b"1", b"{}", b"[]", b'{"a":1}', b'"a:{"', b"[[1],{}]"])
def test_one_object_has_a_limited_number_of_members(value: bytes) -> None:
    def document(members: int) -> bytes:
        inner = b",".join(b'"%d":%b' % (number, value) for number in range(members))
        return b'{"a":{"b":1},"c":[{},{%b},{"d":2}]}' % inner

    assert accepts(json_limits.RESPONSE, document(100_000))
    with pytest.raises(errors.InputTooLarge, match="100,000 members in one object"):
        json_limits.RESPONSE.check(document(100_001))


def test_many_objects_may_have_many_members_in_total() -> None:
    row = b'{"a":":{","b":[],"c":{"d":1}}'
    assert accepts(json_limits.RESPONSE, b"[%b]" % b",".join([row] * 120_000))


@pytest.mark.parametrize("padding", [0, 600_000], ids=["small", "in several slices"])
def test_levels_of_arrays_and_objects_are_limited(padding: int) -> None:
    half, strings = json_limits.MAX_LEVELS // 2, '"[\\"{",' * 300 + f'"{"x" * padding}",'
    allowed = "[" + strings + '[{"a":' * (half - 1) + "[]" + "}]" * (half - 1) + "]"
    assert json_decoding.decode(allowed.encode())
    for deep in ('[{"a":' * half + "[]" + "}]" * half, "[" * 970 + "]" * 970):
        raw = f"[{strings}{deep}]".encode()
        with pytest.raises(errors.InputTooLarge, match="at most 200 levels of nested arrays and objects"):
            json_decoding.decode(raw)


def test_unbalanced_brackets_are_left_to_the_decoder() -> None:
    for raw in (b"]" * 500 + b"[" * 500, b'["' + b"[" * 500, b"[" * 150):
        with pytest.raises(msgspec.DecodeError):
            json_decoding.decode(raw)
