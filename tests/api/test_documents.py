"""Documents over HTTP: page numbers in search results, and new versions that replace old ones."""

from __future__ import annotations

import base64
import binascii
import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from sixfold.core import documents
from sixfold.core.accounts.keys import KeyLimits
from sixfold.core.memory.import_export import documents as imports
from tests.api.app_fixture import AppFixture, bearer, running_app
from tests.api.test_memory import get, zip_of
from tests.fakes import documents as fakes
from tests.harness.cases import nightly_after

REPORT = [
    "The airship report.",
    "Rotors and gearboxes turn.",
    "The zeppelin hangar in Lakehurst burned down.",
]
FILLER = "Words about the weather fill this page. " * 60


async def import_file(app: AppFixture, name: str, data: bytes, status: int = 200, **params: Any) -> Any:
    response = await app.client.post(
        "/api/documents", content=data, headers=app.bearer, params={"name": name, **params}
    )
    assert response.status_code == status, response.text
    return response.json()


async def first_result(app: AppFixture, query: str) -> Any:
    response = await app.client.post("/api/search", json={"query": query}, headers=app.bearer)
    return response.json()["results"][0]


async def slugs(app: AppFixture, prefix: str = "") -> list[str]:
    """Return the slugs of the account's pages."""
    return [page["slug"] for page in (await get(app, "/api/pages", prefix=prefix, limit=500))["pages"]]


async def test_document_is_a_page_that_searches_cite(app: AppFixture) -> None:
    data = fakes.pdf(REPORT, title="Airships")
    report = await import_file(app, "Report 7.pdf", data, folder="papers", tags="air,ships")
    assert (report["created"], report["errors"]) == (1, [])
    row = {"path": "papers/Report 7.pdf", "slug": "papers/report-7.pdf", "title": "Airships", "parts": 1}
    assert report["documents"] == [{**row, "changed": True}]
    hit = await first_result(app, "Which hangar burned?")
    assert (hit["slug"], hit["citation"]) == ("papers/report-7.pdf", "Report 7.pdf, p. 3")
    assert (await first_result(app, "gearboxes"))["citation"] == "Report 7.pdf, p. 2"
    page = await get(app, "/api/pages/papers/report-7.pdf")
    assert (page["title"], page["type"], page["tags"]) == ("Airships", "document", ["air", "ships"])
    assert page["body"].startswith("# Airships\n\nSource: Report 7.pdf, p. 1-3\n\n[p. 1]\n\nThe airship")
    file = await app.client.get(
        "/api/pages/papers/report-7.pdf", headers={**app.bearer, "Accept": "text/markdown"}
    )
    assert 'source: "Report 7.pdf"\nsource_sha256: ' in file.text


async def test_same_file_changes_nothing_and_a_new_one_supersedes(app: AppFixture) -> None:
    data = fakes.pdf(REPORT, title="Airships")
    await import_file(app, "a.pdf", data)
    await app.client.patch(
        "/api/pages/a.pdf", json={"operation": "append", "content": "A note."}, headers=app.bearer
    )
    second_report = await import_file(app, "a.pdf", data)
    assert (second_report["skipped"], second_report["documents"][0]["changed"]) == (1, False)
    assert (await get(app, "/api/pages/a.pdf"))["version"] == 2
    new = await import_file(app, "a.pdf", fakes.pdf(["All new."], title="Airships"))
    assert (new["created"], new["updated"]) == (0, 1)
    assert "All new." in (await get(app, "/api/pages/a.pdf"))["body"]
    older = await get(app, "/api/versions/a.pdf", version=2)
    assert older["body"].endswith("A note.")


async def test_long_document_has_a_page_per_chapter(app: AppFixture) -> None:
    chapters = {1: "Begin", 16: "The middle", 31: "End"}
    pages = [f"Page {number} of it. {FILLER}" for number in range(1, 46)]
    pages[19] += " The okapi eats."
    report = await import_file(app, "long.pdf", fakes.pdf(pages, title="Long", chapters=chapters))
    assert report["documents"][0]["parts"] == 4
    parts = ["long.pdf/001-begin", "long.pdf/002-the-middle", "long.pdf/003-end"]
    assert await slugs(app) == ["long.pdf", *parts]
    index = await get(app, "/api/pages/long.pdf")
    assert [link["to"] for link in index["links"]] == parts
    assert "- [[long.pdf/002-the-middle]] The middle (p. 16-30)" in index["body"]
    hit = await first_result(app, "okapi")
    assert (hit["slug"], hit["citation"]) == (parts[1], "long.pdf, p. 20")
    # A shorter version leaves no chapter of the longer one behind.
    await import_file(
        app, "long.pdf", fakes.pdf(pages[:30], title="Long", chapters={1: "Begin", 16: "The middle"})
    )
    assert await slugs(app) == ["long.pdf", *parts[:2]]
    await import_file(app, "long.pdf", fakes.pdf(["short"]))
    assert await slugs(app) == ["long.pdf"]


