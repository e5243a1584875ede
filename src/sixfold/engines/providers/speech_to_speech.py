"""speech-to-speech with a language model: what was said is written down, answered, and the answer spoken.

Listening and speaking are runs of `stt` and `tts`, the answer is the gateway's; all of it is paid by the
time of the whole.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from typing import Any, Literal, cast

from sixfold import errors
from sixfold.core import ids
from sixfold.core.catalog.engines import Artifact, Context, EngineError, Result, Task, UnusableInput
from sixfold.core.gateway.chat import ChatMessage, ChatRequest, TextPart
from sixfold.core.media.media import MediaSource
from sixfold.core.media.ports import OutputFile
from sixfold.core.predictions.child_runs import ChildRun
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.states import PredictionState
from sixfold.core.workers.remote_engines import HostServices

_DEFAULT = "text-llm"  # the router's name for the default model
_ROLES: dict[str, Literal["user", "assistant"]] = {
    "user": "user",
    "assistant": "assistant",
    "model": "assistant",
}
_EFFORT = "medium"


class ProviderSpeechToSpeechEngine:
    """`converse` answers what was said, in words and aloud; `chat` answers in words only."""

    name = "conversing"
    version = "1"

    def __init__(self, outside: HostServices) -> None:
        self._outside = outside

    async def run(self, task: Task, context: Context) -> Result:
        """`{"task", "text", "heard"}`, and `audio` of a converse."""
        parent = await self._outside.children.parent(task.id)
        chat = _chat(task, "")  # what is wrong with it is told before anything is ordered
        said = str(task.inputs.get("text") or "").strip()
        heard = said or await self._heard(parent)
        if not heard:
            raise UnusableInput("Nothing was heard in the recording that could be answered.")
        context.progress(0.3)
        chat = _chat(task, heard)
        try:
            reply = await self._outside.relay.complete_prepaid(
                parent.account_id, ids.new("req"), chat, _DEFAULT
            )
        except errors.SixfoldError as error:
            raise EngineError(error.message) from error
        context.log(f"answered by {reply.target}")
        context.progress(0.6)
        text = reply.answer.text.strip()
        data = {"task": task.inputs["task"], "text": text, "heard": heard}
        if task.inputs["task"] == "chat":
            return Result(data=data, quality="full" if said else "preview")
        if not text:
            raise EngineError("The language model had nothing to say.")
        return Result((await self._spoken(parent, task, context, text),), data, "preview")

    async def _heard(self, parent: Prediction) -> str:
        blob = parent.task.files.get("audio")
        if blob is None:
            raise UnusableInput("There is nothing to answer: give text, or audio.")
        recording = MediaSource(blob, "application/octet-stream", 0)
        ended = await self._ordered(parent, ChildRun("stt", "stt", {}, {"audio_url": recording}))
        assert ended.output is not None  # noqa: S101 - it succeeded
        return str(ended.output.data.get("text") or "").strip()

    async def _spoken(self, parent: Prediction, task: Task, context: Context, text: str) -> Artifact:
        wanted = {"prompt": text, "format": task.inputs["audio_format"]}
        ended = await self._ordered(parent, ChildRun("tts", "tts", wanted))
        assert ended.output is not None  # noqa: S101 - it succeeded
        file: OutputFile = ended.output.files[0]
        source = MediaSource(file.blob, file.content_type, file.size)
        found = await self._outside.workshop.names.file(source, file.name)
        path = context.scratch / file.name
        await asyncio.to_thread(shutil.copyfile, found.path, path)
        return Artifact(file.content_type, info={**file.info, "name": "audio"}, path=path)

    async def _ordered(self, parent: Prediction, child: ChildRun) -> Prediction:
        try:
            ended = await self._outside.children.run(parent, child)
        except errors.SixfoldError as error:
            raise EngineError(error.message) from error
        if ended.state is not PredictionState.SUCCEEDED:
            raise EngineError(ended.error or f"{child.model} did not succeed")
        return ended

    async def close(self) -> None:
        """The connections are the relay's."""


def _chat(task: Task, said: str) -> ChatRequest:
    turns = [*_history(str(task.inputs.get("history") or "")), ChatMessage("user", (TextPart(said),))]
    effort = _EFFORT if task.inputs.get("enable_reasoning") else ""
    return ChatRequest(tuple(turns), system=str(task.inputs.get("system_prompt") or ""), effort=effort)


def _history(text: str) -> list[ChatMessage]:
    """What was said before; raises `UnusableInput`."""
    if not text.strip():
        return []
    try:
        rows: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnusableInput("history must be a JSON array of items with role and text.") from error
    items = cast("list[Any]", rows) if isinstance(rows, list) else [None]
    turns: list[ChatMessage] = []
    for item in items:
        row = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
        role, words = _ROLES.get(str(row.get("role"))), row.get("text")
        if role is None or not isinstance(words, str):
            raise UnusableInput("history must be a JSON array of items with role and text.")
        turns.append(ChatMessage(role, (TextPart(words),)))
    return turns
