"""docs/reference/mcp.md lists every tool and argument with the text of the registry."""

from __future__ import annotations

from typing import Any

from tests.api.app_fixture import AppFixture
from tests.architecture import source
from tests.mcp.agent import Agent

PAGE = "docs/reference/mcp.md"


def section(tool: dict[str, Any]) -> str:
    needed = set(tool["inputSchema"]["required"])
    rows = "".join(
        f"| `{name}`{' *' if name in needed else ''} | {_kind(schema)} | {_cell(schema['description'])} |\n"
        for name, schema in tool["inputSchema"]["properties"].items()
    )
    table = f"\n| argument | type | description |\n|---|---|---|\n{rows}" if rows else ""
    return f"### {tool['name']}\n\n{tool['description']}\n{table}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _kind(schema: dict[str, Any]) -> str:
    kind = "array of strings" if schema["type"] == "array" else schema["type"]
    if "enum" in schema:
        kind = ", ".join(f"`{choice}`" for choice in schema["enum"])
    low, high = schema.get("minimum"), schema.get("maximum")
    span = (
        "" if low is None and high is None else f", {low} or more" if high is None else f", {low} to {high}"
    )
    default = schema.get("default")
    response = (
        "" if default in (None, "") else f"; {str(default).lower() if isinstance(default, bool) else default}"
    )
    return f"{kind}{span}{response}"


async def test_reference_documents_every_tool_as_listed(app: AppFixture) -> None:
    tools = (await Agent(app).result("tools/list"))["tools"]
    text = source.text(PAGE)
    missing = "\n".join(section(tool) for tool in tools if section(tool) not in text)
    assert not missing, f"put this into {PAGE}:\n{missing}"
    headings = {line.removeprefix("### ") for line in text.splitlines() if line.startswith("### ")}
    assert headings == {tool["name"] for tool in tools}
