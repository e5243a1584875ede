"""Signatures of AWS, compared with the published ones, and its binary event streams."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sixfold.clients.chat import aws_signing
from sixfold.clients.chat.aws_events import AwsEventSplitter
from sixfold.clients.chat.aws_signing import AwsKeys, SigningScope
from tests.fakes.bedrock import message

KEYS = AwsKeys("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
TIME = datetime(2015, 8, 30, 12, 36, tzinfo=UTC)
SUITE, IAM = (
    "https://example.amazonaws.com/",
    "https://iam.amazonaws.com/?Action=ListUsers&Version=2010-05-08",
)
FORM = "application/x-www-form-urlencoded"
# From AWS's test suite for Signature Version 4, by the name of the case, and from the guide of IAM.
PUBLISHED = {
    "get-vanilla": (
        ("GET", SUITE, b""),
        {},
        "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
    ),
    "post-vanilla": (
        ("POST", SUITE, b""),
        {},
        "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
    ),
    "get-vanilla-query-order-key-case": (
        ("GET", f"{SUITE}?Param2=value2&Param1=value1", b""),
        {},
        "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
    ),
    "post-x-www-form-urlencoded": (
        ("POST", SUITE, b"Param1=value1"),
        {"Content-Type": FORM},
        "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
    ),
    "iam": (
        ("GET", IAM, b""),
        {"Content-Type": f"{FORM}; charset=utf-8"},
        "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7",
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_signature_equals_the_published_one(name: str) -> None:
    request, headers, expected = PUBLISHED[name]
    scope = SigningScope("iam" if name == "iam" else "service", "us-east-1")
    sent = aws_signing.sign(KEYS, scope, TIME, request, headers)
    assert sent["Authorization"].endswith(f"Signature={expected}")
    assert sent["X-Amz-Date"] == "20150830T123600Z"


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("AKID:secret/+=", AwsKeys("AKID", "secret/+=")),
        ("AKID:secret:token", AwsKeys("AKID", "secret", "token")),
        ("ABSKQmVkcm9jaw==", None),
        (":secret", None),
        ("AKID:", None),
    ],
)
def test_access_keys_and_api_keys_are_distinguished(text: str, keys: AwsKeys | None) -> None:
    assert aws_signing.parse_keys(text) == keys


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_events_are_split_independently_of_chunks(size: int) -> None:
    data = message("a", {"n": 1}) + message("b", {"n": 2}) + message("c", {"n": 3}, "exception")
    splitter = AwsEventSplitter()
    events = [event for at in range(0, len(data), size) for event in splitter.feed(data[at : at + size])]
    assert [(each.kind, each.payload, each.failed) for each in events] == [
        ("a", b'{"n": 1}', False),
        ("b", b'{"n": 2}', False),
        ("c", b'{"n": 3}', True),
    ]


@pytest.mark.parametrize("at", [0, 5, 9, 20, -1])
def test_a_damaged_stream_is_refused(at: int) -> None:
    data = bytearray(message("a", {"n": 1}))
    data[at] ^= 0xFF
    with pytest.raises(ValueError, match="event stream"):
        AwsEventSplitter().feed(bytes(data) * 2)
