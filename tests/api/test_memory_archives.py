"""Archives of pages over HTTP: unchanged bytes, every compression, and malicious archives."""

from __future__ import annotations

import io
import random
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from sixfold.core.memory.import_export import files as import_export_files
from sixfold.core.memory.models import Caller
from tests import loop_time
from tests.api.app_fixture import AppFixture, bearer, running_app
from tests.api.test_memory import exported_files, get, import_report, put, zip_of
from tests.harness.cases import nightly_after


def tar_of(files: Iterable[tuple[str, str]], mode: str = "w:gz") -> bytes:
    result = io.BytesIO()
    with tarfile.open(fileobj=result, mode=mode) as archive:  # pyright: ignore[reportCallIssue, reportArgumentType] # by name
        for name, text in files:
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return result.getvalue()


async def test_exported_files_equal_the_imported_ones(app: AppFixture) -> None:
    files = {
        "Projects/Big Plan.md": "---\ntitle: 'Plan'\na: [x]   # kept\ntags:\n  - a\n  - b\n---\r\nCRLF\r\n",
        "people/ann.md": "\ufeff# Ann\n[[Big Plan]] [plan](../Projects/Big%20Plan.md)",
        "Fußball/日本.md": "---\nbroken: [yaml\n---\ntext\n",
        "empty.md": "",
        "only-head.md": "---\ntype: person\n---\n",
    }
    skipped = {"picture.png": "x", ".obsidian/app.md": "x", "__MACOSX/._ann.md": "x", "note.txt": "x"}
    archive = zip_of({**files, **skipped}.items())
    left = {"left_out": list(skipped), "errors": []}
    assert await import_report(app, archive) == {"created": 5, "updated": 0, "skipped": 4, **left}
    assert await import_report(app, archive) == {"created": 0, "updated": 0, "skipped": 9, **left}
    assert await exported_files(app) == {name: text.encode() for name, text in files.items()}
    page = await get(app, "/api/pages/projects/big-plan")
    assert (page["title"], page["tags"]) == ("Plan", ["a", "b"])
    assert {link["to"] for link in (await get(app, "/api/pages/people/ann"))["links"]} == {
        "projects/big-plan"
    }


@pytest.mark.parametrize("path", nightly_after(1, ["/api/export", "/api/account/export"]))
async def test_export_of_large_pages_does_not_block_the_loop(app: AppFixture, path: str) -> None:
    files = {
        f"p{number:02}.md": f"# Page {number}\n\n" + random.Random(number).randbytes(400_000).hex()  # noqa: S311 - a fixed text
        for number in range(12)
    }
    files |= {"q.md": "short"}
    assert (await import_report(app, zip_of(files.items())))["created"] == 13
    async with loop_time.watched() as loop:
        response = await app.client.get(path, headers=app.bearer)
    assert response.status_code == 200
    with zipfile.ZipFile(io.BytesIO(response.content)) as archive:
        pages = {name.removeprefix("memory/"): name for name in archive.namelist() if name.endswith(".md")}
        assert {name: archive.read(result).decode() for name, result in pages.items()} == files
    assert loop.longest < 0.1, loop.longest


