"""The models that accept an output as their input, for the menu below a result."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import msgspec

from sixfold import errors
from sixfold.core.catalog.inputs import Descriptor
from sixfold.core.catalog.models import Model
from sixfold.core.predictions import pricing
from sixfold.core.workflows import workflows
from sixfold.ui.catalog.abilities import ability_of
from sixfold.ui.catalog.cards import has_card
from sixfold.web.services import WebServices

# Seconds for which a list is cached; the set of available engines changes rarely.
_SECONDS = 10.0
_WORKFLOW = "space:"
_FILE_KINDS = ("image", "video", "audio", "model3d")
# Inputs that accept any text, best first, and the fields of data that are the text of a result.
_TEXT_INPUTS, _TEXT_FIELDS = ("text", "prompt", "input", "texts"), ("value", "text")


class NextModel(msgspec.Struct, frozen=True):
    """A model and its input that accepts the output; `ready` states whether an engine can run it now."""

    name: str
    title: str
    field: str
    price: str
    ready: bool


class NextModels:
    """Finds models by the kind of an output: image, video, audio, model3d or text."""

    def __init__(self, services: WebServices) -> None:
        self._services = services
        self._found: dict[str, tuple[float, tuple[NextModel, ...]]] = {}

    def for_kind(self, kind: str, source: str = "") -> tuple[NextModel, ...]:
        """Return the models with an input of this kind: ready ones first, and required inputs first.

        Models with the ability of `source`, the model that generated the output, follow the others.
        """
        if kind not in (*_FILE_KINDS, "text"):
            return ()
        made_at, models = self._found.get(kind, (float("-inf"), ()))
        if time.monotonic() - made_at > _SECONDS:
            models = self._find(kind)
            self._found[kind] = (time.monotonic(), models)
        ability = ability_of(source)
        repeated = (source,) if ability is None else ability.models
        return tuple(sorted(models, key=lambda each: (not each.ready, each.name in repeated)))

    def _find(self, kind: str) -> tuple[NextModel, ...]:
        ranked: list[tuple[tuple[bool, bool, bool, str], NextModel]] = []
        for model in self._services.catalog.models():
            form = workflows.with_files(model, self._services.workflows.classes)
            field = input_for(form, kind) if has_card(model) else None
            if field is None:
                continue
            terms, by_time = self._services.predictions.terms, model.name in self._services.templates
            price, _ = pricing.in_words(self._services.catalog, terms, model, by_time=by_time)
            ready = self._is_ready(model)
            order = (not ready, not field.required, model.name.startswith(_WORKFLOW), model.title)
            ranked.append((order, NextModel(model.name, model.title, field.name, price, ready)))
        return tuple(model for _, model in sorted(ranked, key=lambda each: each[0]))

    def _is_ready(self, model: Model) -> bool:
        try:
            model.choose({}, self._services.predictions.terms)
        except (errors.EngineUnavailable, errors.InvalidInput):
            return False
        return True


def input_for(model: Model, kind: str) -> Descriptor | None:
    """Return the input that accepts an output of this kind: a required one, or else the first."""
    if kind == "text":
        return _text_input(model)
    fields = [each for each in model.inputs if each.type == kind]
    return min(fields, key=lambda each: (not each.required, each.order), default=None)


def _text_input(model: Model) -> Descriptor | None:
    """Return the input for a text; a prompt that only describes a required file is not one."""
    needs_others = any(each.required for each in model.inputs)
    fields = [
        each
        for each in model.inputs
        if each.name in _TEXT_INPUTS
        and each.type in ("string", "texts")
        and not each.choices
        and (each.required or each.name == "text" or not needs_others)
    ]
    return min(fields, key=lambda each: (not each.required, _TEXT_INPUTS.index(each.name)), default=None)


def text_of(data: Mapping[str, Any]) -> str:
    """Return the text of a result, such as an answer, a transcript or a caption, or "" for other data."""
    return next((data[name] for name in _TEXT_FIELDS if isinstance(data.get(name), str)), "")
