"""Ollama's lists of models: tags, show and ps, of every model that a key may use.

Source: https://docs.ollama.com/api (tags, show, ps).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypedDict

from sixfold.core.accounts.keys import Principal
from sixfold.core.clock import rfc3339
from sixfold.core.gateway.capabilities import CHAT, EMBEDDINGS, THINKING, TOOLS, VISION, ServedModel
from sixfold.core.gateway.routing import ModelRouter
from sixfold.errors import NotFound, SixfoldError

LATEST = ":latest"
# The built-in embedding model, which model servers do not list.
_OWN = ServedModel(EMBEDDINGS, frozenset({EMBEDDINGS}))
# Ollama's names of capabilities.
_CAPABILITIES: Mapping[str, str] = {
    CHAT: "completion",
    EMBEDDINGS: "embedding",
    VISION: "vision",
    TOOLS: "tools",
    THINKING: "thinking",
}
# Clients require a date, which this server does not store for models.
_MODIFIED_AT = rfc3339(1_763_683_200_000_000)
# Prefix of the fields of `model_info`, where Ollama has the architecture.
_ARCHITECTURE = "model"


class OllamaDetailsSchema(TypedDict):
    """Ollama's details of a model file; empty, because model servers do not report them."""

    parent_model: str
    format: str
    family: str
    families: list[str]
    parameter_size: str
    quantization_level: str


class OllamaModelSchema(TypedDict):
    """A model; `size` is 0, because model servers do not report it."""

    name: str
    model: str
    modified_at: str
    size: int
    digest: str
    details: OllamaDetailsSchema


class OllamaLoadedSchema(OllamaModelSchema):
    """A model that its server reports as loaded."""

    size_vram: int
    context_length: int


class OllamaShowSchema(TypedDict):
    """A model with its capabilities and its context length."""

    modelfile: str
    parameters: str
    template: str
    details: OllamaDetailsSchema
    model_info: dict[str, Any]
    capabilities: list[str]
    modified_at: str


class OllamaModels:
    """The models that a key may use; `visible` returns their names and owners."""

    def __init__(self, router: ModelRouter, visible: Callable[[Principal], list[tuple[str, str]]]) -> None:
        self._router = router
        self._visible = visible

    def resolve(self, requested: str) -> str:
        """Return the gateway's name of a model, without the tag `latest` unless a server lists that."""
        if not requested.endswith(LATEST):
            return requested
        try:
            targets = self._router.resolve(requested)
        except SixfoldError:
            targets = ()
        is_listed = any(target.model in target.upstream.models() for target in targets)
        return requested if is_listed else requested.removesuffix(LATEST)

    def thinks(self, name: str) -> bool:
        """Return whether the server reports that the model supports reasoning."""
        return THINKING in self._router.resolve_chat(name)[0].model_info().capabilities

    def tags(self, principal: Principal) -> list[OllamaModelSchema]:
        """Return every model that chats or embeds."""
        return [_row(name) for name, _ in self._models(principal)]

    def loaded(self, principal: Principal) -> list[OllamaLoadedSchema]:
        return [
            {**_row(name), "size_vram": 0, "context_length": model.context}
            for name, model in self._models(principal)
            if model.loaded
        ]

    def show(self, principal: Principal, requested: str) -> OllamaShowSchema:
        """Return one model; raises `NotFound`."""
        bare_name = requested.removesuffix(LATEST)
        for name, model in self._models(principal, shortest=False):
            if name.removesuffix(LATEST) == bare_name:
                return _details(name, model)
        raise NotFound(f"model '{requested[:100]}' not found")

    def _models(self, principal: Principal, *, shortest: bool = True) -> Iterator[tuple[str, ServedModel]]:
        """Yield the models; with `shortest`, omit names `SERVER/model` if the model has a shorter name."""
        models_by_name = self._router.listing()
        rows = self._visible(principal)
        names = {name for name, _ in rows}
        for name, owner in rows:
            model = _OWN if name == EMBEDDINGS and name not in models_by_name else models_by_name.get(name)
            if model is None or model.capabilities.isdisjoint({CHAT, EMBEDDINGS}):
                continue
            prefix = f"{owner}/"
            if not (shortest and name.startswith(prefix) and name.removeprefix(prefix) in names):
                yield name, model


def _tagged(name: str) -> str:
    """Return the name with a tag, because some clients cannot find a model without one."""
    return name if ":" in name.rpartition("/")[2] else name + LATEST


def _row(name: str) -> OllamaModelSchema:
    return {
        "name": _tagged(name),
        "model": _tagged(name),
        "modified_at": _MODIFIED_AT,
        "size": 0,
        "digest": hashlib.sha256(name.encode()).hexdigest(),
        "details": _file_details(),
    }


def _file_details() -> OllamaDetailsSchema:
    return {
        "parent_model": "",
        "format": "",
        "family": "",
        "families": [],
        "parameter_size": "",
        "quantization_level": "",
    }


def _details(name: str, model: ServedModel) -> OllamaShowSchema:
    info: dict[str, Any] = {"general.architecture": _ARCHITECTURE, "general.basename": name}
    if model.context:
        info[f"{_ARCHITECTURE}.context_length"] = model.context
    return {
        "modelfile": "",
        "parameters": "",
        "template": "",
        "details": _file_details(),
        "model_info": info,
        "capabilities": [word for each, word in _CAPABILITIES.items() if each in model.capabilities],
        "modified_at": _MODIFIED_AT,
    }
