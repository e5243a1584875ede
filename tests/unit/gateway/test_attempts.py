"""When a failed server may be called again."""

from __future__ import annotations

import time
from email.utils import formatdate

import pytest

from sixfold.core.gateway.attempts import parse_retry_after


@pytest.mark.parametrize(
    ("message", "seconds"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        ("-3", 0.0),
        ("", None),
        ("soon", None),
        ("inf", None),
        ("nan", None),
        ("1e300", None),
    ],
)
def test_a_number_is_believed_where_it_can_be(message: str, seconds: float | None) -> None:
    assert parse_retry_after(message) == seconds


def test_a_date_is_as_far_off_as_it_is() -> None:
    response = parse_retry_after(formatdate(time.time() + 3600, usegmt=True))
    assert response is not None
    assert 3000 < response <= 3600
    assert parse_retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0
    assert parse_retry_after("Wed, 21 Oct 2199 07:28:00 GMT") is None
