"""Node classes are imported off the event loop, on the first request that needs them."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sixfold.app import catalog as app_catalog
from tests.api.app_fixture import running_app
from tests.api.test_graph_limits import flat

RUN = "/api/graph/spaces/photoreal-text-to-image/run"
FIRST = {
    "/api/graph/validate": ("POST", {"workflow": flat(2)}),
    "/api/graph/diff": ("POST", {"a": flat(2), "b": flat(2)}),
    "/api/graph/spaces": ("POST", {"workflow": flat(2)}),
    RUN: ("POST", {"input": {"prompt": "a hut"}, "wait": 0}),
    "/api/graph/spaces/photoreal-text-to-image/graph.svg": ("GET", None),
    "/prompt": ("POST", {"prompt": flat(2)}),
    "/object_info": ("GET", None),
    "/workflows": ("GET", None),
    "/workflows/photoreal-text-to-image": ("GET", None),
}


@pytest.mark.parametrize("path", FIRST)
async def test_the_first_request_reads_the_classes_in_another_thread(
    tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers: list[threading.Thread] = []
    method, body = FIRST[path]
    async with running_app(tmp_path, app_catalog.models_document(), workers=0) as app:
        workflows: Any = app.server.workflows
        registry = workflows.registry

        def read() -> Any:
            readers.append(threading.current_thread())
            return registry

        monkeypatch.setattr(workflows, "_runtime", replace(workflows._runtime, registry=read))
        response = await app.client.request(method, path, json=body, headers=app.bearer)
        assert response.status_code in (200, 201, 202, 503), response.text[:300]
    assert readers
    assert readers[0] is not threading.main_thread()
