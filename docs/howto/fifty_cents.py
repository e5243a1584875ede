"""An agent with a budget of fifty cents, which turns its notes into a video until the budget is spent.

SIXFOLD_API_KEY=sf_… python fifty_cents.py http://127.0.0.1:8600
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pprint import pformat
from typing import Any

import httpx2
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

NOTES = "projects/lighthouse-film"
NOTEBOOK = "notebook/lighthouse-film"
SHOTS = (
    "a lighthouse by the sea at dawn",
    "a sailboat on the sea, noon",
    "the lighthouse in fog",
    "the lighthouse under the stars",
)
SHOT = {"size": "1152x768", "seed": 7}
SECONDS = 5
WIDTH = 116


class Agent:
    """Calls tools of the server and prints each call, with short names for long URLs."""

    def __init__(self, tools: Client) -> None:
        self.tools = tools
        self.receipts: list[tuple[str, str]] = []
        self._names: dict[str, str] = {}

    async def call(self, tool: str, shown: str, **arguments: Any) -> Any:
        """Call a tool; print the call and some fields of the result."""
        sys.stdout.write(f"> {tool} {self._short(arguments)}\n")
        answer = (await self.tools.call_tool(tool, arguments)).structured_content
        result = answer["results"][0] if tool == "search" else answer
        sys.stdout.write(self._short({name: result[name] for name in shown.split()}) + "\n\n")
        return answer

    async def make(self, name: str, model: str, **inputs: Any) -> Any:
        """Run a model; return the URL of its output, or None if the budget does not suffice."""
        sys.stdout.write(f"> run {model} {self._short(inputs)}\n")
        order = {"model": model, "input": inputs, "wait": 300}
        answer = (await self.tools.call_tool("run", order)).structured_content
        if answer.get("code") == "budget_exceeded":
            sys.stdout.write(f"{answer['status']} {answer['code']}: {answer['error']}\n\n")
            return None
        [output] = answer["output"]
        self._names[output["url"]] = f"‹{name}›"
        self.receipts.append((name, answer["cost_usd"]))
        sys.stdout.write(
            f"{answer['status']}: ‹{name}›, {output['content_type']}, {answer['cost_usd']} USD\n\n"
        )
        return output["url"]

    def _short(self, value: Any) -> str:
        text = json.dumps(value, ensure_ascii=False)
        for url, name in self._names.items():
            text = text.replace(url, name)
        return pformat(json.loads(text), width=WIDTH, sort_dicts=False)


def project(pictures: list[str], voice: str, sea: str) -> dict[str, Any]:
    """Return a timeline: the shots with crossfades, a voice, and the sound of the sea."""
    shots = [{"url": url, "start": n * SECONDS, "duration": SECONDS} for n, url in enumerate(pictures)]
    for shot in shots[1:]:
        shot["transition"] = {"type": "crossfade", "duration": 1}
    tracks = [
        {"type": "image", "clips": shots},
        {
            "type": "audio",
            "clips": [
                {"url": voice, "start": 2},
                {"url": sea, "duration": len(shots) * SECONDS, "volume": 0.5},
            ],
        },
    ]
    return {"width": 480, "height": 320, "fps": 12, "tracks": tracks}


async def work(agent: Agent) -> None:
    """Read the notes, generate and edit a video, spend the rest on posters, and write a page about it."""
    found = await agent.call(
        "search", "slug snippet", query="What did Ann want for the lighthouse film?", limit=1
    )
    notes = await agent.call("read", "title body", slug=found["results"][0]["slug"])
    await agent.call("quote", "cost_usd engine quality", model="ra1", input={"prompt": SHOTS[0], **SHOT})
    shots = [await agent.make(f"shot {n}", "ra1", prompt=words, **SHOT) for n, words in enumerate(SHOTS, 1)]
    voice = await agent.make("voice", "tts", prompt="One day at the light.", voice="isla", format="wav")
    sea = await agent.make("sea", "sound-effects", prompt="waves on a beach", duration_seconds=20)
    film = await agent.make("film", "render", project=project(shots, voice, sea))
    for number, words in enumerate(SHOTS, 1):
        if not await agent.make(f"poster {number}", "ra1", prompt=f"a poster: {words}", size="768x1152"):
            break
    spent = sum(float(cost) for _, cost in agent.receipts)
    lines = [f"# {notes['title']}: done", f"The [film]({film}) is for [[{NOTES}]].", ""]
    lines += [f"- {name}: {cost} USD" for name, cost in agent.receipts]
    lines += ["", f"Together {spent:.3f} USD of 0.50: another poster did not fit."]
    await agent.call("write", "slug version", slug=NOTEBOOK, body="\n".join(lines))


async def main(origin: str) -> None:
    """Run the agent, and print the costs as the server states them."""
    bearer = {"Authorization": f"Bearer {os.environ['SIXFOLD_API_KEY']}"}  # noqa: TID251  # a program of its own
    async with (
        httpx2.AsyncClient(headers=bearer, timeout=330) as http,
        Client(streamable_http_client(f"{origin}/mcp", http_client=http)) as tools,
    ):
        await work(Agent(tools))
        listed = (await tools.call_tool("prediction", {"limit": 50})).structured_content["predictions"]
        for row in reversed(listed):
            sys.stdout.write(f"{row['model']:<14} {row['status']:<10} {row['cost_usd']:>9} USD\n")


asyncio.run(main(sys.argv[1]))
