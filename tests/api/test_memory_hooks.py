"""Agents recall before a turn and remember after it: hooks, a header, and a filter of Open WebUI."""

from __future__ import annotations

import asyncio
import io
import json
import runpy
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sixfold.cli.memory import hooks
from tests.api.served_app import ServedApp, served_app
from tests.api.test_remember import settings
from tests.architecture import source
from tests.fakes.fact_model import FactModel, fact, fact_model
from tests.unit.cli.conftest import CommandResult, inside

STARTED = fact("Ann", "Ann started at Acme.", "I started at Acme last week", "2026-11-13")
# The lines of a transcript before the turn, of the turn, and those that are no messages of it.
EARLIER = [("user", "What is the capital of Peru?"), ("assistant", "Lima.")]
TURN = [("user", "Ann: I started at Acme last week."), ("assistant", "Congratulations!")]


def claude(role: str, text: str) -> dict[str, Any]:
    content: Any = text if role == "user" else [{"type": "text", "text": text}, {"type": "tool_use"}]
    return {"type": role, "message": {"role": role, "content": content}}


def codex(role: str, text: str) -> dict[str, Any]:
    kind = "input_text" if role == "user" else "output_text"
    payload = {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}
    return {"type": "response_item", "payload": payload}


CLAUDE_LINES = [
    *(claude(*each) for each in EARLIER),
    claude(*TURN[0]),
    {"type": "user", "message": {"role": "user", "content": [{"type": "tool_result", "content": "ok"}]}},
    {"type": "user", "isMeta": True, "message": {"role": "user", "content": "a reminder"}},
    {"type": "user", "message": {"role": "user", "content": "<<memory 0123456789ab>>\nexcerpts"}},
    {"type": "summary", "summary": "Greetings"},
    claude(*TURN[1]),
]
CODEX_LINES = [
    {"type": "session_meta", "payload": {"id": "x"}},
    *(codex(*each) for each in EARLIER),
    codex(*TURN[0]),
    {"type": "response_item", "payload": {"type": "message", "role": "developer", "content": []}},
    {"type": "event_msg", "payload": {"type": "agent_message", "message": "Congratulations!"}},
    codex(*TURN[1]),
]


@pytest.fixture
async def memory_server(tmp_path: Path) -> AsyncIterator[tuple[ServedApp, FactModel]]:
    """Run an app on a port, whose memory uses a fake model."""
    async with fact_model() as model:
        with served_app(tmp_path / "server", **settings(model)) as served:
            yield served, model


async def run_hook(
    served: ServedApp, monkeypatch: pytest.MonkeyPatch, event: object, *options: str
) -> CommandResult:
    monkeypatch.setenv("SIXFOLD_API_KEY", served.key)
    monkeypatch.setattr("sys.stdin", io.StringIO(event if isinstance(event, str) else json.dumps(event)))
    command = ("memory", "hook", "--api-url", served.url, *options)
    return await asyncio.to_thread(inside, Path("unused"), *command)


def transcript(folder: Path, lines: list[dict[str, Any]]) -> Path:
    path = folder / "transcript.jsonl"
    path.write_text("cut off}\n" + "".join(f"{json.dumps(line)}\n" for line in lines))
    return path


@pytest.mark.parametrize("lines", [CLAUDE_LINES, CODEX_LINES], ids=["claude-code", "codex"])
def test_last_turn_of_a_transcript_is_read(lines: list[dict[str, Any]], tmp_path: Path) -> None:
    turn = hooks.last_turn(transcript(tmp_path, lines))
    assert [(each["role"], each["content"]) for each in turn] == TURN


@pytest.mark.parametrize("lines", [CLAUDE_LINES, CODEX_LINES], ids=["claude-code", "codex"])
async def test_hook_remembers_a_turn_and_recalls_it(
    memory_server: tuple[ServedApp, FactModel],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    lines: list[dict[str, Any]],
) -> None:
    served, model = memory_server
    model.extract = [{"facts": [STARTED]}]
    prompt = {"hook_event_name": "UserPromptSubmit", "prompt": "Where does Ann work?"}
    assert await run_hook(served, monkeypatch, prompt) == CommandResult(0, "", ""), "nothing is known yet"
    stopped = {"hook_event_name": "Stop", "transcript_path": str(transcript(tmp_path, lines))}
    result = await run_hook(served, monkeypatch, stopped, "--folder", "people")
    assert result == CommandResult(0, "", ""), "agents read the output of this hook as instructions"
    source = str(model.requests[-1])
    assert "I started at Acme last week" in source
    assert "Peru" not in source
    recalled = await run_hook(served, monkeypatch, prompt)
    assert "people/ann" in recalled.out
    assert "Ann started at Acme." in recalled.out
    assert recalled.out.startswith("Excerpts of the user's memory")


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ("hello", "Standard input is not the event of a hook"),
        ([1], "Standard input is not the event of a hook"),
        ({"hook_event_name": "PreToolUse"}, "The hook event 'PreToolUse' is not supported"),
        ({"hook_event_name": "Stop", "transcript_path": "/nonexistent"}, "No such file"),
    ],
)
async def test_unusable_event_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, event: object, message: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(event if isinstance(event, str) else json.dumps(event)))
    result = inside(tmp_path, "memory", "hook", "--api-url", "http://127.0.0.1:9")
    assert (result.status, result.out) == (1, "")
    assert message in result.err


async def test_empty_prompt_is_not_searched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('{"hook_event_name": "UserPromptSubmit", "prompt": " "}'))
    assert inside(tmp_path, "memory", "hook", "--api-url", "http://127.0.0.1:9") == CommandResult(0, "", "")


def program(name: str) -> dict[str, Any]:
    """Return the names that a program of the guide defines."""
    return runpy.run_path(str(source.ROOT / "docs" / "howto" / "programs" / name))


async def test_openai_client_recalls_and_remembers(
    memory_server: tuple[ServedApp, FactModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    served, model = memory_server
    model.extract = [{"facts": [STARTED]}]
    model.chat_text = "Congratulations!"
    environ = {"SIXFOLD_URL": served.url, "SIXFOLD_API_KEY": served.key, "SIXFOLD_MODEL": "fake/small"}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    names = program("openai_memory.py")
    with names["client"]:
        for prompt in (TURN[0][1], "Where does Ann work?"):
            assert await asyncio.to_thread(names["chat"], prompt) == "Congratulations!"
    recalled = next(each for each in model.requests if "Where does Ann work?" in str(each))
    assert "Ann started at Acme." in str(recalled)


async def test_filter_of_open_webui_recalls_and_remembers(
    memory_server: tuple[ServedApp, FactModel],
) -> None:
    served, model = memory_server
    model.extract = [{"facts": [STARTED]}]
    chat_filter = program("open_webui_memory.py")["Filter"]()
    chat_filter.valves.url = served.url
    user = {"valves": chat_filter.UserValves(key=served.key)}
    await chat_filter.outlet({"messages": [{"role": role, "content": text} for role, text in TURN]}, user)
    question = {"role": "user", "content": "Where does Ann work?"}
    body = await chat_filter.inlet({"messages": [question]}, user)
    assert [each["role"] for each in body["messages"]] == ["system", "user"]
    assert "Ann started at Acme." in body["messages"][0]["content"]
    for stranger in ({}, {"valves": chat_filter.UserValves(key="sf_unknown")}):
        assert await chat_filter.inlet({"messages": [question]}, stranger) == {"messages": [question]}
