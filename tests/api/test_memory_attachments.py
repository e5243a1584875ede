"""Attachments of notes (images, audio, other files): imported, embedded and exported."""

from __future__ import annotations

import io
import wave
import zipfile

import pytest
from PIL import Image

from sixfold.core.accounts.keys import KeyLimits
from tests.api.app_fixture import AppFixture, bearer
from tests.api.test_memory_pages import open_page
from tests.api.test_pages import signed_in
from tests.harness import image_files

NOTE = """# Lamp

![[Lamp.png|300]] ![[hum.wav]] ![a lamp](files/Lamp.png) ![[gone.png]] ![[fake.png]]

`![[Lamp.png]]`
"""


def image_bytes(color: str = "red") -> bytes:
    return image_files.encode(Image.new("RGB", (40, 30), color))


def audio_bytes() -> bytes:
    data = io.BytesIO()
    with wave.open(data, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(b"\0\0" * 800)
    return data.getvalue()


def vault(**changed: bytes) -> bytes:
    """Return a zip of a vault of Obsidian."""
    files = {
        "Lamp note.md": NOTE.encode(),
        "files/Lamp.png": image_bytes(),
        "files/hum.wav": audio_bytes(),
        "files/fake.png": b"<script>1</script>",
        ".obsidian/app.json": b"{}",
        "books.base": b"{}",
        **changed,
    }
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return data.getvalue()


async def import_files(app: AppFixture, data: bytes, name: str = "vault.zip") -> str:
    """Import a file in the browser's form, and return the page of the report."""
    token = await signed_in(app)
    form = {"csrf": token}
    response = await app.client.post("/memory/~import", files={"file": (name, data)}, data=form)
    assert response.status_code == 200, response.text
    return response.text


async def test_attachments_are_imported_shown_and_exported(any_database_app: AppFixture) -> None:
    app = any_database_app
    report = await import_files(app, vault())
    assert "<b>3</b> created" in report
    for name, why in (
        ("files/fake.png", "its content is not an image"),
        (".obsidian/app.json", "settings"),
        ("books.base", "a view of Obsidian"),
    ):
        line = report[report.index(f">{name}<") :].partition("</li>")[0]
        assert why in line
    page = (await open_page(app, "/memory/lamp-note")).text
    image = (
        '<a href="/memory/files/lamp.png"><img src="/memory/files/lamp.png/~file" alt="Lamp.png" width="300"'
    )
    assert image in page
    assert 'alt="a lamp" loading' in page
    assert '<audio controls preload="metadata" src="/memory/files/hum.wav/~file"' in page
    assert page.count("This file is not in the memory") == 2
    assert "<code>![[Lamp.png]]</code>" in page
    assert '<img src="/memory/files/lamp.png/~file"' in (await open_page(app, "/memory/files/lamp.png")).text
    file = await open_page(app, "/memory/files/lamp.png/~file")
    assert file.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert file.content == image_bytes()
    assert file.headers["Content-Type"] == "image/png"
    assert "sandbox" in file.headers["Content-Security-Policy"]
    part = await app.client.get("/memory/files/hum.wav/~file", headers={**app.bearer, "Range": "bytes=0-3"})
    assert (part.status_code, part.content) == (206, b"RIFF")
    out = (await app.client.get("/memory/~export")).content
    with zipfile.ZipFile(io.BytesIO(out)) as archive:
        assert sorted(archive.namelist()) == ["Lamp note.md", "files/Lamp.png", "files/hum.wav"]
        assert archive.read("files/Lamp.png") == image_bytes()
        assert archive.read("Lamp note.md").decode() == NOTE
    assert "<b>0</b> created, <b>0</b> updated, <b>3</b> unchanged" in await import_files(app, out)


async def test_a_new_file_replaces_the_previous_one(app: AppFixture) -> None:
    await import_files(app, image_bytes(), "lamp.png")
    await import_files(app, image_bytes("blue"), "lamp.png")
    assert (await open_page(app, "/memory/lamp.png/~file")).content == image_bytes("blue")
    response = await app.client.get("/v1/files", headers=app.bearer)
    assert [(file["filename"], file["purpose"]) for file in response.json()["data"]] == [
        ("lamp.png", "memory")
    ]
    await app.client.delete("/api/pages/lamp.png", headers=app.bearer)
    assert (await open_page(app, "/memory/lamp.png/~file")).status_code == 404


async def test_a_limited_key_sees_no_file_of_other_pages(app: AppFixture) -> None:
    await import_files(app, vault())
    note = {"body": "![[lamp.png]]", "collections": ["c"]}
    await app.client.put("/api/pages/c/note", json=note, headers=app.bearer)
    key = await app.limited_key(KeyLimits(collections=("c",)))
    assert (await open_page(app, "/memory/files/lamp.png/~file", key)).status_code == 404
    assert "~file" not in (await open_page(app, "/memory/c/note", key)).text
    assert "~file" in (await open_page(app, "/memory/c/note")).text
    other = await app.visitor().get("/memory/files/lamp.png/~file", headers=bearer("sf_x"))
    assert other.status_code in {401, 403}


@pytest.mark.parametrize("name", ["evil.svg", "page.png"])
async def test_files_with_programs_are_left_out(app: AppFixture, name: str) -> None:
    report = await import_files(app, vault(**{name: b"<svg onload='alert(1)'/>"}))
    assert f">{name}<" in report
    assert (await open_page(app, f"/memory/{name}/~file")).status_code == 404
