"""Folders and images of spaces: detected settings, and rejected ones."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sixfold import errors
from sixfold.clients.gradio import folders
from sixfold.clients.gradio.spaces import GradioSpaces
from sixfold.core.catalog.gradio_spaces import SpaceId
from sixfold.net.addresses import AllowList
from sixfold.net.clients import HttpClients
from sixfold.net.fetch import Fetcher
from tests.fakes.fault_server import serve

README = "---\ntitle: Painter\nsdk: gradio\nsdk_version: 5.50.0\napp_file: src/main.py\n---\nWords.\n"


def painter(folder: Path) -> Path:
    (folder / "src").mkdir()
    (folder / "src" / "main.py").write_text("print()\n")
    (folder / "README.md").write_text(README)
    (folder / "requirements.txt").write_text("numpy\n")
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "main.pyc").write_text("x")
    (folder / "secret").symlink_to("/etc/passwd")
    return folder


def test_entry_point_and_requirements_are_read_from_a_folder(tmp_path: Path) -> None:
    content = folders.read(painter(tmp_path))
    assert (content.app, content.built, content.title) == ("src/main.py", False, "Painter")
    assert content.requirements == ("gradio==5.50.0", "-r", "requirements.txt")
    with tarfile.open(fileobj=io.BytesIO(content.context("python:3.11-slim"))) as tar:
        names = tar.getnames()
        dockerfile = tar.extractfile("Dockerfile")
        assert dockerfile is not None
        lines = dockerfile.read().decode().splitlines()
    assert names == ["README.md", "requirements.txt", "src/main.py", "Dockerfile"], "no link, nothing made"
    assert lines[0] == "FROM python:3.11-slim"
    assert "RUN pip install --no-cache-dir gradio==5.50.0 -r requirements.txt" in lines
    assert lines[-1] == 'CMD ["python", "src/main.py"]'


def test_missing_gradio_version_installs_the_newest(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("print()\n")
    (tmp_path / "README.md").write_text("---\nsdk: gradio\n---\n")
    assert folders.read(tmp_path).requirements == ("gradio",)
    (tmp_path / "README.md").write_text("---\nsdk: gradio\nsdk_version: 1; rm -r\n---\n")
    assert folders.read(tmp_path).requirements == ("gradio",)


@pytest.mark.parametrize(
    ("readme", "sentence"),
    [
        ("---\nsdk: streamlit\n---\n", "uses the SDK streamlit"),
        ("---\nsdk: docker\n---\n", "uses the SDK docker"),
        ("---\napp_file: ../app.py\n---\n", "does not contain ../app.py"),
        ("---\napp_file: /etc/passwd\n---\n", "does not contain /etc/passwd"),
        ("", "does not contain app.py"),
    ],
)
def test_space_that_cannot_start_is_refused(tmp_path: Path, readme: str, sentence: str) -> None:
    (tmp_path / "README.md").write_text(readme)
    with pytest.raises(errors.BadRequest, match=sentence):
        folders.read(tmp_path)


async def test_space_image_is_in_the_hub_or_configured_registry() -> None:
    async def host(request: Request) -> Response:
        subdomain = request.path_params["name"]
        return JSONResponse({"host": f"https://acme-{subdomain}.spaces.example"})

    clients = HttpClients(Fetcher(AllowList.parse("")))
    async with serve([Route("/api/spaces/acme/{name}/host", host)]) as port:
        hub = GradioSpaces(clients, f"http://127.0.0.1:{port}", "", lambda: "")
        space = SpaceId("acme", "paint")
        assert await hub.image(space, "") == "registry.spaces.example/acme-paint:latest"
        assert (
            await hub.image(SpaceId("Acme", "paint"), "host:5000/{owner}/{name}:2")
            == "host:5000/acme/paint:2"
        )
    await clients.aclose()
