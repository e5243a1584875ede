"""An imported workflow: its owner, its verification and its model files."""

from __future__ import annotations

from tests.api.app_fixture import AppFixture, bearer

GRAPH = {
    "1": {"class_type": "PrimitiveString", "inputs": {"value": "mine"}},
    "2": {"class_type": "PreviewAny", "inputs": {"source": ["1", 0]}},
}


async def test_an_imported_workflow_is_unknown_to_others(app: AppFixture) -> None:
    document = {"workflow": GRAPH, "name": "Mine alone"}
    slug = (await app.client.post("/api/graph/spaces", json=document, headers=app.bearer)).json()["slug"]
    path = f"/api/graph/spaces/{slug}"
    for method, name in (
        ("GET", path),
        ("GET", f"{path}/download"),
        ("GET", f"{path}/graph.svg"),
        ("POST", f"{path}/run"),
        ("DELETE", path),
    ):
        response = await app.client.request(method, name, headers=bearer(app.other))
        assert response.status_code == 404, (method, name)
    assert (await app.client.get(path, headers=app.bearer)).status_code == 200


async def test_import_is_unverified_until_its_graph_is_validated(app: AppFixture) -> None:
    async def status(headers: dict[str, str]) -> str:
        space = (await app.client.get("/api/graph/spaces/echo", headers=headers)).json()
        return space["verification"]["status"]

    async def validate(graph: object) -> None:
        await app.client.post("/api/graph/validate", json={"workflow": graph}, headers=app.bearer)

    document = {"workflow": GRAPH, "name": "Echo"}
    for headers in (app.bearer, bearer(app.other)):
        imported = await app.client.post("/api/graph/spaces", json=document, headers=headers)
        assert imported.json()["verification"]["status"] == "unverified"
    for node in ({"class_type": "MadeUpNode", "inputs": {}}, GRAPH["1"]):
        await validate({**GRAPH, "9": node})
        assert await status(app.bearer) == "unverified"
    await validate(GRAPH)
    assert (await status(app.bearer), await status(bearer(app.other))) == ("api-validated", "unverified")


async def test_imported_model_files_have_sources(app: AppFixture) -> None:
    graph = (await app.client.get("/api/graph/spaces/lora-text-to-image/download")).json()
    (loader,) = [node for node in graph.values() if node["class_type"] == "CheckpointLoaderSimple"]
    url = "https://example.com/files/painter.safetensors?download=true"
    files = {}
    for name in (loader["inputs"]["ckpt_name"], url, "unknown.safetensors"):
        loader["inputs"]["ckpt_name"] = name
        space = (
            await app.client.post("/api/graph/spaces", json={"workflow": graph}, headers=app.bearer)
        ).json()
        assert all(model["sources"] for model in space["models"])
        files[name] = {model["file"]: (model["name"], model["sources"]) for model in space["models"]}
        check = await app.client.post("/api/graph/validate", json={"workflow": graph}, headers=app.bearer)
        assert name in {each["file"] for each in check.json()["missing_models"]}
    (built_in,) = [file for file in files if file not in (url, "unknown.safetensors")]
    assert files[built_in][built_in][1][0].startswith("https://huggingface.co/")
    assert files[url][url] == ("painter", [url])
    assert "unknown.safetensors" not in files["unknown.safetensors"]
