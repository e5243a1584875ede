"""The pages of workflows: graph, form, imports, and access."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import sixfold
from sixfold.ui.catalog.pages import MAX_FIELDS
from tests.api.app_fixture import AppFixture
from tests.api.test_pages import signed_in
from tests.api.test_shares import share
from tests.harness.cases import nightly_after

SLUGS = sorted(path.stem for path in (Path(sixfold.__file__).parent / "data/workflows").glob("*.json"))
GRAPH = {
    "1": {"class_type": "PrimitiveString", "inputs": {"value": "Hello <b>you</b>"}},
    "2": {"class_type": "PreviewAny", "inputs": {"source": ["1", 0]}, "_meta": {"title": "Say it"}},
}


async def import_result(
    app: AppFixture, token: str, content: bytes, name: str = "mine"
) -> tuple[int, dict[str, str]]:
    headers = {"X-CSRF-Token": token, "Content-Type": "application/json"}
    response = await app.client.post(
        "/pages/workflows", params={"name": name}, content=content, headers=headers
    )
    return response.status_code, response.json()


@pytest.mark.parametrize("slug", nightly_after(8, SLUGS))
async def test_workflow_page_draws_every_node_without_inline_style(app: AppFixture, slug: str) -> None:
    space = app.server.workflows.spaces[slug]
    page = await app.client.get(f"/workflows/{slug}")
    assert page.status_code == 200
    assert set(re.findall(r'data-node="([^"]+)"', page.text)) == set(space.graph)
    assert "<style" not in page.text
    assert " style=" not in page.text
    for each in space.inputs or ():
        assert f'id="in-{each.name}"' in page.text
        assert f'data-input="{each.name}" data-at="{each.node_id}"' in page.text
    for model in space.models:
        assert f'<a href="{model["sources"][0]}" rel="noreferrer">' in page.text


async def test_import_form_works_without_scripts(app: AppFixture) -> None:
    token = await signed_in(app)
    path, content = "/pages/workflow-import", json.dumps(GRAPH).encode()
    files = {"file": ("My graph.json", content, "application/json")}
    response = await app.client.post(path, data={"csrf": token}, files=files)
    assert (response.status_code, response.headers["location"]) == (303, "/workflows/my-graph")
    assert (await app.client.post(path, data={"csrf": "x"}, files=files)).status_code == 403
    for wrong in ({"file": ("", b"")}, {"file": ("a.json", b"{")}):
        assert (await app.client.post(path, data={"csrf": token}, files=wrong)).status_code == 400


async def test_workflow_is_imported_shown_exported_and_private(app: AppFixture) -> None:
    token = await signed_in(app)
    content = json.dumps(GRAPH).encode()
    status, response = await import_result(app, token, content, "My graph")
    assert (status, response["path"]) == (201, "/workflows/my-graph")
    page = (await app.client.get(response["path"])).text
    assert "Say it" in page
    # The number of nodes is stated once, and the own workflow was not checked by anybody else.
    assert page.count("2 nodes") == 1
    assert "<span>Not checked</span>" not in page
    assert "<b>you</b>" not in page
    assert "Your workflows" in (await app.client.get("/workflows")).text
    download = await app.client.get("/workflows/my-graph/download")
    assert (download.content, download.headers["cache-control"]) == (content, "private, no-cache")
    image = await app.client.get("/workflows/my-graph/graph.svg")
    assert image.headers["cache-control"] == "private, no-cache"
    assert "sandbox" in image.headers["Content-Security-Policy"]
    link = (await share(app, "workflow", "my-graph"))["url"]
    shared = await app.visitor().get(f"{link}/files/workflow")
    assert (shared.content, shared.headers["cache-control"]) == (content, "private, no-cache")
    async with app.visitor() as operator:
        assert (await operator.get("/workflows/my-graph")).status_code == 404
        assert "my-graph" not in (await operator.get("/workflows")).text


async def test_file_that_is_no_workflow_is_rejected(app: AppFixture) -> None:
    token = await signed_in(app)
    for content in (b"{}", b"words", b"\x89PNG\r\n\x1a\n"):
        status, response = await import_result(app, token, content)
        assert status == 400
        assert response["error"].endswith(("nodes that run", "workflow", "workflow.", "editor saves"))
    assert (await import_result(app, "wrong", b"{}"))[0] == 403


async def test_dropped_graph_has_the_kind_graph(app: AppFixture) -> None:
    token = await signed_in(app)
    headers = {"X-CSRF-Token": token, "Content-Type": "application/json"}
    response = await app.client.post("/pages/origin", content=json.dumps(GRAPH), headers=headers)
    assert response.json() == {"kind": "graph"}


async def test_page_of_a_large_workflow_has_a_bounded_form(app: AppFixture) -> None:
    token = await signed_in(app)
    inputs = {"width": 64, "height": 64, "batch_size": 1, "color": 0}
    graph = {str(number): {"class_type": "EmptyImage", "inputs": inputs} for number in range(300)}
    status, response = await import_result(app, token, json.dumps(graph).encode(), "large")
    assert status == 201
    page = (await app.client.get(response["path"])).text
    assert len(re.findall(r'data-input="', page)) == MAX_FIELDS
    assert len(re.findall(r'id="in-[^"]+"', page)) <= MAX_FIELDS
    assert re.search(r"\d+ further inputs are not shown", page)
