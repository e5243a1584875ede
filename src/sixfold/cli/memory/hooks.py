"""`memory hook`: the command of a hook that agents such as Claude Code and Codex run around each turn.

Before a turn, it prints what the memory knows about the prompt, which the agent adds to its context. After a
turn, it sends the messages of the turn to `remember`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from sixfold.cli.client import ServerClient
from sixfold.cli.terminal import CommandError

_EVENT_CHARACTERS = 4_194_304
_QUERY_CHARACTERS = 10_000
# The end of a transcript that is read, and the part of a message that is sent.
_TRANSCRIPT_BYTES = 4_194_304
_MESSAGE_CHARACTERS = 20_000
_MESSAGES = 200
# Excerpts of the memory are in transcripts, too; facts must not come from them again.
_EXCERPTS = "<<memory "


def hook(arguments: argparse.Namespace) -> int:
    """Run `memory hook`: recall for the event `UserPromptSubmit`, remember for `Stop`."""
    event = _event()
    client = ServerClient.of(arguments)
    match event.get("hook_event_name"):
        case "UserPromptSubmit":
            _recall(client, arguments, str(event.get("prompt") or ""))
        case "Stop":
            _remember(client, arguments, Path(str(event.get("transcript_path") or "")))
        case other:
            raise CommandError(
                f"The hook event {str(other)[:100]!r} is not supported: use UserPromptSubmit and Stop"
            )
    return 0


def _event() -> Mapping[str, Any]:
    try:
        event = json.loads(sys.stdin.read(_EVENT_CHARACTERS))
    except ValueError:
        event = None
    if not isinstance(event, dict):
        raise CommandError(
            "Standard input is not the event of a hook: `sixfold memory hook` is a command for the hooks of "
            "Claude Code or Codex"
        )
    return cast("dict[str, Any]", event)


def _recall(client: ServerClient, arguments: argparse.Namespace, prompt: str) -> None:
    if not prompt.strip():
        return
    body = {
        "query": prompt[:_QUERY_CHARACTERS],
        "tokens": arguments.tokens,
        "collections": arguments.collection,
    }
    response = client.post("/api/context", body)
    if response["sources"]:
        sys.stdout.write(f"{response['text']}\n")


def _remember(client: ServerClient, arguments: argparse.Namespace, transcript: Path) -> None:
    """Send the last turn; print nothing, as agents read the output of this hook as instructions."""
    turn = last_turn(transcript)
    if not turn:
        return
    body = {
        "messages": turn[-_MESSAGES:],
        "folder": arguments.folder,
        "source": "conversation",
        "collections": arguments.collection,
    }
    client.post("/api/remember", {name: value for name, value in body.items() if value})


def last_turn(transcript: Path) -> list[dict[str, str]]:
    """Return the messages from the user's last one on; both agents write a JSON object per line."""
    turn: list[dict[str, str]] = []
    with transcript.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _TRANSCRIPT_BYTES))
        for line in file.read(_TRANSCRIPT_BYTES).splitlines():
            for role, text in _messages(line):
                if role == "user":
                    turn = []
                if turn or role == "user":
                    turn.append({"role": role, "content": text[:_MESSAGE_CHARACTERS]})
    return turn


def _messages(line: bytes) -> Iterator[tuple[str, str]]:
    """Yield the message of a line: `message` of Claude Code, or `payload` of Codex."""
    try:
        entry = json.loads(line)
    except ValueError:  # the first line may be incomplete
        return
    if not isinstance(entry, dict):
        return
    fields = cast("dict[str, Any]", entry)
    message = fields.get("message") or fields.get("payload")
    if fields.get("isMeta") or not isinstance(message, dict):
        return
    message = cast("dict[str, Any]", message)
    role, content = message.get("role"), message.get("content")
    parts = cast("list[Any]", content) if isinstance(content, list) else [{"text": content}]
    texts = [cast("dict[str, Any]", part).get("text") for part in parts if isinstance(part, dict)]
    text = "\n".join(each for each in texts if isinstance(each, str)).strip()
    if role in ("user", "assistant") and text and _EXCERPTS not in text:
        yield role, text
