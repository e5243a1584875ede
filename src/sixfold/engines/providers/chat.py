"""The engine of text models that the gateway serves, charged by time or by tokens."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts import charges
from sixfold.core.accounts.keys import Principal
from sixfold.core.catalog.engines import Context, EngineError, Result, Task
from sixfold.core.provenance.formats import media_types
from sixfold.engines.host_services import HostServices

# The router's names of the default models for text and for images.
_DEFAULT, _VISION = "text-llm", "vision"
_BY_UNITS = "units"  # the meter of runs that are charged by tokens


class ProviderChatEngine:
    """Serves `text-llm`, `chat` and `vision` through the gateway.

    `variant` selects a model by one of the operator's aliases. Any other value selects the default model, or
    the default model for images if the request contains an image.
    """

    name = "relay"
    version = "1"

    def __init__(self, outside: HostServices) -> None:
        self._outside = outside

    async def run(self, task: Task, context: Context) -> Result:
        """Return the model's reply as `value`."""
        parent = await self._outside.children.parent(task.id)
        gateway = self._outside.gateway
        path = next(iter(task.files.values()), None)
        image = "" if path is None else await asyncio.to_thread(_data_uri, path)
        variant = str(task.inputs.get("variant", ""))
        model = variant if variant in dict(gateway.router.models()) else _VISION if image else _DEFAULT
        held = parent.price if parent.meter == _BY_UNITS else 0
        context.progress(0.05)
        try:
            chat = self._outside.conversation(task.inputs, image)
            reply = await gateway.complete_prepaid(
                Principal(parent.account_id, "", ""),
                ids.new("req"),
                chat,
                str(task.inputs.get("model") or model),
                held,
            )
        except errors.SixfoldError as error:
            raise EngineError(error.message) from error
        usage = reply.usage
        context.log(f"answered by {reply.target}: {usage.input} input tokens, {usage.output} output tokens")
        lines = reply.charge.lines
        # `reply.cost` may be limited to the hold; the sum of the lines is not.
        return Result(data={"value": reply.text}, billed=charges.total(lines), lines=lines)

    async def close(self) -> None:
        """Do nothing: the connections belong to the gateway."""


def _data_uri(path: Path) -> str:
    data = path.read_bytes()
    kind = media_types.find(data)
    media_type = kind.media_type if kind else "image/png"
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"
