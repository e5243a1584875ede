"""`/catalog`: the list of models, and a page for each with its form, price and engines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.core.accounts import rights
from sixfold.core.catalog import availability
from sixfold.core.catalog.hardware import Hardware
from sixfold.core.catalog.inputs import LIST_TYPES, MEDIA_TYPES, Descriptor
from sixfold.core.catalog.models import Model
from sixfold.core.catalog.templates import Template
from sixfold.core.media.media import MEDIA_PATH
from sixfold.core.predictions import pricing
from sixfold.core.predictions.queries import PredictionFilter
from sixfold.core.predictions.service import PredictionService
from sixfold.core.provenance.formats import media_types
from sixfold.core.workflows import workflows
from sixfold.ui.auth import PageAuth, PageUser
from sixfold.ui.catalog import abilities, code_samples, example_outputs, initial_values, input_files
from sixfold.ui.catalog.cards import (
    SECTIONS,
    AbilityCard,
    CatalogCard,
    by_ability,
    current_section,
    filter_cards,
    has_card,
    section_of,
)
from sixfold.ui.catalog.initial_values import InitialValues
from sixfold.ui.catalog.input_files import InputFile, RecentFiles
from sixfold.ui.templating import PageTemplates
from sixfold.web import requests
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices

# The earlier name of the query parameter `section`, which links may still use.
_OLD_SECTION_PARAMETER = "shelf"
_LATEST_PREDICTIONS = 100
# Text inputs with a higher length limit are multi-line fields.
_MAX_LINE_CHARS = 200
# Number inputs with a larger range are number fields instead of sliders.
_MAX_SLIDER_RANGE = 100_000
# A box is left, top, right and bottom; a point is x, y and whether it is on the subject.
_BOX_NUMBERS, _POINT_NUMBERS = 4, 3
_EXAMPLES = {
    "prompt": "A lighthouse above a stormy sea at dusk",
    "text": "Good morning.",
    "style": "calm piano",
}


class FormField(msgspec.Struct, frozen=True):
    """An input of a form; `control` is text, long, choice, switch, slider, number or file.

    `label` names the file in `value`, or is ""; `recent` are files of the user that fit.
    """

    descriptor: Descriptor
    control: str
    value: Any
    label: str = ""
    recent: Sequence[InputFile] = ()

    @property
    def signatures(self) -> str:
        """A regular expression for the first bytes of the files that the field accepts, or ""."""
        return media_types.heads_of(self.descriptor.type) if self.control == "file" else ""

    @property
    def marks(self) -> str:
        """The shape that an image editor draws for this input: mask, box, points, or ""."""
        return _marks(self.descriptor)

    @property
    def wide(self) -> bool:
        """Whether the field is as wide as the form."""
        return self.control in ("long", "file", "text")


def price_text(predictions: PredictionService, model: Model, *, by_time: bool = False) -> str:
    """Return the price of a typical request as text, with the list price if it is free here.

    `by_time` is for models with a template, whose runs from the pages are charged by time.
    """
    price, list_price = pricing.in_words(predictions.catalog, predictions.terms, model, by_time=by_time)
    return price if list_price is None else f"{price} (list price: {list_price})"


def _marks(descriptor: Descriptor) -> str:
    is_marked = {
        "mask": descriptor.type == "image",
        "box": descriptor.type == "numbers" and descriptor.max_items == _BOX_NUMBERS,
        "points": descriptor.type == "numbers" and (descriptor.max_items or 1) % _POINT_NUMBERS == 0,
    }
    return descriptor.name if is_marked.get(descriptor.name) else ""


def control(descriptor: Descriptor) -> str:
    """Return the kind of form control for an input."""
    if descriptor.type == "numbers" and _marks(descriptor):
        return "text"
    if descriptor.type in MEDIA_TYPES:
        return "file"
    if descriptor.type == "boolean":
        return "switch"
    if descriptor.choices:
        return "choice"
    if descriptor.type in ("integer", "number"):
        low, high = descriptor.min, descriptor.max
        return (
            "slider" if low is not None and high is not None and high - low < _MAX_SLIDER_RANGE else "number"
        )
    if descriptor.type in LIST_TYPES or descriptor.type == "project":
        return "long"
    return "long" if descriptor.max_chars is None or descriptor.max_chars > _MAX_LINE_CHARS else "text"


# A form with more fields is slow to render; further inputs can only be set by API.
MAX_FIELDS = 200


def form_fields(model: Model, initial: InitialValues, recent: RecentFiles) -> list[FormField]:
    """Return the first `MAX_FIELDS` form fields of a model with their initial values.

    `recent` are the user's files by kind.
    """
    return [
        FormField(
            descriptor,
            control(descriptor),
            initial.inputs.get(descriptor.name, descriptor.default),
            initial.labels.get(descriptor.name, ""),
            recent.get(descriptor.type, ()),
        )
        for descriptor in sorted(model.inputs, key=lambda each: each.order)[:MAX_FIELDS]
    ]


class CatalogPages:
    """The catalog and the pages of its models."""

    def __init__(self, services: WebServices, pages: PageTemplates, auth: PageAuth) -> None:
        self._services = services
        self._pages = pages
        self._auth = auth

    async def show_list(self, request: Request) -> Response:
        """List the models by section; query parameters filter them by text and section."""
        user = await self._auth.user(request)
        query = request.query_params.get("q", "")[:100].strip().lower()
        parameters = request.query_params
        section = parameters.get("section", parameters.get(_OLD_SECTION_PARAMETER, ""))
        section = current_section(section)
        models = [] if requests.cursor(request) else [*self._services.catalog.models()]
        next_cursor: str | None = None
        if user is not None:
            own_models, next_cursor = await requests.own_models(
                self._services.predictions.custom_models, request, user.account_id
            )
            models += [entry.model for entry in own_models]
        images = await self._latest_images(user)
        cards = by_ability(
            [self._card(model, images.get(model.name, "")) for model in models if has_card(model)]
        )
        matches = filter_cards(cards, query, section)
        ready, others = ([card for card in matches if card.ready is value] for value in (True, False))
        return self._pages.render(
            "catalog/list.html",
            user.session if user is not None else None,
            sections={
                **{name: [card for card in ready if card.section == name] for name in SECTIONS},
                "Needs a model or a key": others,
            },
            counts=_counts(filter_cards(cards, query, "")),
            shown=_counts(cards),
            query=query,
            section=section,
            total=len(matches),
            next_cursor=next_cursor,
            filler=" ".join(sorted(abilities.filler())),
        )

    async def show_model(self, request: Request) -> Response:
        """Show a model's form; `from` fills it with the inputs of a prediction or of the example."""
        user = await self._auth.user(request)
        name = requests.path_value(request, "name")
        model = (
            self._services.catalog.public(name)
            if user is None
            else await self._services.predictions.find(name, user.account_id)
        )
        initial = await initial_values.of_request(self._services, request, user, model)
        values = initial.inputs
        form = workflows.with_files(model, self._services.workflows.classes)
        fields = form_fields(form, initial, await input_files.recent(self._services, user, form))
        inputs = {
            each.descriptor.name: values.get(each.descriptor.name, _example(each.descriptor))
            for each in fields
            if each.descriptor.required or each.descriptor.name in values
        }
        return self._pages.render(
            "catalog/model.html",
            user.session if user is not None else None,
            card=self._card(model),
            engines=self._engines(model),
            fields=fields,
            template=self._template(model),
            hardware=self._hardware(model),
            options=initial.options,
            run=initial.run,
            shared=initial.shared,
            max_bytes=self._services.settings.upload_body_bytes,
            samples=code_samples.build(self._services.settings.base_url, model.name, inputs),
            user=user,
            query=initial_values.query_of(request),
        )

    # -- template values -------------------------------------------------------------------------

    def _card(self, model: Model, image: str = "") -> CatalogCard:
        terms = self._services.predictions.terms
        try:
            quality = availability.serving(self._services.catalog, model, terms)[1]
            unlock = model.unlock(terms)
        except errors.EngineUnavailable as error:
            quality, unlock = "", error.message
        template = self._template(model)
        category = template.category if template is not None else None
        return CatalogCard(
            model=model,
            section=section_of(model, category),
            price=price_text(self._services.predictions, model, by_time=template is not None),
            quality=quality,
            unlock=unlock,
            session=template is not None and template.session,
            image=image,
            example=example_outputs.by_model().get(model.name),
        )

    def _template(self, model: Model) -> Template | None:
        templates = self._services.templates
        return templates[model.name] if model.name in templates else None  # noqa: SIM401 - is no mapping

    def _hardware(self, model: Model) -> list[Hardware]:
        """Return the hardware that a template can run on."""
        template = self._template(model)
        if template is None:
            return []
        hardware = self._services.templates.hardware.kinds()
        return [
            each
            for each in hardware
            if each.id == template.hardware or each.vram_gb >= (template.min_vram_gb or 0)
        ]

    def _engines(self, model: Model) -> list[tuple[str, str, bool, str]]:
        """Return name, quality, readiness and requirement of the engines, in order of preference."""
        status_of = self._services.predictions.terms.status_of
        return [
            (engine.name, engine.quality, status_of(engine.name).ready, engine.unlock)
            for engine in model.engines
        ]

    async def _latest_images(self, user: PageUser | None) -> dict[str, str]:
        """Return the URL of the user's latest image for each model."""
        if user is None:
            return {}
        latest, _ = await self._services.predictions.page(
            user.tenant, PredictionFilter(), _LATEST_PREDICTIONS, None
        )
        images: dict[str, str] = {}
        for prediction in reversed(latest):
            output = prediction.output
            for file in () if output is None else output.first.files:
                if file.content_type.startswith("image/"):
                    images[prediction.model] = f"{MEDIA_PATH}{file.name}"
        return images


def _counts(cards: Sequence[AbilityCard]) -> dict[str, int]:
    """Return the number of cards in each section."""
    return {name: sum(card.section == name for card in cards) for name in SECTIONS}


def _example(descriptor: Descriptor) -> Any:
    if descriptor.default is not None:
        return descriptor.default
    if descriptor.type in MEDIA_TYPES:
        return f"https://example.com/{descriptor.name}"
    return _EXAMPLES.get(descriptor.name, "…")


def routes(services: WebServices, pages: PageTemplates, auth: PageAuth) -> tuple[RouteEntry, ...]:
    catalog = CatalogPages(services, pages, auth)
    return (
        RouteEntry("/catalog", {"GET": catalog.show_list}, access=rights.PUBLIC),
        RouteEntry("/catalog/{name:path}", {"GET": catalog.show_model}, access=rights.PUBLIC),
    )
