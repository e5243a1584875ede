"""Rename, duplicate and delete own workflows: over HTTP with versions, and by plain forms."""

from __future__ import annotations

import json
from typing import Any

from tests.api.app_fixture import AppFixture, bearer
from tests.api.test_pages import signed_in
from tests.api.test_workflow_pages import GRAPH

PATH = "/api/graph/spaces"


async def import_workflow(app: AppFixture, name: str = "mine") -> dict[str, Any]:
    body = {"workflow": GRAPH, "name": name}
    response = await app.client.post(PATH, json=body, headers=app.bearer)
    assert response.status_code == 201, response.text
    return response.json()


async def test_a_workflow_is_renamed_for_the_version_that_was_read(app: AppFixture) -> None:
    slug = (await import_workflow(app))["slug"]
    path = f"{PATH}/{slug}"
    etag = (await app.client.get(path, headers=app.bearer)).headers["etag"]
    first = app.bearer | {"If-Match": etag}
    renamed = await app.client.patch(path, json={"name": " Second  name "}, headers=first)
    assert (renamed.status_code, renamed.json()["name"], renamed.json()["slug"]) == (200, "Second name", slug)
    assert renamed.headers["etag"] != etag
    for change in (
        app.client.patch(path, json={"name": "third"}, headers=first),
        app.client.delete(path, headers=first),
    ):
        late = await change
        assert (late.status_code, late.json()["code"]) == (412, "precondition_failed")
    assert (await app.client.get(path, headers=app.bearer)).json()["name"] == "Second name"
    run = await app.client.post(f"{path}/run", json={"input": {}, "wait": 0}, headers=app.bearer)
    assert run.status_code == 202, "a renamed workflow still runs"
    newest = app.bearer | {"If-Match": renamed.headers["etag"]}
    assert (await app.client.delete(path, headers=newest)).status_code == 204
    assert (await app.client.get(path, headers=app.bearer)).status_code == 404


async def test_copies_belong_to_the_caller_and_keep_the_file(app: AppFixture) -> None:
    own = await import_workflow(app, "mine")
    content = (await app.client.get(own["downloadPath"], headers=app.bearer)).content
    for slug in (own["slug"], "stylized-text-to-image"):
        original = (await app.client.get(f"{PATH}/{slug}", headers=app.bearer)).json()
        copy = await app.client.post(f"{PATH}/{slug}/duplicate", headers=app.bearer)
        assert copy.status_code == 201, copy.text
        assert copy.json()["name"] == f"{original['name']} (copy)"
        assert copy.json()["apiInputs"] == original["apiInputs"]
        assert copy.json()["workflow"] == original["workflow"]
    copied = await app.client.get(f"{PATH}/mine-copy/download", headers=app.bearer)
    assert json.loads(copied.content) == json.loads(content)
    named = await app.client.post(f"{PATH}/mine/duplicate", json={"name": "Mine"}, headers=app.bearer)
    assert named.json()["slug"] == "mine-2"


async def test_built_in_and_foreign_workflows_cannot_be_changed(app: AppFixture) -> None:
    own = f"{PATH}/{(await import_workflow(app))['slug']}"
    built_in = f"{PATH}/stylized-text-to-image"
    other_account = bearer(app.other)
    changes = [
        (app.client.patch(built_in, json={"name": "x"}, headers=app.bearer), 403),
        (app.client.delete(built_in, headers=app.bearer), 403),
        (app.client.patch(own, json={"name": "x"}, headers=other_account), 404),
        (app.client.post(f"{own}/duplicate", headers=other_account), 404),
        (app.client.delete(own, headers=other_account), 404),
        (app.client.patch(own, json={"name": "x"}), 401),
        (app.client.patch(own, json={"name": " "}, headers=app.bearer), 400),
        (app.client.patch(own, json={"name": 5}, headers=app.bearer), 400),
        (app.client.delete(own, headers=app.bearer | {"If-Match": "3"}), 400),
    ]
    for change, status in changes:
        assert (await change).status_code == status
    assert (await app.client.get(own, headers=app.bearer)).json()["name"] == "mine"


async def test_forms_rename_copy_and_delete_without_scripts(app: AppFixture) -> None:
    slug = (await import_workflow(app, "mine"))["slug"]
    token = await signed_in(app)
    page = (await app.client.get(f"/workflows/{slug}")).text
    assert 'name="version" value="1"' in page
    form = {"csrf": token, "version": "1"}

    async def send(slug: str, change: str, **fields: str) -> tuple[int, str]:
        response = await app.client.post(f"/workflows/{slug}/{change}", data=form | fields)
        return response.status_code, response.headers.get("location", "")

    assert await send(slug, "rename", name="Better", csrf="no") == (403, "")
    assert await send(slug, "rename", name="Better") == (303, f"/workflows/{slug}")
    assert "<h1>Better</h1>" in (await app.client.get(f"/workflows/{slug}")).text
    assert (await send(slug, "delete"))[0] == 412, "the page shows an older version"
    assert await send(slug, "duplicate") == (303, "/workflows/better-copy")
    assert await send("stylized-text-to-image", "duplicate") == (
        303,
        "/workflows/stylized-text-to-image-copy",
    )
    assert await send(slug, "delete", version="2") == (303, "/workflows")
    assert (await app.client.get(f"/workflows/{slug}")).status_code == 404
