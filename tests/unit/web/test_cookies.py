"""Cookies of requests: which value is read, and that a long header takes a short time."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.requests import Request

import sixfold
from sixfold.web import requests
from tests import loop_time


def request(*headers: str) -> Request:
    return Request({"type": "http", "headers": [(b"cookie", header.encode()) for header in headers]})


@pytest.mark.parametrize(
    ("headers", "value"),
    [
        ((), ""),
        (("a=1; b=2",), "2"),
        (("b=2;b=3", " b = 4 ;c=5"), "4"),
        (("b",), ""),
        (("ab=1; b=",), ""),
        (("b=a=c==",), "a=c=="),
        (('b="a\\"b"',), '"a\\"b"'),
    ],
)
def test_last_value_of_a_cookie_is_returned(headers: tuple[str, ...], value: str) -> None:
    assert requests.cookie(request(*headers), "b") == value


@pytest.mark.parametrize("text", ['b="' + "\\" * 60_000 + '"', 'b="' + "\\1" * 30_000 + '"', ";" * 60_000])
def test_longest_header_of_cookies_is_read_in_a_short_time(text: str) -> None:
    assert loop_time.cpu_seconds(lambda: requests.cookie(request(text), "b"), 0.05) < 0.05


def test_cookies_are_not_read_with_the_quadratic_parser() -> None:
    root = Path(sixfold.__file__).parent
    users = [path.name for path in root.rglob("*.py") if "request.cookies" in path.read_text("utf-8")]
    assert users == []
