"""What `/api/service` can be asked for, and how it stands: `/api/services`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.core.work.catalog import Model
from sixfold.core.work.inputs import Descriptor
from sixfold.web import answers, auth
from sixfold.web.descriptors import descriptor
from sixfold.web.services import Services

DEFAULT = "ra2"
MODELS = (
    DEFAULT,
    "ra1",
    "anime",
    "photoreal",
    "smart-resize",
    "remove-background",
    "video-a",
    "video-b",
    "video-c",
    "video-text",
    "video-image",
    "ra2v",
    "forecast",
    "tts",
    "stt",
    "caption",
    "embeddings",
)
TALKS = {
    "chat": "An answer of a language model, by a prompt or a conversation",
    "vision": "The same about a picture",
}
_PROMPT = (
    Descriptor("prompt", "string", "What to answer; or send messages", order=0),
    Descriptor("messages", "string", "A conversation, as in /v1/chat/completions", order=1),
    Descriptor("system", "string", "How to answer", order=2),
    Descriptor("model", "string", "One of /v1/models; the default when omitted", order=3),
    Descriptor("max_tokens", "integer", "The longest answer", min=1, order=4),
    Descriptor("temperature", "number", "How freely to choose words", min=0, max=2, order=5),
)
_PICTURE = Descriptor("image_url", "image", "The picture", required=True, order=6)
TALK_INPUTS = {"chat": _PROMPT, "vision": (*_PROMPT, _PICTURE)}
_TOKENS = "by the tokens of its model; models on this machine are free"
_NO_MODEL = (
    "No language model is known here. Start Ollama, llama.cpp or vLLM on this machine, set OPENAI_API_KEY "
    "or ANTHROPIC_API_KEY, or name a server in [gateway.upstreams] of sixfold.toml."
)


class Catalogue:
    """Every service, with its inputs, its price and whether it can be had now."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def knows(self, name: str) -> bool:
        """Whether a built-in service has this name."""
        return name in TALKS or name in MODELS or name in self._services.templates

    async def page(self, request: Request) -> Response:
        """All of them; with a key, the account's own models too."""
        rows = [*self._built_in()]
        if auth.bearer_token(request) is not None:
            principal = await self._services.doors.bearer(request)
            if not principal.scope.memory_only:
                own = await self._services.pipeline.own.of(principal.account_id)
                rows += [self._row(each.model, _service_name(each.kind, each.name)) for each in own]
        return answers.json(
            {"services": rows}, headers={"Cache-Control": "no-cache", "Vary": "Authorization"}
        )

    def _built_in(self) -> Iterator[dict[str, Any]]:
        catalog = self._services.catalog
        for name in MODELS:
            yield self._row(catalog[name], name)
        for name in TALKS:
            yield self._talk(name)
        for template in self._services.templates:
            if template.name in catalog and template.name not in MODELS:
                yield self._row(catalog[template.name], template.name)
        for model in catalog.models():
            if model.name.startswith("space:"):
                yield self._row(model, model.name)

    def _row(self, model: Model, name: str) -> dict[str, Any]:
        terms = self._services.pipeline.terms
        row: dict[str, Any] = {
            "service": name,
            "description": model.description,
            "inputs": [descriptor(each) for each in model.inputs],
            "output_kind": model.output_kind,
            "price": self._services.catalog.price_text(model),
        }
        try:
            engine, quality = model.choose({}, terms)
        except errors.EngineUnavailable as error:
            nothing = {"engine": None, "quality": None, "available": False}
            return {**row, **nothing, "unlock": error.message}
        found = {"engine": engine.name, "quality": quality, "available": True}
        more = model.unlock(terms)
        return {**row, **found, **({"unlock": more} if more and quality == "preview" else {})}

    def _talk(self, name: str) -> dict[str, Any]:
        row: dict[str, Any] = {
            "service": name,
            "description": TALKS[name],
            "inputs": [descriptor(each) for each in TALK_INPUTS[name]],
            "output_kind": "text",
            "price": _TOKENS,
        }
        known = dict(self._services.relay.router.models())
        if not known:
            return {**row, "engine": None, "quality": None, "available": False, "unlock": _NO_MODEL}
        return {**row, "engine": "default", "quality": "full", "available": True}


def _service_name(kind: str, name: str) -> str:
    """The name by which an account's own model is asked for."""
    return f"space:{name}" if kind == "workflow" and not name.startswith("space:") else name