async def test_chapter_is_cited_without_page_numbers(app: AppFixture) -> None:
    chapters = [f"<html><h1>Part {n}</h1><p>{FILLER * 20} The animal is {a}.</p></html>" for n, a in
                enumerate(["okapi", "quagga", "dodo"])]  # fmt: skip
    await import_file(app, "book.epub", fakes.epub(chapters))
    assert (await first_result(app, "quagga"))["citation"] == "book.epub, Part 1"
    await import_file(app, "plan.docx", fakes.word([("Heading 1", "Cost"), ("Normal", "A kraken.")]))
    assert (await first_result(app, "kraken"))["citation"] == "plan.docx"


@pytest.mark.parametrize("packing", nightly_after(1, ["zip", "tar.gz"]))
async def test_archive_of_documents_and_pages(app: AppFixture, packing: str) -> None:
    files = {
        "notes/ann.md": b"# Ann\nlikes okapis",
        "papers/a.pdf": fakes.pdf(REPORT),
        "papers/b.docx": fakes.word([("Normal", "word text")]),
        "c.html": b"<title>See</title><p>html text",
        "d.txt": b"plain text",
        "broken.pdf": b"%PDF-1.7 no",
        "picture.png": b"x",
        ".obsidian/x.pdf": b"x",
    }
    data = zip_of(files.items())
    if packing != "zip":
        result = io.BytesIO()
        with tarfile.open(fileobj=result, mode="w:gz") as archive:
            for name, content in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
        data = result.getvalue()
    report = await import_file(app, f"all.{packing}", data, folder="in")
    assert (report["created"], report["skipped"]) == (5, 2)
    assert report["errors"] == [
        {"path": "in/broken.pdf", "error": "broken.pdf: The PDF is damaged and cannot be read."}
    ]
    assert await slugs(app) == [
        "in/c.html",
        "in/d.txt",
        "in/notes/ann",
        "in/papers/a.pdf",
        "in/papers/b.docx",
    ]
    second_report = await import_file(app, f"all.{packing}", data, folder="in")
    assert (second_report["created"], second_report["updated"], second_report["skipped"]) == (0, 0, 7)
    assert list((app.settings.data_dir / "tmp").iterdir()) == []
    # An import of pages alone still skips them.
    plain = await app.client.post("/api/import", content=zip_of(files.items()), headers=app.bearer)
    assert (plain.json()["created"], plain.json()["skipped"]) == (1, 7)


async def test_source_of_a_document_in_an_archive_is_its_path(app: AppFixture) -> None:
    canvas = b'{"nodes": [{"id": "1", "type": "text", "text": "Buy helium"}]}'
    data = zip_of({"boards/Plan.canvas": canvas, "d.txt": b"plain text"}.items())
    await import_file(app, "vault.zip", data, folder="notes")
    page = await get(app, "/api/pages/notes/boards/plan.canvas")
    assert (page["title"], page["slug"]) == ("Plan.canvas", "notes/boards/plan.canvas")
    assert "\nSource: boards/Plan.canvas\n" in page["body"]
    assert "\nSource: d.txt\n" in (await get(app, "/api/pages/notes/d.txt"))["body"]


async def test_archive_beyond_its_time_is_imported_in_parts(
    app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = zip_of({"ann.md": b"# Ann", "d.txt": b"plain text", "e.txt": b"more text"}.items())
    monkeypatch.setattr(imports, "ARCHIVE_READINGS", 0)
    report = await import_file(app, "all.zip", data)
    reason = "The documents of an archive are read for at most 0 seconds: import it again"
    assert report["created"] == 1
    assert report["errors"] == [{"path": path, "error": reason} for path in ("d.txt", "e.txt")]
    monkeypatch.undo()
    report = await import_file(app, "all.zip", data)
    assert (report["created"], report["errors"]) == (2, [])


async def test_export_and_import_give_the_same_pages(app: AppFixture) -> None:
    await import_file(app, "a.pdf", fakes.pdf(REPORT))
    exported = await app.client.get("/api/export", headers=app.bearer)
    other = bearer(app.other)
    report = await app.client.post("/api/import", content=exported.content, headers=other)
    assert report.json()["created"] == 1
    here, there = [
        (await app.client.get("/api/pages/a.pdf", headers=headers)).json() for headers in (app.bearer, other)
    ]
    assert here["body"] == there["body"]
    # So the memory knows the file.
    response = await app.client.post(
        "/api/documents", params={"name": "a.pdf"}, content=fakes.pdf(REPORT), headers=other
    )
    assert response.json()["documents"][0]["slug"] == "a.pdf"


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.pdf", b"%PDF-1.7 broken", "a.pdf: The PDF is damaged and cannot be read."),
        ("a.exe", b"MZ", "a.exe is not a document that can be read (supported: .canvas, .docx"),
        ("a.zip", b"no zip", "The file is not a readable zip or tar archive"),
        ("...", b"x", "valid characters"),
        ("a", b"x", "a is not a document"),
        ("a.md", b"\xff", "a.md is not text in UTF-8"),
    ],
)
async def test_broken_file_changes_nothing(app: AppFixture, name: str, data: bytes, words: str) -> None:
    assert words in (await import_file(app, name, data, 400))["error"]
    assert await slugs(app) == []
    assert list((app.settings.data_dir / "tmp").iterdir()) == []


