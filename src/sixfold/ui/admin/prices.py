"""`/admin/prices`: the prices of gateway models and media models, with the history of each change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.core import money
from sixfold.core.accounts import rights
from sixfold.core.accounts.operation import actions
from sixfold.core.configuration.entries import PRICES, TOKEN_PRICES
from sixfold.core.configuration.ports import ConfigurationView
from sixfold.ui.admin.entry_forms import EntryForms, EntryPage, ParsedEntry
from sixfold.ui.auth import PageAuth, PageUser
from sixfold.ui.templating import PageTemplates
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices

PATH = "/admin/prices"
_ACTIONS = 12
# The fields that the form sets; the other fields of a row are unchanged.
TOKEN_FIELDS: Mapping[str, str] = {
    "input_per_million_usd": "Input, 1M tokens",
    "output_per_million_usd": "Output, 1M tokens",
    "cached_input_per_million_usd": "Cached input, 1M",
    "per_image_usd": "Image",
    "per_minute_usd": "Minute of audio",
}
_REQUEST = "per request"
# The units whose price is also shown in credits.
_CREDIT_UNITS = ("image", "video")


class PricesPage(EntryPage):
    """The page of prices."""

    template = "admin/prices.html"

    async def values(self, view: ConfigurationView) -> dict[str, Any]:
        """Return the names with a price, and the latest changes."""
        read = self._services.database.read
        logs = [await read(actions.page(_ACTIONS, None, f"{name}.")) for name in (PRICES, TOKEN_PRICES)]
        log = sorted(
            (each for page in logs for each in page.actions), key=lambda action: action.id, reverse=True
        )
        return {
            "credit_units": _CREDIT_UNITS,
            "credits": _credits,
            "fields": TOKEN_FIELDS,
            "listed": [price.name for price in view.token_prices],
            "own_hardware_free": self._services.settings.own_hardware_free,
            "log": log[:_ACTIONS],
        }


def _credits(usd: str) -> str:
    credits = money.credits_for(money.parse_usd(usd))
    return f"{credits} credit" if credits == 1 else f"{credits} credits"


def token_price(form: Mapping[str, str], view: ConfigurationView) -> ParsedEntry:
    """Return the section, name and value of the form of a model's price; raises `InvalidInput`."""
    name = form.get("name", "").strip()
    if not name:
        raise errors.InvalidInput.of("name", "Enter a model name, such as gpu-box/qwen3 or gpt-5.4")
    old = next((row.fields for row in view.token_prices if row.name == name and row.source == "page"), {})
    value: dict[str, Any] = {field: amount for field, amount in old.items() if field not in TOKEN_FIELDS}
    value |= {field: text for field in TOKEN_FIELDS if (text := form.get(field, "").strip())}
    if not value:
        raise errors.InvalidInput.of(next(iter(TOKEN_FIELDS)), "Enter at least one price in USD")
    return ParsedEntry(TOKEN_PRICES, name, value)


def model_price(form: Mapping[str, str], view: ConfigurationView) -> ParsedEntry:
    """Return the section, name and value of the form of a media model's price; raises `InvalidInput`."""
    name = form.get("name", "")
    row = next((row for row in view.prices if row.name == name), None)
    if row is None:
        raise errors.InvalidInput.of("name", "This price was not found: reload the page")
    amounts = {variant: form.get(f"usd.{variant}", "").strip() for variant in row.usd}
    for variant, text in amounts.items():
        if not text:
            raise errors.InvalidInput.of(f"usd.{variant}", "Enter a price in USD, such as 0.05")
    request = amounts.pop(_REQUEST, None)
    value: dict[str, Any] = {"usd": amounts.get("", amounts)}
    return ParsedEntry(PRICES, name, value if request is None else {**value, "request_usd": request})


def routes(services: WebServices, pages: PageTemplates, auth: PageAuth) -> tuple[RouteEntry, ...]:
    page = PricesPage(services, pages)
    forms = EntryForms(services, auth, PATH, page.render)

    async def save_token_price(request: Request, user: PageUser) -> Response:
        form, view = await auth.read_form(request, user), await services.configuration.view()
        first = next(iter(TOKEN_FIELDS))
        return await forms.save(user, form, "token", lambda fields: token_price(fields, view), first)

    async def save_price(request: Request, user: PageUser) -> Response:
        form, view = await auth.read_form(request, user), await services.configuration.view()
        first = next((name for name in form if name.startswith("usd.")), "name")
        return await forms.save(user, form, "price", lambda fields: model_price(fields, view), first)

    return (
        RouteEntry(PATH, {"GET": auth.page(page.show)}, access=rights.OPERATE),
        forms.route("tokens", save_token_price),
        forms.route("models", save_price),
        forms.removal("tokens", TOKEN_PRICES, "token"),
        forms.removal("models", PRICES, "price"),
    )
