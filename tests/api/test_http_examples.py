"""Every operation for programs has an example of a real run in the reference, or a reason."""

from __future__ import annotations

import tomllib
from typing import Any, cast

from sixfold.app.asgi import documents
from sixfold.web.app import WebApp
from sixfold.web.openapi import documented
from tests.api.app_fixture import AppFixture
from tests.architecture import source

TABLE: dict[str, Any] = tomllib.loads(source.text("tools/http_examples.toml"))
WITHOUT: dict[str, str] = TABLE.pop("without", {})
EXAMPLES = source.DOCS / "reference/http/examples"
MOST_LINES = 420
STANDARDS = ("/.well-known/", "/oauth/")


def shown(page: str) -> list[dict[str, Any]]:
    """Return the rows of a page whose requests are in the reference."""
    return [row for row in TABLE[page] if "request" in row and row.get("show", True)]


def operation(app: AppFixture, row: dict[str, Any]) -> str:
    """Return the method and the path of the operation that a row calls."""
    if "of" in row:
        return row["of"]
    method, path = row["request"].partition("?")[0].split(" ", 1)
    match = cast("WebApp", app.asgi).table.find(path)
    assert match.route is not None, row["request"]
    return f"{method} {documented(match.route.path)}"


async def test_every_operation_has_an_example_or_a_reason(app: AppFixture) -> None:
    described = documents(app.server, cast("WebApp", app.asgi).table.entries).values()
    known = {f"{method} {path}" for each in described for method, path, _ in each.summaries()}
    known |= {
        f"{entry.method} {documented(entry.path)}"
        for entry in cast("WebApp", app.asgi).table.entries()
        if entry.method not in {"HEAD", "WS"}
        and not entry.path.startswith("/api/")  # the second paths of ComfyUI's routes
        and (
            entry.api in {"comfyui", "mcp"}
            or (entry.api, entry.path.startswith(STANDARDS)) == ("platform", True)
        )
    }
    called = {operation(app, row) for page in TABLE for row in shown(page)}
    assert sorted(known - called - set(WITHOUT)) == [], "add a row to tools/http_examples.toml"
    assert sorted(set(WITHOUT) - (known - called)) == [], "this operation has an example, or does not exist"
    assert all(reason.strip() for reason in WITHOUT.values())


def test_every_page_of_examples_is_current_and_included_once() -> None:
    pages = [path.read_text("utf-8") for path in sorted(EXAMPLES.parent.glob("*.md"))]
    assert {path.stem for path in EXAMPLES.iterdir()} == set(TABLE), "run tools/http_examples.py"
    for page in TABLE:
        text = (EXAMPLES / f"{page}.txt").read_text("utf-8")
        calls = [line for line in text.splitlines() if line.startswith("$ curl ")]
        assert len(calls) == len(shown(page)), f"run tools/http_examples.py {page}"
        assert text.count("\n") <= MOST_LINES, page
        assert sum(f"{{literalinclude}} examples/{page}.txt\n" in each for each in pages) == 1, page
