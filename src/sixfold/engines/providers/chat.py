"""The engine of text models that the gateway serves, charged by time or by tokens."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts import charges
from sixfold.core.accounts.keys import Principal
from sixfold.core.catalog.engines import Context, EngineError, Result, Task, UnusableInput
from sixfold.core.concurrency.memory_limit import MemoryLimit
from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.gateway.ports import PredictionPayment
from sixfold.core.gateway.requirements import token_limits
from sixfold.core.predictions import pricing
from sixfold.core.predictions.models import Prediction
from sixfold.core.provenance.formats import media_types
from sixfold.engines.host_services import HostServices

# The router's names of the default models for text and for images.
_DEFAULT, _VISION = "text-llm", "vision"
# In base64 it has 32 MiB, as the body of a request.
MAX_IMAGE_BYTES = 24 * 2**20
# Memory for the images of all runs, and the memory that a run needs in relation to the size of its image.
_MEMORY_BYTES, _IMAGE_COPIES = 168 * 2**20, 7
# A run waits for the memory like in a queue; all concurrent runs may wait.
_WAIT_SECONDS, _MAX_WAITING = 600.0, 64
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
        self._memory = MemoryLimit(
            _MEMORY_BYTES,
            "Other images are being sent to model servers: try again later",
            _WAIT_SECONDS,
            _MAX_WAITING,
        )

    async def run(self, task: Task, context: Context) -> Result:
        """Return the model's reply as `value`."""
        parent = await self._outside.children.parent(task.id)
        path = next(iter(task.files.values()), None)
        if path is None:
            return await self._answer(task, context, parent, "")
        lease = self._memory.lease(parent.account_id)
        try:
            await lease.resize(_IMAGE_COPIES * await asyncio.to_thread(_checked_size, path))
            image = await asyncio.to_thread(_data_uri, path)
            return await self._answer(task, context, parent, image)
        except errors.TooManyRequests as error:
            raise EngineError(error.message) from error
        finally:
            lease.release()

    async def _answer(self, task: Task, context: Context, parent: Prediction, image: str) -> Result:
        gateway = self._outside.gateway
        variant = str(task.inputs.get("variant", ""))
        model = variant if variant in dict(gateway.router.models()) else _VISION if image else _DEFAULT
        held = parent.price if parent.meter == _BY_UNITS else 0
        context.progress(0.05)
        try:
            model = str(task.inputs.get("model") or model)
            pricing.check_still_own(parent, is_own=gateway.router.is_local(model))
            chat = await PARSER.run_large(len(image), self._outside.conversation, task.inputs, image)
            principal = await self._outside.children.principal(parent)
            reply = await gateway.complete_prepaid(
                Principal(parent.account_id, principal.kind, ""),
                ids.new("req"),
                chat,
                model,
                PredictionPayment(parent.id, held, bool(parent.price), parent.withheld),
                (task.model,),
            )
            await token_limits.add_reply(gateway.token_rates, principal, chat, reply.usage)
        except errors.SixfoldError as error:
            raise EngineError(error.message) from error
        usage = reply.usage
        context.log(f"answered by {reply.target}: {usage.input} input tokens, {usage.output} output tokens")
        lines = reply.charge.lines
        # `reply.cost` may be limited to the hold; the sum of the lines is not.
        return Result(data={"value": reply.text}, billed=charges.total(lines), lines=lines)

    async def close(self) -> None:
        """Do nothing: the connections belong to the gateway."""


def _checked_size(path: Path) -> int:
    """Return the size of an image in bytes; raises `UnusableInput`."""
    size = path.stat().st_size
    if size > MAX_IMAGE_BYTES:
        raise UnusableInput(f"An image for a language model must be at most {MAX_IMAGE_BYTES >> 20} MiB.")
    return size


def _data_uri(path: Path) -> str:
    data = path.read_bytes()
    kind = media_types.find(data)
    media_type = kind.media_type if kind else "image/png"
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"
