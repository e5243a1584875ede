"""`Accept` headers of every kind."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sixfold.web import requests

OFFERED = ("image/webp", "image/png", "image/jpeg")


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, "image/webp"),
        ("", "image/webp"),
        ("image/*;q=0.2, image/jpeg;q=0.1", "image/webp"),
        ("image/jpeg, image/png", "image/jpeg"),
        ("image/png;q=1.000, image/webp;q=0.999", "image/png"),
        ("image/png;q=high", None),
        ("*/*;q=0", None),
        ("text/html", None),
        ("IMAGE/PNG", "image/png"),
        ("image/png;level=1;q=0.4, image/webp;q=0.3", "image/png"),
        (",,, ;q=1", "image/webp"),
        ("image/png;q=7", "image/png"),
    ],
)
def test_preferred_offer_is_selected(header: str | None, expected: str | None) -> None:
    assert requests.preferred_type(header, OFFERED) == expected


@given(st.text(max_size=300))
def test_any_header_selects_an_offer_or_none(header: str) -> None:
    assert requests.preferred_type(header, OFFERED) in (*OFFERED, None)