async def test_archives_imported_at_once_share_a_limit(
    app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = app.server.memory._memory
    monkeypatch.setattr(memory, "wait_seconds", 0.01)
    archive = tar_of([("a.md", "x")], "w:xz")

    async def imported() -> int:
        return (await app.client.post("/api/import", content=archive, headers=app.bearer)).status_code

    other = memory.lease("another account")
    await other.resize(200 * 2**20)
    assert await imported() == 429
    other.release()
    assert (await imported(), memory.total) == (200, 0)


async def test_pages_are_exported_in_batches_of_a_bounded_size(app: AppFixture) -> None:
    large = "x" * (import_export_files.EXPORT_CHARS * 2 // 5)
    files = {f"a{number}.md": large for number in range(5)} | {
        f"b{number:03}.md": "y" for number in range(120)
    }
    await import_report(app, zip_of(files.items()))
    caller, after, counts = Caller(app.account.id, "ada"), "", list[int]()
    while batch := await app.database.read(import_export_files.exported(caller, after)):
        after = batch[-1].page.slug
        counts.append(len(batch))
    assert counts == [2, 2, 50, 50, 21]


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
async def test_tar_is_imported_with_every_compression(app: AppFixture, mode: str) -> None:
    data = tar_of([("a/b.md", "# B"), ("c.png", "x")], mode)
    form = await app.client.post("/api/import", files={"file": ("x.tar", data)}, headers=app.bearer)
    left = {"left_out": ["c.png"], "errors": []}
    assert form.json() == {"created": 1, "updated": 0, "skipped": 1, **left}
    assert (await import_report(app, data))["skipped"] == 2


@pytest.mark.parametrize("pack", [tar_of, zip_of])
async def test_archive_of_the_current_folder_has_paths_without_dots(
    app: AppFixture, pack: Callable[[list[tuple[str, str]]], bytes]
) -> None:
    data = pack([("./a/b.md", "# B"), ("./c.png", "x"), ("./x/./d.md", "D")])
    report = await import_report(app, data)
    assert (report["created"], report["left_out"], report["errors"]) == (2, ["c.png"], [])
    assert (await get(app, "/api/pages/a/b"))["slug"] == "a/b"
    exported = await app.client.get("/api/export", headers=app.bearer)
    with zipfile.ZipFile(io.BytesIO(exported.content)) as archive:
        assert {"a/b.md", "x/d.md"} <= set(archive.namelist())


async def test_logseq_pages_and_journals_keep_their_names(app: AppFixture) -> None:
    files = [
        ("logseq/config.edn", "{}"),
        ("pages/work___acme.md", "type:: company\ntags:: a, b\n\n- text [[people]]"),
        ("pages/people%2Fann.md", "- named as older ones do"),
        ("journals/2026_11_20.md", "- met [[work/acme]]"),
    ]
    await import_report(app, zip_of(files))
    assert (await get(app, "/api/pages/people/ann"))["version"] == 1
    page = await get(app, "/api/pages/work/acme")
    assert (page["type"], page["tags"]) == ("company", ["a", "b"])
    assert [link["from"] for link in page["backlinks"]] == ["journals/2026-11-20"]


async def test_packed_outliner_folder_is_recognised(app: AppFixture) -> None:
    files = [
        ("graph/journals/2026_11_20.md", "- met [[graph/work/acme]]"),
        ("graph/pages/work___acme.md", "- text"),
        ("graph/logseq/config.edn", "{}"),
        ("graph/logseq/bak/pages/work___acme/old.md", "- old"),
    ]
    left = {"left_out": [name for name, _ in files[2:]], "errors": []}
    assert await import_report(app, zip_of(files)) == {"created": 2, "updated": 0, "skipped": 2, **left}
    page = await get(app, "/api/pages/graph/work/acme")
    assert [link["from"] for link in page["backlinks"]] == ["graph/journals/2026-11-20"]


async def test_folder_named_logseq_is_not_a_logseq_graph(app: AppFixture) -> None:
    files = {"logseq/note.md": "about it", "pages/a___b.md": "kept as it is", "v/logseq/bak/old.md": "x"}
    assert (await import_report(app, zip_of(files.items())))["created"] == 2
    result = (await get(app, "/api/pages"))["pages"]
    assert [page["slug"] for page in result] == ["logseq/note", "pages/a___b"]


async def test_links_of_a_vault_in_a_folder_are_resolved(app: AppFixture) -> None:
    files = {
        "Vault/daily/1.md": "[[Work/Plan]], [[Work/Plan#Later|later]], [[No/Body]]\nowner:: [[People/Ann]]",
        "Vault/daily/old/Work/Plan.md": "of last year",
        "Vault/Work/Plan.md": "by [[People/Ann]]",
        "elsewhere.md": "[[Work/Plan]]",
    }
    assert (await import_report(app, zip_of(files.items())))["created"] == 4
    # Pages that are imported later are found, too.
    await import_report(app, zip_of([("Vault/People/Ann.md", "# Ann")]))

    async def leads(slug: str) -> set[tuple[str, str]]:
        page = await get(app, f"/api/pages/{slug}")
        return {(link["to"], link["type"]) for link in page["links"] if link["resolved"]}

    assert await leads("vault/daily/1") == {("vault/work/plan", "links_to"), ("vault/people/ann", "owner")}
    assert await leads("vault/work/plan") == {("vault/people/ann", "links_to")}
    assert await leads("elsewhere") == set()
    backlinks = await get(app, "/api/backlinks/vault/people/ann")
    assert {link["from"] for link in backlinks["backlinks"]} == {"vault/daily/1", "vault/work/plan"}
    await import_report(app, zip_of([("Work/Plan.md", "at its very path")]))
    assert await leads("vault/daily/1") == {("work/plan", "links_to"), ("vault/people/ann", "owner")}


async def test_damaged_member_is_reported_and_others_are_imported(app: AppFixture) -> None:
    data = bytearray(zip_of((f"{name}.md", f"{name} " * 99) for name in ("first", "second", "third")))
    at = data.index(b"second.md") + len("second.md") + 4
    data[at : at + 6] = b"\xff" * 6
    report = await import_report(app, bytes(data))
    assert (report["created"], report["errors"]) == (2, [{"path": "second.md", "error": "is damaged"}])
    assert (await get(app, "/api/pages/third"))["body"] == "third " * 99


def zip_bomb() -> bytes:
    """Return a hundred files of ten megabytes each, in a few kilobytes."""
    return zip_of((f"{number}.md", b"0" * 1_000_000) for number in range(100))


async def test_archive_size_and_file_count_are_limited(tmp_path: Path) -> None:
    limits: dict[str, Any] = {"memory_import_bytes": 5_000_000, "memory_import_files": 200}
    async with running_app(tmp_path, **limits) as app:
        many = zip_of((f"{number}.md", "x") for number in range(201))
        for data in (zip_bomb(), many, tar_of([(f"{n}.md", "x" * 900_000) for n in range(8)])):
            response = await app.client.post("/api/import", content=data, headers=app.bearer)
            assert (response.status_code, response.json()["code"]) == (413, "too_large")
        full = zip_of((f"full/{number}.md", "") for number in range(200))
        assert (await import_report(app, full))["created"] == 200
        big = await import_report(app, zip_of([("big.md", b"x" * 1_048_577), ("ok.md", "x")]))
        assert (big["created"], big["errors"][0]["path"]) == (1, "big.md")


async def test_import_reports_unusable_files_and_takes_the_others(app: AppFixture) -> None:
    link = zipfile.ZipInfo("link.md")
    link.external_attr = 0o120777 << 16
    result = io.BytesIO()
    with zipfile.ZipFile(result, "w") as archive:
        archive.writestr(link, "/etc/passwd")
        for name, data in {
            "../up.md": b"x",
            "/root.md": b"x",
            "a\\b.md": b"x",
            "nul.md": b"a\0b",
            "latin.md": b"caf\xe9",
            "....md": b"x",
            "good.md": b"x",
            "utf16.md": "ü".encode("utf-16"),
            "inner.zip": zip_of([("z.md", "x")]),
        }.items():
            archive.writestr(name, data)
    report = await import_report(app, result.getvalue())
    assert (report["created"], report["skipped"]) == (2, 1)
    assert {row["path"] for row in report["errors"]} == {
        "link.md",
        "../up.md",
        "/root.md",
        "a\\b.md",
        "nul.md",
        "latin.md",
        "....md",
    }
    assert sorted(await exported_files(app)) == ["good.md", "utf16.md"]


async def test_every_skipped_file_of_an_archive_is_reported(app: AppFixture) -> None:
    result = io.BytesIO()
    with zipfile.ZipFile(result, "w") as archive, warnings.catch_warnings():
        # The duplicate name is intended.
        warnings.simplefilter("ignore")
        for name, text in (
            ("vault/...md", "dots"),
            ("vault/.draft.md", "hidden"),
            ("vault/twice.md", "first"),
            ("vault/twice.md", "second"),
            ("vault/._twice.md", "a resource fork"),
            ("vault/.obsidian/plugins/readme.md", "a program's own"),
            ("vault/nulX.md", "cut"),
        ):
            archive.writestr(name, text)
    report = await import_report(app, result.getvalue().replace(b"nulX.md", b"nul\0.md"))
    assert (report["created"], report["skipped"]) == (1, 2)
    hidden = "is hidden: its name begins with a dot"
    assert {row["path"]: row["error"] for row in report["errors"]} == {
        "vault/...md": hidden,
        "vault/.draft.md": hidden,
        "vault/twice.md": "is in the archive twice: the later one was imported",
        "vault/nul\0.md": "has a path that is too long, or that leads out of the archive",
    }
    assert await exported_files(app) == {"vault/twice.md": b"second"}


async def test_links_in_a_tar_are_not_followed(app: AppFixture) -> None:
    result = io.BytesIO()
    with tarfile.open(fileobj=result, mode="w") as archive:
        for name, kind in (("a.md", tarfile.SYMTYPE), ("b.md", tarfile.LNKTYPE), ("c.md", tarfile.FIFOTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
    report = await import_report(app, result.getvalue())
    assert (report["created"], len(report["errors"])) == (0, 3)


async def test_damaged_archives_are_rejected(app: AppFixture) -> None:
    archive = zip_of([("a.md", "x" * 5000)])
    damaged = [
        b"x",
        b"PK\x03\x04junk",
        archive[:-30],
        tar_of([("a.md", "x" * 5000)])[:60],
        b"\x1f\x8b" + b"\0" * 50,
    ]
    damaged += [b"BZh9" + b"\0" * 50, b"\xfd7zXZ\0" + b"\0" * 50, b"\0" * 10_000]
    for data in damaged:
        response = await app.client.post("/api/import", content=data, headers=app.bearer)
        assert response.status_code in {200, 400}, response.text
        assert (await get(app, "/api/pages"))["pages"] == []


async def test_imported_export_keeps_the_redirects_of_old_slugs(app: AppFixture) -> None:
    here, there = app.bearer, bearer(app.other)
    for slug, body in {"a/old": "# Who", "l": "[[a/old]]", "z": "[[very/old]]"}.items():
        page = {"slug": slug, "body": body}
        assert (await app.client.post("/api/pages", json=page, headers=here)).status_code == 201
    for old, new in (("a/old", "very/old"), ("very/old", "n/new")):
        change = {"operation": "rename", "slug": new}
        await app.client.patch(f"/api/pages/{old}", json=change, headers=here)
    archive = await app.client.get("/api/export", headers=here)
    waits = {"slug": "waits", "body": "[[a/old]]"}
    await app.client.post("/api/pages", json=waits, headers=there)
    response = await app.client.post("/api/import", content=archive.content, headers=there)
    assert response.json() == {"created": 3, "updated": 0, "skipped": 0, "left_out": [], "errors": []}
    for slug in ("l", "z", "waits"):
        (link,) = (await app.client.get(f"/api/links/{slug}", headers=there)).json()["links"]
        assert (link["to"], link["resolved"]) == ("n/new", True)
    moved = await app.client.get("/api/pages/a/old", headers=there)
    assert (moved.status_code, moved.json()["slug"], moved.json()["body"]) == (308, "n/new", "# Who")
    second_response = await app.client.post("/api/import", content=archive.content, headers=there)
    assert second_response.json()["skipped"] == 3
    plain = await app.client.get("/api/pages/n/new", headers={**there, "Accept": "text/markdown"})
    assert "old_slugs" not in plain.text


async def test_import_of_an_own_export_changes_no_page(app: AppFixture) -> None:
    await put(app, "plain")
    await put(app, "fields", "---\ntitle: Fields\nother: 1\n---\ntext")
    await put(app, "people/ann", "# Ann\n", type="person", tags=["a", "b"], collections=["c"])
    await put(app, "old", "[[plain]]")
    rename = {"operation": "rename", "slug": "new"}
    await app.client.patch("/api/pages/old", json=rename, headers=app.bearer)
    entry, link = {"date": "2026", "summary": "event"}, {"to": "people/ann", "context": "reason"}
    await app.client.post("/api/timeline/plain", json=entry, headers=app.bearer)
    await app.client.post("/api/links/plain", json=link, headers=app.bearer)
    await import_report(app, zip_of([("Kept.md", "---\ntitle: Kept\na: 1\n---\ntext")]))
    edit = {"operation": "set_fields", "fields": {"type": "person", "title": "Changed"}}
    await app.client.patch("/api/pages/kept", json=edit, headers=app.bearer)

    pages, files = await get(app, "/api/pages"), await exported_files(app)
    report = await import_report(app, zip_of(files.items()))
    assert (report["created"], report["updated"], report["skipped"]) == (0, 0, 5)
    assert await get(app, "/api/pages") == pages
    assert await exported_files(app) == files

    headers = {**app.bearer, "Content-Type": "text/markdown"}
    file = await app.client.put("/api/pages/plain", content=files["plain.md"], headers=headers)
    assert file.headers["ETag"] == f'"{pages["pages"][-1]["version"]}"'
    changed_files = {**files, "plain.md": files["plain.md"] + b" more"}
    assert (await import_report(app, zip_of(changed_files.items())))["updated"] == 1


async def test_pages_with_hidden_paths_survive_an_export(app: AppFixture) -> None:
    texts = {
        "a/.b": "text",
        ".c/d": "---\nother: 1\n---\ntext",
        "a/._e": "---\nrule\n---\ntext",
        "logseq/bak/f": "\r\n",
    }
    for slug, body in texts.items():
        await put(app, slug, body)
    files = await exported_files(app)
    hidden = {".obsidian/g.md": b"---\ntitle: Plugin\n---\n", "a/.h.md": b"text"}
    moved = {"x/.b.md": files["a/.b.md"], ".y/d.md": files[".c/d.md"]}
    archive = zip_of([*files.items(), *hidden.items(), *moved.items()])
    for report in (
        await import_report(app, archive),
        (await app.client.post("/api/import", content=archive, headers=bearer(app.other))).json(),
    ):
        assert report["left_out"] == [".obsidian/g.md", ".y/d.md"]
        assert [row["path"] for row in report["errors"]] == ["a/.h.md", "x/.b.md"]
        assert report["created"] in (0, len(texts))
    assert await exported_files(app) == files
    export = await app.client.get("/api/export", headers=bearer(app.other))
    with zipfile.ZipFile(io.BytesIO(export.content)) as copied:
        assert {name: copied.read(name) for name in copied.namelist()} == files
    bodies = {slug: (await get(app, f"/api/pages/{slug}"))["body"] for slug in texts}
    assert bodies == {**texts, ".c/d": "text"}


async def test_export_imported_elsewhere_is_equal(app: AppFixture) -> None:
    names = {
        "title": 'Odd "title": [x]',
        "type": "decision",
        "tags": ["a b", "no", "1.0", "é, ü"],
        "collections": ["s"],
    }
    for slug, fields in {"a": names, "b/c": {}, "d": {"title": "Heading"}}.items():
        page = {"slug": slug, "body": "# Heading\n[[b/c]]\n- **2026** | x — y", **fields}
        assert (await app.client.post("/api/pages", json=page, headers=app.bearer)).status_code == 201
    link = {"to": "b/c", "type": "leads", "context": 'because: "of" #this\nand that'}
    await app.client.post("/api/links/a", json=link, headers=app.bearer)
    entry = {"date": "2026-11-20", "summary": "y: z", "detail": "more\n\u2028text", "source": "me"}
    await app.client.post("/api/timeline/a", json=entry, headers=app.bearer)
    archive = await app.client.get("/api/export", headers=app.bearer)
    response = await app.client.post("/api/import", content=archive.content, headers=bearer(app.other))
    assert response.json() == {"created": 3, "updated": 0, "skipped": 0, "left_out": [], "errors": []}
    for slug in ("a", "b/c", "d"):
        visible = [
            (await app.client.get(f"/api/pages/{slug}", headers=bearer(key))).json()
            for key in (app.key, app.other)
        ]
        for page in visible:
            for name in ("id", "created_at", "updated_at", "created_by", "version"):
                del page[name]
            page["timeline"] = [{**row, "created_at": ""} for row in page["timeline"]]
            page["links"].sort(key=lambda row: (row["to"], row["type"]))
        assert visible[0] == visible[1]
    second_response = await app.client.post("/api/import", content=archive.content, headers=bearer(app.other))
    assert second_response.json()["skipped"] == 3
    out = await app.client.get("/api/export", headers=bearer(app.other))
    with (
        zipfile.ZipFile(io.BytesIO(out.content)) as theirs,
        zipfile.ZipFile(io.BytesIO(archive.content)) as ours,
    ):
        assert {n: theirs.read(n) for n in theirs.namelist()} == {n: ours.read(n) for n in ours.namelist()}
