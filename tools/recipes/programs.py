"""The recipes: the packages of each program, the function that runs it, and the expected output."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from tools.recipes import open_webui
from tools.recipes.installation import Packages
from tools.recipes.place import GUIDE, Place


@dataclass(frozen=True, slots=True)
class Recipe:
    """A program, and the strings that its output must contain."""

    name: str
    packages: Packages
    run: Callable[[Place], Awaitable[str]]
    prints: tuple[str, ...]


def _python(script: str) -> Callable[[Place], Awaitable[str]]:
    async def run(place: Place) -> str:
        return await place.call(str(place.folder / "venv/bin/python"), str(GUIDE / script))

    return run


async def _vercel(place: Place) -> str:
    # Node looks for packages beside the script.
    script = place.folder / "vercel_ai.mjs"
    script.write_bytes((GUIDE / "vercel_ai.mjs").read_bytes())
    return await place.call("node", str(script))


async def _claude(place: Place) -> str:
    return await place.call(
        *("claude", "-p", "say 3 words", "--model", "chat"),
        ANTHROPIC_BASE_URL=place.origin,
        ANTHROPIC_AUTH_TOKEN=place.key,
        ANTHROPIC_SMALL_FAST_MODEL="chat",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
    )


async def _codex(place: Place) -> str:
    home = place.folder / "home" / ".codex"
    home.mkdir(parents=True, exist_ok=True)
    settings = (GUIDE / "codex_config.toml").read_text("utf-8").replace("http://127.0.0.1:8600", place.origin)
    (home / "config.toml").write_text(settings, "utf-8")
    return await place.call("codex", "exec", "--skip-git-repo-check", "say 3 words")


async def _inspector(place: Place) -> str:
    server = {
        "command": sys.executable,
        "args": ["-m", "sixfold", "mcp", "--api-url", place.origin],
        "env": {"SIXFOLD_API_KEY": place.key},
    }
    settings = place.folder / "mcp.json"
    settings.write_text(json.dumps({"mcpServers": {"sixfold": server}}), "utf-8")
    start = ("mcp-inspector", "--cli", "--config", str(settings), "--server", "sixfold", "--method")
    listed = await place.call(*start, "tools/list")
    write = ("slug=inspected", "body=a zeppelin over the harbour", "overwrite=true")
    arguments = [part for each in write for part in ("--tool-arg", each)]
    written = await place.call(*start, "tools/call", "--tool-name", "write", *arguments)
    found = await place.call(*start, "tools/call", "--tool-name", "search", "--tool-arg", "query=zeppelin")
    names = [tool["name"] for tool in json.loads(listed)["tools"]]
    return f"{' '.join(names)}\n{written}\n{found}"


async def _n8n(place: Place) -> str:
    allowed = {"N8N_BLOCK_ENV_ACCESS_IN_NODE": "false", "N8N_DIAGNOSTICS_ENABLED": "false"}
    workflow = str(GUIDE / "n8n_workflow.json")
    await place.call("n8n", "import:workflow", f"--input={workflow}", **allowed)
    return await place.call("n8n", "execute", "--id=sixfoldRecipe001", "--rawOutput", **allowed)


_CHATS = ("chat: word word word", "stream: word word word")
RECIPES: Mapping[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            "langchain",
            Packages(python=("langchain", "langchain-openai", "langchain-anthropic")),
            _python("langchain_chat.py"),
            (
                *_CHATS,
                "tool: {'city': 'Oslo'}",
                "structured: Oslo",
                "responses: word word",
                "anthropic: word word word",
                "embeddings: 384 dimensions",
            ),
        ),
        Recipe(
            "llamaindex",
            Packages(python=("llama-index-llms-openai-like", "llama-index-embeddings-openai-like")),
            _python("llamaindex_chat.py"),
            (*_CHATS, "completion: word word", "embeddings: 384 dimensions"),
        ),
        Recipe(
            "vercel-ai",
            Packages(npm=("ai", "@ai-sdk/openai", "@ai-sdk/openai-compatible", "@ai-sdk/anthropic", "zod")),
            _vercel,
            (
                "text: word word word",
                "stream: word word word word",
                'tool: "rain in Oslo"',
                'object: {"city":"Oslo"}',
                "responses: word word",
                "anthropic: word word word",
                "embeddings: 384 dimensions",
                "image: image/",
                "speech: audio/",
            ),
        ),
        Recipe("claude-code", Packages(npm=("@anthropic-ai/claude-code",)), _claude, ("word word word",)),
        Recipe("codex", Packages(npm=("@openai/codex",)), _codex, ("word word word",)),
        Recipe(
            "n8n", Packages(npm=("n8n",), disk_gib=5, overrides={"xlsx": "0.18.5"}), _n8n, ("word word word",)
        ),
        Recipe(
            "open-webui",
            Packages(python=("open-webui",), disk_gib=12),
            open_webui.run,
            (
                "role: admin",
                "models: True",
                "chat: word word word",
                "stream: 3 words",
                "image: image/png",
                "speech: 200, True",
                "document: The zeppelin lands at noon.",
            ),
        ),
        Recipe(
            "mcp-inspector",
            Packages(npm=("@modelcontextprotocol/inspector",)),
            _inspector,
            ("search", "write", "inspected", "zeppelin"),
        ),
    )
}
