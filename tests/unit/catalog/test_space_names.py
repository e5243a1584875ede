"""Space references: owner and name, or any URL of it that a browser shows."""

from __future__ import annotations

import pytest

from sixfold import errors
from sixfold.core.catalog import gradio_spaces


@pytest.mark.parametrize(
    "text",
    [
        "acme/paint",
        "https://hub.example/acme/paint",
        "https://hub.example/spaces/acme/paint/",
        "https://hub.example/spaces/acme/paint/tree/main?x=1",
        "https://hub.example/spaces/acme/paint/blob/main/app.py",
    ],
)
def test_every_url_of_a_space_is_parsed_to_its_name(text: str) -> None:
    assert str(gradio_spaces.parse(text)) == "acme/paint"


def test_owner_can_be_named_spaces() -> None:
    assert str(gradio_spaces.parse("https://hub.example/spaces/spaces/paint")) == "spaces/paint"
    assert str(gradio_spaces.parse("https://hub.example/spaces/paint")) == "spaces/paint"


def test_long_url_is_refused_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(gradio_spaces, "urlsplit")
    with pytest.raises(errors.BadRequest, match=r"space must be at most 2048 characters \(got 8008\)"):
        gradio_spaces.parse("http://a" + "\u0316\u0301" * 4_000)
