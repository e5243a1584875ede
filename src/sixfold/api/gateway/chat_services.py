"""Chat and vision as services: their inputs as a conversation, and what one costs that is answered later."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Mapping
from typing import Any, cast

import msgspec

from sixfold import errors
from sixfold.api.gateway.openai import chat as chats
from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.core import money
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.prices import PriceRow
from sixfold.core.catalog.metering import TOKENS
from sixfold.core.catalog.models import Model
from sixfold.core.gateway.chat import ChatRequest
from sixfold.core.gateway.gateway import Gateway
from sixfold.core.predictions.service import PredictionService

NAMES = ("chat", "vision")
_SAID_AS_IT_IS = ("max_tokens", "temperature", "top_p")
_MOST_CHARS = 2**20  # of a conversation that waits in the queue: its pictures may wait as files
_PLACE = "data:image/png;base64,AA=="  # stands for a picture where only its tokens count
_encode = msgspec.json.Encoder().encode


def completion(values: Mapping[str, Any], picture: str = "") -> dict[str, Any]:
    """Checked inputs as a chat completion's request, a `picture` by its address."""
    turns: list[Any] = [*cast("list[Any]", values.get("messages") or [])]
    prompt = str(values.get("prompt") or "")
    if picture or prompt:
        said: list[dict[str, Any]] = [{"type": "text", "text": prompt}] if prompt else []
        shown = [{"type": "image_url", "image_url": {"url": picture}}] if picture else []
        turns.append({"role": "user", "content": [*said, *shown]})
    if values.get("system"):
        turns.insert(0, {"role": "system", "content": values["system"]})
    kept = {name: values[name] for name in _SAID_AS_IT_IS if name in values}
    return {"model": _named_or_default(values), "messages": turns, **kept}


def _named_or_default(values: Mapping[str, Any]) -> str:
    """The model that is named, else the default one: for images, one that accepts them."""
    return str(values.get("model") or ("vision" if values.get("image_url") else "default"))


def conversation(values: Mapping[str, Any], picture: str = "") -> ChatRequest:
    """The same in no dialect; raises `InvalidInput` for messages that are none."""
    with named():
        return chats.from_fields(completion(values, picture))


@contextlib.contextmanager
def named() -> Generator[None]:
    """What a chat completion calls wrong is an input's fault here."""
    try:
        yield
    except InvalidRequest as wrong:
        name = wrong.param.partition("[")[0] or "messages"
        raise errors.InvalidInput.of(name, wrong.message) from wrong


def join(relay: Gateway, pipeline: PredictionService) -> Callable[[Mapping[str, Any], str], ChatRequest]:
    """Let the pipeline take orders of them; gives what their engine reads its inputs with."""
    talks = _ChatServices(relay)
    pipeline.appraisers[TOKENS], pipeline.admit[TOKENS] = talks.price, talks.admit
    return conversation


class _ChatServices:
    """What the pipeline asks about such an order."""

    def __init__(self, relay: Gateway) -> None:
        self._relay = relay

    def price(self, _model: Model, values: Mapping[str, Any], *, charged: bool) -> PriceRow:
        """What is held: what the answer can cost at most; raises what the relay does for an unknown model."""
        del charged  # nobody talks for nothing but with a model of this machine
        chat = _waiting(values)
        micros = self._relay.max_cost(chat, _named_or_default(values))
        text = f"{money.format_usd(micros)} USD at most, by the tokens"
        return PriceRow(micros, money.credits_for(micros), text, "units", 1)

    async def admit(self, principal: Principal, values: Mapping[str, Any]) -> None:
        """Count it against a key's tokens a minute: what is asked, and what may be answered."""
        if principal.scope.tpm is not None:
            await self._relay.check_rate_limit(principal, _waiting(values))


def _waiting(values: Mapping[str, Any]) -> ChatRequest:
    """A conversation that will wait in the queue; raises `TooLarge`."""
    if len(_encode(values.get("messages") or [])) > _MOST_CHARS:
        raise errors.TooLarge(
            "A conversation that is answered later may have at most 1 MiB: give its pictures by address"
        )
    return conversation(values, _PLACE if values.get("image_url") else "")
