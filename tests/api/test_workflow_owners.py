"""An imported workflow belongs to one account."""

from __future__ import annotations

from tests.api.app_fixture import AppFixture, bearer


async def test_an_imported_workflow_is_unknown_to_others(app: AppFixture) -> None:
    graph = {
        "1": {"class_type": "PrimitiveString", "inputs": {"value": "mine"}},
        "2": {"class_type": "PreviewAny", "inputs": {"source": ["1", 0]}},
    }
    document = {"workflow": graph, "name": "Mine alone"}
    slug = (await app.client.post("/api/graph/spaces", json=document, headers=app.bearer)).json()["slug"]
    path = f"/api/graph/spaces/{slug}"
    for method, name in (
        ("GET", path),
        ("GET", f"{path}/download"),
        ("GET", f"{path}/graph.svg"),
        ("POST", f"{path}/run"),
        ("DELETE", path),
    ):
        answer = await app.client.request(method, name, headers=bearer(app.other))
        assert answer.status_code == 404, (method, name)
    assert (await app.client.get(path, headers=app.bearer)).status_code == 200
