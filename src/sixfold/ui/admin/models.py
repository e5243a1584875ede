"""`/admin/models`: model servers, ComfyUI, and aliases with the order in which their targets are tried."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.core.accounts import rights
from sixfold.core.accounts.operation import actions
from sixfold.core.catalog.availability import NOT_RESPONDING
from sixfold.core.configuration import entries
from sixfold.core.configuration.entries import ALIASES, COMFYUI, SERVERS
from sixfold.core.configuration.ports import ConfigurationView
from sixfold.core.gateway.policy import CHAT_KINDS, MAX_CONTEXT
from sixfold.providers import PROVIDERS
from sixfold.ui.admin.entry_forms import EntryForms, EntryPage, FormState, ParsedEntry, whole_number
from sixfold.ui.auth import PageAuth, PageUser
from sixfold.ui.templating import PageTemplates
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices

PATH = "/admin/models"
_ACTIONS, _TARGETS, _MAX_LISTED, _MAX_WEIGHT = 8, 6, 500, 1_000_000
_LOCAL_TITLES = {
    "openai": "OpenAI-compatible (vLLM, LocalAI, a proxy …)",
    "ollama": "Ollama",
    "lmstudio": "LM Studio",
    "llamacpp": "llama.cpp",
    "llamaswap": "llama-swap",
    "vllm": "vLLM",
    "sglang": "SGLang",
    "tei": "Text Embeddings Inference",
}
# Fields of a stored server that the form does not have, and that a change keeps.
_OTHER_FIELDS = ("local", "responses")
# Model files need options that the page does not offer.
KINDS: Mapping[str, str] = {
    **_LOCAL_TITLES,
    **{
        kind: PROVIDERS[kind].title
        for kind in sorted(CHAT_KINDS)
        if kind in PROVIDERS and kind not in _LOCAL_TITLES
    },
}


class ModelsPage(EntryPage):
    """The page of model servers and aliases; the template's `probe` is the result of a connection test."""

    template = "admin/models.html"

    async def values(self, view: ConfigurationView) -> dict[str, Any]:
        """Return the kinds of servers, the names of models, and the latest changes."""
        log = await self._services.database.read(actions.page(_ACTIONS, None, "gateway."))
        resources = await self._services.resources.resources()
        return {
            "away": {each.url: each.how for each in resources if each.state in NOT_RESPONDING},
            "kinds": KINDS,
            "listed": [name for name, _ in self._services.gateway.router.models()][:_MAX_LISTED],
            "probe": None,
            "targets": range(_TARGETS),
            "log": log.actions,
        }


def server(form: Mapping[str, str]) -> ParsedEntry:
    """Return the section, name and value of the form of a model server; raises `InvalidInput`."""
    name, kind = form.get("name", "").strip(), form.get("kind", "")
    if not name or "/" in name:
        raise errors.InvalidInput.of("name", "Enter a server name without /, such as gpu-box")
    if kind not in KINDS:
        raise errors.InvalidInput.of("kind", "Choose the kind of server")
    value: dict[str, Any] = {"kind": kind}
    address = form.get("base_url", "").strip().rstrip("/")
    if address and not address.startswith(("http://", "https://")):
        raise errors.InvalidInput.of("base_url", "The address must begin with http:// or https://")
    if not address and kind == "openai":
        raise errors.InvalidInput.of("base_url", "Enter the address, which usually ends in /v1")
    if address:
        value["base_url"] = address
    if form.get("api_key", "").strip():
        value["api_key"] = form["api_key"].strip()
    if models := form.get("models", "").replace(",", " ").split():
        value["models"] = models
    if text := form.get("context", "").replace(",", "").strip():
        context = whole_number(text, MAX_CONTEXT)
        if context is None:
            raise errors.InvalidInput.of(
                "context", f"The context must be a number of tokens from 0 to {MAX_CONTEXT:,}"
            )
        value["context"] = context
    return ParsedEntry(SERVERS, name, value)


def alias(form: Mapping[str, str]) -> ParsedEntry:
    """Return the section, name and value of the form of an alias; raises `InvalidInput`."""
    name = form.get("name", "").strip()
    if not name:
        raise errors.InvalidInput.of("name", "Enter a name for the alias, such as fast")
    places = [at for at in range(_TARGETS) if form.get(f"target{at}", "").strip()]
    if not places:
        raise errors.InvalidInput.of("target0", "Choose at least one model")
    targets = [form[f"target{at}"].strip() for at in places]
    weights = [_weight(form, at) for at in places]
    if all(weight is None for weight in weights):
        return ParsedEntry(ALIASES, name, targets)
    for at, weight in zip(places, weights, strict=True):
        if weight is None:
            raise errors.InvalidInput.of(f"weight{at}", "Enter a weight for each model, or for none")
    if not any(weights):
        raise errors.InvalidInput.of(f"weight{places[0]}", "At least one weight must be above 0")
    rows = [{"target": target, "weight": weight} for target, weight in zip(targets, weights, strict=True)]
    return ParsedEntry(ALIASES, name, rows)


def _weight(form: Mapping[str, str], at: int) -> float | None:
    """Return the weight of a target, or None for an empty field; raises `InvalidInput`."""
    text = form.get(f"weight{at}", "").strip()
    if not text:
        return None
    with contextlib.suppress(ValueError):
        if 0 <= (weight := float(text)) <= _MAX_WEIGHT:
            return weight
    raise errors.InvalidInput.of(f"weight{at}", f"The weight must be a number from 0 to {_MAX_WEIGHT:,}")


def routes(services: WebServices, pages: PageTemplates, auth: PageAuth) -> tuple[RouteEntry, ...]:
    page = ModelsPage(services, pages)
    forms = EntryForms(services, auth, PATH, page.render)

    async def test(request: Request, user: PageUser) -> Response:
        form = await auth.read_form(request, user)
        state = FormState("server", form.get("original", ""), form)
        try:
            parsed = server(form)
            probe = await services.configuration.probe(parsed.name, parsed.value)
        except errors.InvalidInput as error:
            return await page.render(user, state.refused(error, "base_url"))
        return await page.render(user, state, probe=probe)

    async def save_server(request: Request, user: PageUser) -> Response:
        form = await auth.read_form(request, user)
        if form.get("do") == "test":
            return await test(request, user)
        rows = await services.database.read(entries.all_entries())
        name = form.get("original", "")
        stored = next((row.document for row in rows if (row.section, row.name) == (SERVERS, name)), {})
        other_fields = {field: stored[field] for field in _OTHER_FIELDS if field in stored}

        def parse(fields: Mapping[str, str]) -> ParsedEntry:
            parsed = server(fields)
            return parsed._replace(value=other_fields | parsed.value)

        return await forms.save(user, form, "server", parse, "base_url")

    async def save_alias(request: Request, user: PageUser) -> Response:
        form = await auth.read_form(request, user)
        return await forms.save(user, form, "alias", alias, "target0")

    return (
        RouteEntry(PATH, {"GET": auth.page(page.show)}, access=rights.OPERATE),
        forms.route("servers", save_server),
        forms.route("aliases", save_alias),
        forms.removal("servers", SERVERS, "server"),
        forms.removal("aliases", ALIASES, "alias"),
        forms.removal("comfyui", COMFYUI, "comfyui"),
    )
