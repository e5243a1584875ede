"""Runs whose words come from the gateway's language models: paid by their time, or by the words."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts import charges
from sixfold.core.catalog.engines import Context, EngineError, Result, Task
from sixfold.core.provenance.formats import media_types
from sixfold.core.workers.remote_engines import HostServices

_DEFAULT, _VISION = "text-llm", "vision"  # the router's names of the default models for words and for images
_BY_WORDS = "units"


class ProviderChatEngine:
    """Asks the relay for `text-llm`, `chat` and `vision`.

    A variant that the operator's aliases name is that model; any other is the default for what is asked: a
    question with an image goes to a model that accepts images.
    """

    name = "relay"
    version = "1"

    def __init__(self, outside: HostServices) -> None:
        self._outside = outside

    async def run(self, task: Task, context: Context) -> Result:
        """What the model says."""
        parent = await self._outside.children.parent(task.id)
        relay = self._outside.relay
        picture = next(iter(task.files.values()), None)
        shown = "" if picture is None else await asyncio.to_thread(_shown, picture)
        variant = str(task.inputs.get("variant", ""))
        model = variant if variant in dict(relay.router.models()) else _VISION if shown else _DEFAULT
        held = parent.price if parent.meter == _BY_WORDS else 0
        context.progress(0.05)
        try:
            chat = self._outside.conversation(task.inputs, shown)
            reply = await relay.complete_prepaid(
                parent.account_id, ids.new("req"), chat, str(task.inputs.get("model") or model), held
            )
        except errors.SixfoldError as error:
            raise EngineError(error.message) from error
        used = reply.usage
        context.log(f"answered by {reply.target}: {used.input} tokens read, {used.output} written")
        lines = reply.charge.lines
        # The sum of the lines, which `reply.cost` is not where it was limited to what is held.
        return Result(data={"value": reply.answer.text}, billed=charges.total(lines), lines=lines)

    async def close(self) -> None:
        """The connections are the relay's."""


def _shown(path: Path) -> str:
    data = path.read_bytes()
    kind = media_types.find(data)
    media_type = kind.media_type if kind else "image/png"
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"
