"""Backend selection of the smart video model."""

from __future__ import annotations

from typing import Any

import pytest

from sixfold.app import catalog as app_catalog
from sixfold.core.predictions import video_backends

PICTURE = {"image_url": "https://example.com/a.png"}
CHOICES: list[tuple[dict[str, Any], int, str]] = [
    ({"prompt": "pan left", **PICTURE}, 0, "video-a"),
    ({"prompt": "pan left", **PICTURE}, video_backends.BUSY, "video-b"),
    ({"prompt": "a fox in the snow"}, 0, "video-c"),
    ({"prompt": "a fox in the snow"}, video_backends.BUSY, "video-c"),
    ({"prompt": "a choir that sings"}, 0, "video-text"),
    ({"prompt": "with the sound of waves", **PICTURE}, 0, "video-image"),
    ({"prompt": "Rolling THUNDER", **PICTURE}, video_backends.BUSY, "video-image"),
]


@pytest.mark.parametrize(("values", "queue_length", "service"), CHOICES)
def test_backend_depends_on_prompt_image_and_load(
    values: dict[str, Any], queue_length: int, service: str
) -> None:
    assert video_backends.choose(values, queue_length)[0] == service


def test_video_is_smaller_under_load() -> None:
    for values in ({"prompt": "a fox"}, {"prompt": "a choir singing"}):
        assert video_backends.choose(values, 0)[1] == {}
        assert video_backends.choose(values, video_backends.BUSY)[1] == {"resolution": "720p"}


def test_each_choice_is_a_backend_with_the_chosen_inputs() -> None:
    models = app_catalog.models_document()["models"]
    for values, queue_length, _ in CHOICES:
        service, expected = video_backends.choose(values, queue_length)
        assert service in models["ra2v"]["backends"]
        assert set(expected) <= set(models[service]["inputs"])
