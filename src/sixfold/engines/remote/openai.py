"""OpenAI's image models as engines, and those of servers that speak like it."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any

from sixfold.core.work.engines import Context, EngineError, Result, Task
from sixfold.core.work.remote import Outside
from sixfold.engines.remote import images, routes
from sixfold.engines.remote.images import Desk, Drawn
from sixfold.engines.remote.routes import Call, Over, Used
from sixfold.upstreams.calls import Calls, Limits
from sixfold.upstreams.openai import OPENAI, Images, OpenAI


class OpenAIEngine:
    """One capability through OpenAI's images API; options as those of `FalEngine`.

    Its calls are answered while they are open, so a run that ends early closes them; there is nothing that
    could be canceled.
    """

    version = "1"

    def __init__(
        self,
        outside: Outside,
        *,
        route: str,
        base_url: str = "",
        limits: Mapping[str, Any] | None = None,
        **over: Any,
    ) -> None:
        self._outside = outside
        self._route = routes.route("openai", route, Over(**over))
        self._base_url = base_url
        self._limits = Limits(**(limits or {}))
        self.name = self._route.name

    async def run(self, task: Task, context: Context) -> Result:
        """Have it drawn, or repainted where the route takes a source."""
        openai = OpenAI(
            Calls(
                self._outside.client,
                OPENAI,
                self._outside.key("openai_api_key"),
                base_url=self._base_url,
                limits=self._limits,
                names=self._route.names(),
            )
        )

        async def draw(call: Call, desk: Desk, report: Callable[[float], None]) -> Drawn:
            report(0.05)
            fields = {"model": self._route.model, **call.inputs}
            if "source" in self._route.fields:
                sent = desk.source()
                made = await openai.edit(fields, [(sent.name, sent.data, sent.content_type)])
            else:
                made = await openai.generate(fields)
            report(1.0)
            return await asyncio.to_thread(_drawn, made)

        desk = Desk(OPENAI.title, self._outside, context, self._limits)
        return await images.run(task, context, self._route, draw, desk)

    async def close(self) -> None:
        """Nothing is held between runs: connections are the server's."""


def _drawn(made: Images) -> Drawn:
    try:
        decoded = [base64.b64decode(text, validate=True) for text in made.encoded]
    except binascii.Error as error:
        raise EngineError("OpenAI gave a picture that cannot be read; try again.") from error
    found: list[bytes | str] = [*decoded, *made.addresses]
    usage = made.usage
    if usage is None:
        return Drawn(found, Used(images=len(found)))
    used = Used(images=len(found), text_in=usage.text_in, image_in=usage.image_in, out=usage.out)
    return Drawn(found, used)
