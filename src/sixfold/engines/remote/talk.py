"""text-llm: a run whose words come from the gateway's language models, paid by the time that it takes."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

from sixfold import errors
from sixfold.core import ids
from sixfold.core.relay.chat import Chat, Message, Picture, Text
from sixfold.core.work.engines import Context, EngineError, Result, Task
from sixfold.core.work.remote import Outside

_MAGIC = (
    (b"\x89PNG", "image/png"),
    (b"\xff\xd8", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"RIFF", "image/webp"),
)
_DEFAULT = "text-llm"  # the router's name for the default model, unless the operator gave it another


class TalkEngine:
    """Asks the relay. A variant that the operator's aliases name is that model; any other is the default."""

    name = "relay"
    version = "1"

    def __init__(self, outside: Outside) -> None:
        self._outside = outside

    async def run(self, task: Task, context: Context) -> Result:
        """What the model says."""
        parent = await self._outside.children.parent(task.id)
        picture = task.files.get("image")
        chat = _chat(task, None if picture is None else await asyncio.to_thread(_shown, picture))
        relay = self._outside.relay
        variant = str(task.inputs.get("variant", ""))
        model = variant if variant in dict(relay.router.models()) else _DEFAULT
        context.progress(0.05)
        try:
            reply = await relay.prepaid(parent.account_id, ids.new("req"), chat, model)
        except errors.SixfoldError as error:
            raise EngineError(error.message) from error
        context.log(f"answered by {reply.target}")
        return Result(data={"value": reply.answer.text})

    async def close(self) -> None:
        """The connections are the relay's."""


def _chat(task: Task, picture: Picture | None) -> Chat:
    inputs = task.inputs
    prompt = Text(str(inputs["prompt"]))
    return Chat(
        (Message("user", (prompt,) if picture is None else (prompt, picture)),),
        system=str(inputs.get("system") or ""),
        max_tokens=int(inputs["max_tokens"]),
        temperature=float(inputs["temperature"]),
        top_p=float(inputs["top_p"]),
    )


def _shown(path: Path) -> Picture:
    data = path.read_bytes()
    media_type = next((name for magic, name in _MAGIC if data.startswith(magic)), "image/png")
    return Picture(media_type=media_type, data=base64.b64encode(data).decode())
