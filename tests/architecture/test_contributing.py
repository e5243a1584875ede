"""The worked examples of CONTRIBUTING.md: their diffs apply, and the result works over HTTP."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture import source

DIFF = re.compile(r"^```diff\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"^--- (?:a/|/dev/)\S+\n\+\+\+ b/(\S+)\n", re.MULTILINE)
SETUP = """
import asyncio, base64, io, http.server, json, threading
from pathlib import Path
from PIL import Image
import sixfold
from sixfold.app import catalog
from tests.api.app_fixture import running_app

out = io.BytesIO()
Image.new("RGB", (64, 48), "red").save(out, "PNG")
URI = "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()
assert COPY in sixfold.__file__, sixfold.__file__

async def post(app, path, **body):
    return await app.client.post(path, json=body, headers=app.bearer)
"""
INPUT = """
async def main():
    async with running_app(Path("data"), catalog.models_document(), probe=False) as app:
        refused = await post(app, "/api/ra1", prompt="a lake", negative_prompt="x" * 1001)
        assert (refused.status_code, "negative_prompt" in refused.text) == (400, True), refused.text
        accepted = await post(app, "/api/ra1", prompt="a lake", negative_prompt="people")
        assert accepted.status_code == 200, accepted.text
        page = await app.client.get("/openapi/media.json")
        assert "What the image must not show" in page.text, page.text[:500]
"""
PROVIDER = """
from sixfold.clients import provider_check
from sixfold.providers import PROVIDERS

class Acme(http.server.BaseHTTPRequestHandler):
    received = []
    def do_GET(self):
        self.respond(200 if self.path == "/account" else 404, {})
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        Acme.received.append((self.headers["Authorization"], json.loads(body)))
        self.respond(200, {"image_url": URI})
    def respond(self, status, document):
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
    def log_message(self, *_): pass

async def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Acme)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    document = catalog.models_document()
    url = f"http://127.0.0.1:{server.server_port}"
    await provider_check.check(PROVIDERS["acme"], "secret", url)
    document["engines"]["acme-image"]["options"]["base_url"] = url
    async with running_app(Path("data"), document, probe=False, acme_key="secret") as app:
        response = await post(app, "/api/ra1", prompt="a lake", seed=7)
        assert response.status_code == 200, response.text
        image = await app.client.get(response.json()["image_url"])
        assert Image.open(io.BytesIO(image.content)).size == (1024, 1024)
    (key, body), = Acme.received
    assert key == "Bearer secret"
    assert body.pop("prompt").startswith("a lake")
    assert body == {"model": "painter-1", "seed": 7, "size": "1024x1024"}, body
    server.shutdown()
"""
ENGINE = """
async def main():
    async with running_app(Path("data"), catalog.models_document(), probe=False) as app:
        response = await post(app, "/api/containers/run", model="gray", input={"image": URI})
        assert response.json()["status"] == "succeeded", response.text
        image = await app.client.get(response.json()["output"]["url"])
        assert Image.open(io.BytesIO(image.content)).mode == "L"
"""
SESSION = """
from tests.e2e.session_server import running_session_server

async def main():
    async with running_session_server(Path("data"), probe=False) as opened:
        session = await opened.begin("clock-model")
        async with opened.inside(session) as client:
            poses = [message["seconds"] for message in await client.several("pose", 3)]
        assert [round(b - a, 3) for a, b in zip(poses, poses[1:])] == [0.05, 0.05], poses
"""
CHECKS = {
    "Add an input to an endpoint": INPUT,
    "Add an image provider": PROVIDER,
    "Add an engine": ENGINE,
    "Add a session model": SESSION,
}


def diffs(title: str) -> Iterator[tuple[str, str]]:
    """Yield the files that a section's diffs change, each with its hunks."""
    _, _, rest = source.text("CONTRIBUTING.md").partition(f"\n### {title}\n")
    section = re.split(r"^##+ ", rest, maxsplit=1, flags=re.MULTILINE)[0]
    for block in DIFF.findall(section):
        parts = FILE.split(block)
        assert len(parts) > 2, f"{title}: the diff names no file"
        yield from zip(parts[1::2], parts[2::2], strict=True)


def patch(name: str, text: str, hunks: str) -> str:
    """Apply hunks, whose context must occur exactly once in the text of the file `name`."""
    for hunk in re.split(r"^@@\n", hunks, flags=re.MULTILINE)[1:]:
        lines = hunk.splitlines(keepends=True)
        before = "".join(line[1:] for line in lines if not line.startswith("+"))
        after = "".join(line[1:] for line in lines if not line.startswith("-"))
        assert not before or text.count(before) == 1, (
            f"{name} must contain these lines of a diff in CONTRIBUTING.md once; update the diff:\n{before}"
        )
        text = text.replace(before, after) if before else text + after
    return text


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source with the diffs of every example."""
    folder = tmp_path_factory.mktemp("contributing")
    unwanted = shutil.ignore_patterns("__pycache__")
    shutil.copytree(source.ROOT / "src" / "sixfold", folder / "src" / "sixfold", ignore=unwanted)
    for title in CHECKS:
        for name, hunks in diffs(title):
            path = folder / name
            if not path.exists() and (source.ROOT / name).exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source.ROOT / name, path)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(patch(name, path.read_text("utf-8") if path.exists() else "", hunks), "utf-8")
    return folder


@pytest.mark.parametrize("title", CHECKS)
def test_an_example_of_contributing_works(title: str, copy: Path, tmp_path: Path) -> None:
    program = f"COPY = {str(copy)!r}\n{SETUP}{CHECKS[title]}\nasyncio.run(main())\n"
    environment = {"PYTHONPATH": os.pathsep.join([str(copy / "src"), str(source.ROOT)]), "LANG": "C.UTF-8"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PATH": os.defpath, "HOME": str(tmp_path), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
