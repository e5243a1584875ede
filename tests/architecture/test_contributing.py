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
import asyncio, base64, io
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
        session = await opened.create("clock-model")
        async with opened.inside(session) as client:
            poses = [message["seconds"] for message in await client.several("pose", 3)]
        assert [round(b - a, 3) for a, b in zip(poses, poses[1:])] == [0.05, 0.05], poses
"""
CHECKS = {
    "Add an input to an endpoint": INPUT,
    "Add an engine": ENGINE,
    "Add a session model": SESSION,
}
# Examples that include their own test.
TESTS = {
    "Add a query parameter to an endpoint": "tests/api/test_media_query.py",
    "Add an image provider": "tests/api/test_easel.py",
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
    # With its bytecode, which is valid for files of the same size and time.
    shutil.copytree(source.ROOT / "src" / "sixfold", folder / "src" / "sixfold")
    for title in (*CHECKS, *TESTS):
        for name, hunks in diffs(title):
            path = folder / name
            if not path.exists() and (source.ROOT / name).exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source.ROOT / name, path)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(patch(name, path.read_text("utf-8") if path.exists() else "", hunks), "utf-8")
    return folder


def run(copy: Path, folder: Path, *arguments: str) -> None:
    """Run Python in a folder, with the copy of the source in place of the source."""
    environment = {"PYTHONPATH": os.pathsep.join([str(copy / "src"), str(source.ROOT)]), "LANG": "C.UTF-8"}
    result = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={"PATH": os.defpath, "HOME": str(folder), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("title", CHECKS)
def test_an_example_of_contributing_works(title: str, copy: Path, tmp_path: Path) -> None:
    run(copy, tmp_path, "-c", f"COPY = {str(copy)!r}\n{SETUP}{CHECKS[title]}\nasyncio.run(main())\n")


@pytest.mark.parametrize("title", TESTS)
def test_test_of_an_example_passes(title: str, copy: Path, tmp_path: Path) -> None:
    config = str(source.ROOT / "pyproject.toml")
    run(
        copy, tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", config, str(copy / TESTS[title])
    )


def test_every_file_that_contributing_names_exists() -> None:
    text = re.sub(r"^```.*?^```$", "", source.text("CONTRIBUTING.md"), flags=re.MULTILINE | re.DOTALL)
    names = set(re.findall(r"`([\w./-]+\.(?:py|toml|md|js|html))`", text))
    diff_text = "\n".join(DIFF.findall(source.text("CONTRIBUTING.md")))
    created = set(FILE.findall(diff_text))
    files = [f"/{name}" for name in (*source.files(), *created)]
    optional = {"clients/easel.py", "data/models/easel.toml", "sixfold.toml"}
    missing = sorted(
        name for name in names - optional if not any(file.endswith(f"/{name}") for file in files)
    )
    assert not missing, f"CONTRIBUTING.md names files that do not exist: {missing}"
