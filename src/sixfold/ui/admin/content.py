"""`/admin/content`: the guardrail of all accounts without their own, and what the call log stores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core.accounts import rights
from sixfold.core.accounts.operation import actions
from sixfold.core.configuration.entries import GATEWAY
from sixfold.core.configuration.ports import ConfigurationView
from sixfold.core.gateway.guardrails.models import KINDS
from sixfold.ui.admin.entry_forms import EntryForms, EntryPage, FormState, ParsedEntry, whole_number
from sixfold.ui.auth import PageAuth, PageUser
from sixfold.ui.templating import PageTemplates
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices

PATH = "/admin/content"
_ACTIONS, _MAX_DAYS = 8, 3650
_TITLES = {
    "secrets": "Keys, tokens and private keys",
    "emails": "E-mail addresses",
    "cards": "Card numbers",
}
KIND_TITLES = {kind: _TITLES.get(kind, kind) for kind in KINDS}


class ContentPage(EntryPage):
    """The page of the guardrail and the call log."""

    template = "admin/content.html"

    async def values(self, view: ConfigurationView) -> dict[str, Any]:
        """Return the kinds of data that can be masked, and the latest changes."""
        read = self._services.database.read
        pages = [await read(actions.page(_ACTIONS, None, f"{GATEWAY}.{name}")) for name in _NAMES]
        log = sorted(
            (each for page in pages for each in page.actions), key=lambda each: each.id, reverse=True
        )
        return {"kinds": KIND_TITLES, "log": log[:_ACTIONS]}


_NAMES = ("guardrail", "log_bodies", "log_days")


def guardrail_fields(form: Mapping[str, str], *, keeps_url: bool = False) -> dict[str, Any]:
    """Return the fields of a guardrail in a form; raises `InvalidInput`.

    With `keeps_url`, the hook has an empty URL if the form has none.
    """
    value: dict[str, Any] = {
        "mask": [kind for kind in KINDS if form.get(f"mask_{kind}")],
        "mask_responses": bool(form.get("mask_responses")),
    }
    url = form.get("hook", "").strip()
    if url or keeps_url:
        stages = [stage for stage in ("request", "response") if form.get(f"stage_{stage}")]
        value["hook"] = {
            "url": url,
            "stages": stages or ["request"],
            "timeout_seconds": _number(form, "timeout_seconds", 5.0),
            "on_failure": "allow" if form.get("on_failure") == "allow" else "block",
        }
    return value


def guardrail(form: Mapping[str, str]) -> ParsedEntry:
    """Return the section, name and value of the form of the guardrail; raises `InvalidInput`."""
    value = guardrail_fields(form)
    if not value["mask"] and "hook" not in value:
        raise errors.InvalidInput.of(
            "mask", "Choose what to mask or enter a hook; to switch the guardrail off, remove it"
        )
    return ParsedEntry(GATEWAY, "guardrail", value)


def _number(form: Mapping[str, str], name: str, default: float) -> float:
    text = form.get(name, "").strip()
    try:
        return float(text) if text else default
    except ValueError:
        raise errors.InvalidInput.of(name, f"{text[:40]!r} is not a number of seconds, such as 5") from None


def log_days(form: Mapping[str, str]) -> ParsedEntry:
    """Return the section, name and value of the days of the form of the log; raises `InvalidInput`."""
    days = whole_number(form.get("log_days", "").strip(), _MAX_DAYS)
    if days is None:
        raise errors.InvalidInput.of(
            "log_days", f"The days must be a number from 0 (no limit) to {_MAX_DAYS:,}"
        )
    return ParsedEntry(GATEWAY, "log_days", days)


def routes(services: WebServices, pages: PageTemplates, auth: PageAuth) -> tuple[RouteEntry, ...]:
    page, configuration = ContentPage(services, pages), services.configuration
    forms = EntryForms(services, auth, PATH, page.render)

    async def save_guardrail(request: Request, user: PageUser) -> Response:
        form = await auth.read_form(request, user)
        return await forms.save(user, form, "guardrail", guardrail, "hook")

    async def save_log(request: Request, user: PageUser) -> Response:
        """Set the values that the file does not set."""
        form = await auth.read_form(request, user)
        view = (await configuration.view()).content
        try:
            days = log_days(form) if view.log_days_source != "file" else None
            if view.log_bodies_source != "file":
                await configuration.put(user.principal, GATEWAY, "log_bodies", bool(form.get("log_bodies")))
            if days is not None:
                await configuration.put(user.principal, *days)
        except errors.BadRequest as error:
            return await page.render(user, FormState("log", "", form).refused(error, "log_days"))
        return RedirectResponse(PATH, 303)

    return (
        RouteEntry(PATH, {"GET": auth.page(page.show)}, access=rights.OPERATE),
        forms.route("guardrail", save_guardrail),
        forms.route("log", save_log),
        forms.removal("guardrail", GATEWAY, "guardrail"),
    )