async def test_form_names_its_file_and_kind(app: AppFixture) -> None:
    parts: list[tuple[str, str]] = [("r.pdf", "application/octet-stream"), ("untitled", "application/pdf")]
    for name, kind in parts:
        response = await app.client.post(
            "/api/documents", files={"file": (name, fakes.pdf(REPORT), kind)}, headers=app.bearer
        )
        assert response.status_code == 200, response.text
    assert await slugs(app) == ["r.pdf", "untitled.pdf"]


async def test_limits_of_files_and_folders(app: AppFixture, tmp_path: Path) -> None:
    assert "folder must not contain" in (await import_file(app, "a.txt", b"x", 400, folder="a?b"))["error"]
    assert "valid characters" in (await import_file(app, "a.txt", b"x", 400, folder="f" * 190))["error"]
    async with running_app(tmp_path / "b", document_bytes=1_000, memory_page_bytes=2_000) as small:
        assert "at most 1,000 bytes" in (await import_file(small, "a.txt", b"x" * 1_001, 413))["error"]
        zipped_in = await import_file(small, "a.zip", zip_of([("a.txt", "x" * 1_001), ("b.txt", "x")]))
        assert (zipped_in["created"], zipped_in["errors"][0]["error"]) == (1, "is larger than 1000 bytes")


async def test_keys_see_and_write_only_their_collections(app: AppFixture) -> None:
    team = bearer(await app.limited_key(KeyLimits(collections=("team",))))
    await import_file(app, "own.pdf", fakes.pdf(REPORT))
    for name, status in (("team.pdf", 200), ("own.pdf", 400)):
        response = await app.client.post(
            "/api/documents", params={"name": name}, content=fakes.pdf(REPORT), headers=team
        )
        assert response.status_code == status, response.text
    assert (await get(app, "/api/pages/team.pdf"))["collections"] == ["team"]
    reader = bearer(await app.limited_key(KeyLimits(collections=("team",), read_only=True)))
    response = await app.client.post(
        "/api/documents", params={"name": "x.pdf"}, content=fakes.pdf(REPORT), headers=reader
    )
    assert response.status_code == 403


async def test_tool_imports_base64_and_refuses_local_urls(app: AppFixture) -> None:
    async def call(**arguments: Any) -> Any:
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
        message["params"] = {"name": "import_document", "arguments": {"name": "a.pdf", **arguments}}
        response = await app.client.post("/mcp", json=message, headers=app.bearer)
        return response.json()["result"]

    result = await call(content=base64.b64encode(fakes.pdf(REPORT)).decode(), folder="in")
    assert result["structuredContent"]["documents"][0]["slug"] == "in/a.pdf"
    for arguments in ({"content": "?"}, {}, {"url": "file:///etc/passwd"}, {"url": "http://127.0.0.1/a"}):
        assert (await call(**arguments))["isError"], arguments


async def test_new_version_keeps_pages_that_are_not_its_chapters(app: AppFixture) -> None:
    pages = [FILLER] * 30
    await import_file(app, "a.pdf", fakes.pdf(pages, chapters={1: "One", 16: "Two"}))
    await app.client.put("/api/pages/a.pdf/notes", json={"body": "mine"}, headers=app.bearer)
    await import_file(app, "a.pdf", fakes.pdf(["short"]))
    assert await slugs(app) == ["a.pdf", "a.pdf/notes"]


def test_groups_of_blocks_have_limits() -> None:
    blocks = [imports.DocumentBlock("x" * 9_000, chapter=f"c{number}") for number in range(20)]
    groups = imports._groups(blocks)
    assert [len(group) for group in groups] == [1] * 20
    small = [imports.DocumentBlock("x" * 1_000, chapter=f"c{number}") for number in range(100)]
    assert {len(group) for group in imports._groups(small)} == {8, 4}
    plain = [imports.DocumentBlock("x" * 40_000) for _ in range(5)]
    assert [len(group) for group in imports._groups(plain)] == [2, 2, 1]


async def test_import_page_takes_a_document(app: AppFixture) -> None:
    files = {"file": ("a.pdf", fakes.pdf(REPORT), "application/pdf")}
    response = await app.client.post("/memory/~import", files=files, headers=app.bearer)
    assert response.status_code == 200, response.text
    assert await slugs(app) == ["a.pdf"]
    broken = {"file": ("b.pdf", b"%PDF-1.7 no", "application/pdf")}
    response = await app.client.post("/memory/~import", files=broken, headers=app.bearer)
    assert (response.status_code, "The PDF is damaged" in response.text) == (400, True)


def test_base64_is_decoded_in_slices() -> None:
    data = bytes(range(256)) * 20_000
    text = base64.b64encode(data).decode()
    assert (documents.from_base64(text), documents.to_base64(data)) == (data, text)
    with pytest.raises(binascii.Error):
        documents.from_base64(text[:-4] + "?===")
