"""Chat and vision among the models: an answer of a language model, asked of the relay."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from sixfold.core import money
from sixfold.core.relay.chat import Chat, Message, Part, Picture, Text
from sixfold.core.work import inputs
from sixfold.core.work.inputs import Descriptor
from sixfold.mcp.messages import Plain
from sixfold.mcp.server import Call
from sixfold.web.services import Services

PRICE = "by the tokens of its model; models on this machine are free"
_WORDS = (
    Descriptor("prompt", "string", "What to answer", required=True, max_chars=200_000),
    Descriptor("system", "string", "How to answer", default="", max_chars=100_000),
    Descriptor("model", "string", "One of /v1/models; the default when omitted", default=""),
    Descriptor("max_tokens", "integer", "The longest answer", min=1),
    Descriptor("temperature", "number", "How freely to choose words", min=0, max=2),
)
_PICTURE = Descriptor("image_url", "image", "The picture", required=True)
TALKS: Mapping[str, tuple[str, str, tuple[Descriptor, ...]]] = {
    "chat": ("Chat", "An answer of a language model", _WORDS),
    "vision": ("Vision", "An answer about a picture", (*_WORDS, _PICTURE)),
}


def checked(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs of a talk; raises `InvalidInput`."""
    return inputs.check(TALKS[name][2], given)


async def answer(services: Services, call: Call, name: str, given: Mapping[str, Any]) -> Plain:
    """What the model says, and what that cost."""
    values = checked(name, given)
    parts: tuple[Part, ...] = (Text(values["prompt"]),)
    if "image_url" in values:
        account_id = call.principal.account_id
        source = await services.media.resolve(account_id, _PICTURE, values["image_url"])
        data = base64.b64encode(await services.blobs.get(source.blob)).decode()
        parts = (*parts, Picture(media_type=source.content_type, data=data))
    chat = Chat(
        (Message("user", parts),),
        system=values["system"],
        max_tokens=values.get("max_tokens"),
        temperature=values.get("temperature"),
    )
    reply = await services.relay.complete(
        call.principal, call.request_id, chat, values["model"] or "default", "mcp"
    )
    said = reply.answer
    return {
        "model": name,
        "status": "succeeded",
        "text": said.text if said is not None else "",
        "engine": reply.target,
        "quality": "full",
        "cost_usd": money.format_usd(reply.cost),
        "credits": money.credits_for(reply.cost),
    }
