"""Inputs of a request are redacted for the manifest outside the event loop, if they are large."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from sixfold.core.concurrency.single_thread import LOOP_BYTES
from sixfold.core.provenance import redaction
from tests.api.app_fixture import running_app
from tests.harness import image_files
from tests.harness.backends import FILES


async def test_large_inputs_are_redacted_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `data:` URI of 31 MB held the event loop for 3 s."""
    threads: list[str] = []
    clean = redaction.clean

    def recorded(inputs: Any) -> dict[str, Any]:
        threads.append(threading.current_thread().name)
        return clean(inputs)

    monkeypatch.setattr(redaction, "clean", recorded)
    loop = threading.current_thread().name
    small = image_files.data_uri(image_files.encode(Image.new("RGB", (8, 8))))
    large = small + "%20" * (LOOP_BYTES // 3 + 1)
    async with running_app(tmp_path, probe=False, **FILES) as app:
        for image, is_in_loop in ((small, True), (large, False)):
            body = {"model": "bg-remover", "input": {"image": image}, "wait": 0}
            answer = await app.client.post(
                "/api/containers/run", json=body, headers={"Authorization": f"Bearer {app.key}"}
            )
            assert answer.status_code == 202, answer.text
            assert answer.json()["input"]["image"].keys() == {"blake3", "bytes", "media_type"}
            assert (threads.pop() == loop) is is_in_loop


@pytest.mark.parametrize(
    ("value", "size"),
    [({"a": "x" * 30}, 46), ({"a": ["x" * 10, 5, None]}, 74), ({"a": {"b": ["x" * 2_000]}}, 1_000)],
)
def test_size_of_inputs_is_counted_up_to_a_limit(value: Any, size: int) -> None:
    assert min(redaction.minimum_size(value, 1_000), 1_000) == size
