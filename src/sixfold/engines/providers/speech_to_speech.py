"""Speech-to-speech with a language model: a recording is transcribed, and a reply is generated and spoken.

Transcription and speech are child runs of `stt` and `tts`, and the gateway generates the reply. The charge is
by the time of the whole run.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from typing import Any, Literal, cast

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts.keys import Principal
from sixfold.core.catalog.engines import Artifact, Context, EngineError, Result, Task, UnusableInput
from sixfold.core.gateway.chat import ChatMessage, ChatRequest, TextPart
from sixfold.core.gateway.ports import PredictionPayment
from sixfold.core.gateway.requirements import token_limits
from sixfold.core.media.media import MediaSource
from sixfold.core.media.ports import OutputFile
from sixfold.core.predictions import pricing, repository
from sixfold.core.predictions.child_runs import ChildRun
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.states import PredictionState
from sixfold.engines.host_services import HostServices

_DEFAULT = "text-llm"  # the router's name for the default model
_ROLES: dict[str, Literal["user", "assistant"]] = {
    "user": "user",
    "assistant": "assistant",
    "model": "assistant",
}
_EFFORT = "medium"


class ProviderSpeechToSpeechEngine:
    """Runs the task `converse`, which replies in text and speech, and `chat`, which replies in text."""

    name = "conversing"
    version = "1"

    def __init__(self, outside: HostServices) -> None:
        self._outside = outside

    async def run(self, task: Task, context: Context) -> Result:
        """Return `task`, the reply as `text`, the transcript as `heard`, and `audio` for `converse`."""
        parent = await self._outside.children.parent(task.id)
        _chat(task, "")  # reports invalid inputs before a child run starts
        text_input = str(task.inputs.get("text") or "").strip()
        transcript = text_input or await self._transcribe(parent)
        if not transcript:
            raise UnusableInput("No speech was found in the recording.")
        context.progress(0.3)
        chat = _chat(task, transcript)
        try:
            gateway = self._outside.gateway
            pricing.check_still_own(parent, is_own=gateway.router.is_local(_DEFAULT))
            principal = await self._outside.children.principal(parent)
            payment = PredictionPayment(parent.id, 0, bool(parent.price), parent.withheld)
            payer = Principal(parent.account_id, principal.kind, "")
            reply = await gateway.complete_prepaid(payer, ids.new("req"), chat, _DEFAULT, payment)
            await token_limits.add_reply(gateway.token_rates, principal, chat, reply.usage)
        except errors.SixfoldError as error:
            raise EngineError(error.message) from error
        context.log(f"answered by {reply.target}")
        context.progress(0.6)
        text = reply.text.strip()
        data = {"task": task.inputs["task"], "text": text, "heard": transcript}
        if task.inputs["task"] == "chat":
            return Result(data=data, quality="full" if text_input else "preview")
        if not text:
            raise EngineError("The language model returned an empty reply.")
        return Result((await self._speak(parent, task, context, text),), data, "preview")

    async def _transcribe(self, parent: Prediction) -> str:
        blob = parent.task.files.get("audio")
        if blob is None:
            raise UnusableInput("text or audio is required.")
        recording = MediaSource(blob, "application/octet-stream", 0)
        child = await self._run_child(parent, ChildRun("stt", "stt", {}, {"audio_url": recording}))
        assert child.output is not None  # noqa: S101 - it succeeded
        return str(child.output.data.get("text") or "").strip()

    async def _speak(self, parent: Prediction, task: Task, context: Context, text: str) -> Artifact:
        inputs = {"prompt": text, "format": task.inputs["audio_format"]}
        child = await self._run_child(parent, ChildRun("tts", "tts", inputs))
        assert child.output is not None  # noqa: S101 - it succeeded
        file: OutputFile = child.output.files[0]
        source = MediaSource(file.blob, file.content_type, file.size)
        stored = await self._outside.workflows.names.file(source, file.name)
        path = context.scratch / file.name
        await asyncio.to_thread(shutil.copyfile, stored.path, path)
        return Artifact(file.content_type, info={**file.info, "name": "audio"}, path=path)

    async def _run_child(self, parent: Prediction, request: ChildRun) -> Prediction:
        try:
            child = await self._outside.children.run(parent, request)
        except errors.SixfoldError as error:
            raise EngineError(error.message) from error
        if child.state is not PredictionState.SUCCEEDED:
            failure = UnusableInput if child.error_kind == repository.UNUSABLE else EngineError
            raise failure(child.error or f"{request.model} did not succeed")
        return child

    async def close(self) -> None:
        """Do nothing: the connections belong to the gateway."""


def _chat(task: Task, text: str) -> ChatRequest:
    messages = [*_history(str(task.inputs.get("history") or "")), ChatMessage("user", (TextPart(text),))]
    effort = _EFFORT if task.inputs.get("enable_reasoning") else ""
    return ChatRequest(tuple(messages), system=str(task.inputs.get("system_prompt") or ""), effort=effort)


def _history(text: str) -> list[ChatMessage]:
    """Parse the earlier messages; raises `UnusableInput`."""
    if not text.strip():
        return []
    try:
        rows: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnusableInput("history must be a JSON array of items with role and text.") from error
    items = cast("list[Any]", rows) if isinstance(rows, list) else [None]
    messages: list[ChatMessage] = []
    for item in items:
        row = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
        role, content = _ROLES.get(str(row.get("role"))), row.get("text")
        if role is None or not isinstance(content, str):
            raise UnusableInput("history must be a JSON array of items with role and text.")
        messages.append(ChatMessage(role, (TextPart(content),)))
    return messages
