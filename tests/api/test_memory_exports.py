"""Imports from Notion, Logseq and HTML exporters, and an export that Logseq opens."""

from __future__ import annotations

import asyncio
import io
import tracemalloc
import zipfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from sixfold.core.account_data import export as account_export
from sixfold.core.memory.import_export import archive_stream
from sixfold.core.memory.models import Caller
from sixfold.core.memory.service import MemoryService
from sixfold.web import refusals
from tests.api.app_fixture import AppFixture, bearer, running_app
from tests.harness import backends
from tests.harness.waiting import wait_until

ID, OTHER, THIRD = "0123456789abcdef" * 2, "fedcba9876543210" * 2, "00112233445566778899aabbccddeeff"
NOTION = {
    f"Team {ID}.md": "# Team\n\nTags: hiring, 2026\nStatus: Done\n\n"
    f"See [Ann](Team%20{ID}/Ann%20L%C3%A9e%20{OTHER}.md).\n",
    f"Team {ID}/Ann L\u00e9e {OTHER}.md": f"# Ann L\u00e9e\n\nBack to [Team](../Team%20{ID}.md).\n",
    f"Team {ID}/Tasks {THIRD}.csv": "Name,Done\nx,Yes\n",
    f"Team {ID}/photo.png": "no",
    f"Team {ID}/Notes {THIRD}.txt": "The rotor is blue.",
}
HTML = {
    "site/index.html": "<title>Home</title><p>See <a href='sub/ann.html'>Ann</a> and"
    " <a href='https://example.com/x.html'>more</a>.</p>",
    "site/sub/ann.html": "<title>Ann</title><p>Ann builds rotors. <a href='../index.html'>Home</a></p>",
    "site/style.css": "p {}",
}


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AppFixture]:
    backends.database_url(tmp_path, request.param)
    async with running_app(tmp_path) as result:
        yield result


def zip_of(files: Mapping[str, str]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return packed.getvalue()


async def import_files(app: AppFixture, files: Mapping[str, str]) -> dict[str, Any]:
    headers = app.bearer | {"Content-Type": "application/zip"}
    response = await app.client.post("/api/documents?name=export.zip", content=zip_of(files), headers=headers)
    assert response.status_code == 200, response.text
    return response.json()


async def page(app: AppFixture, slug: str) -> dict[str, Any]:
    return (await app.client.get(f"/api/pages/{slug}", headers=app.bearer)).json()


async def export(app: AppFixture, query: str = "") -> dict[str, str]:
    response = await app.client.get(f"/api/export{query}", headers=app.bearer)
    assert response.status_code == 200, response.text
    with zipfile.ZipFile(io.BytesIO(response.content)) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


async def test_a_notion_export_has_links_tags_and_no_ids(app: AppFixture) -> None:
    report = await import_files(app, NOTION)
    assert (report["errors"], report["left_out"]) == (
        [],
        [f"Team {ID}/Tasks {THIRD}.csv", f"Team {ID}/photo.png"],
    )
    team = await page(app, "team")
    assert (team["title"], team["tags"]) == ("Team", ["hiring", "2026"])
    assert [(row["to"], row["resolved"]) for row in team["links"]] == [("team/ann-l\u00e9e", True)]
    ann = await page(app, "team/ann-l\u00e9e")
    assert [(row["to"], row["resolved"]) for row in ann["links"]] == [("team", True)]
    assert "The rotor is blue." in (await page(app, "team/notes.txt"))["body"]
    back = await export(app)
    assert all(back[name] == text for name, text in NOTION.items() if name.endswith(".md"))
    second_report = await import_files(app, NOTION)
    assert (second_report["created"], second_report["updated"]) == (0, 0)


async def test_links_between_html_files_are_resolved(app: AppFixture) -> None:
    report = await import_files(app, HTML)
    assert (report["created"], report["left_out"]) == (2, ["site/style.css"])
    home = await page(app, "site/index.html")
    assert [(row["to"], row["resolved"]) for row in home["links"]] == [("site/sub/ann.html", True)]
    assert "example.com" not in home["body"]
    assert [row["to"] for row in (await page(app, "site/sub/ann.html"))["links"]] == ["site/index.html"]


async def test_logseq_export_has_its_folders_and_can_be_imported(app: AppFixture) -> None:
    bodies = {
        "people/ann": "---\ntitle: Ann Lee\n---\n- knows [[people/ben]]\n",
        "people/ben": "- a builder\n",
        "journals/2026-11-20": "- met [[people/ann]]\n",
    }
    for slug, body in bodies.items():
        await app.client.put(f"/api/pages/{slug}", json={"body": body}, headers=app.bearer)
    files = await export(app, "?format=logseq")
    assert sorted(files) == [
        "journals/2026_11_20.md", "logseq/config.edn", "pages/people___ann.md", "pages/people___ben.md",
    ]  # fmt: skip
    assert "people/ann" in files["pages/people___ann.md"].partition("---\n- knows")[0]
    headers = bearer(app.other) | {"Content-Type": "application/zip"}
    answer = await app.client.post("/api/import", content=zip_of(files), headers=headers)
    assert (answer.json()["created"], answer.json()["left_out"]) == (3, ["logseq/config.edn"])
    response = await app.client.get("/api/pages", headers=bearer(app.other))
    assert {row["slug"] for row in response.json()["pages"]} == bodies.keys()
    wrong = await app.client.get("/api/export?format=word", headers=app.bearer)
    assert wrong.status_code == 400


async def test_an_account_has_two_exports_in_progress(
    app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = asyncio.Event()

    async def waiting(*_: Any, **__: Any) -> AsyncIterator[bytes]:
        await release.wait()
        yield b"PK"

    monkeypatch.setattr(MemoryService, "export_archive", waiting)
    monkeypatch.setattr(account_export, "export_account", waiting)
    before = refusals.recorder().totals["exports"]
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(app.client.get(path, headers=app.bearer))
            for path in ("/api/export", "/api/account/export", "/api/export", "/api/account/export")
        ]
        await wait_until(lambda: refusals.recorder().totals["exports"] == before + 2)
        other = group.create_task(app.client.get("/api/export", headers=bearer(app.other)))
        await asyncio.sleep(0)
        release.set()
    assert sorted(task.result().status_code for task in tasks) == [200, 200, 429, 429]
    refused = next(task.result() for task in tasks if task.result().status_code == 429)
    assert refused.json()["code"] == "too_many_exports"
    assert int(refused.headers["Retry-After"]) >= 1
    assert other.result().status_code == 200
    assert (await app.client.get("/api/export", headers=app.bearer)).status_code == 200


async def test_exports_that_wait_for_their_clients_hold_no_pages(app: AppFixture) -> None:
    body = "---\nnote: " + "\U0001f600" * 50_000 + "\n---\n" + "text\n" * 1000
    for number in range(20):
        page = {"slug": f"p{number}", "body": body}
        assert (await app.client.post("/api/pages", json=page, headers=app.bearer)).status_code == 201
    caller = Caller(app.account.id, "")
    exports = [archive_stream.export_archive(app.database, caller) for _ in range(8)]
    tracemalloc.start()
    try:
        await asyncio.gather(*(anext(each) for each in exports))
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The 20 pages take 4 MB.
    assert held < 8_000_000
    assert peak < 20_000_000
    for each in exports:
        assert b"p19.md" in b"".join([piece async for piece in each])
