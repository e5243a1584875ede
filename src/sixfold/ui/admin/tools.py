"""`/admin/tools`: the MCP servers whose tools chats may use, and the server of the web search."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.core.accounts import rights
from sixfold.core.accounts.operation import actions
from sixfold.core.configuration.entries import SEARCH, SEARXNG, TOOL_SERVERS
from sixfold.core.configuration.ports import ConfigurationView
from sixfold.ui.admin.entry_forms import EntryForms, EntryPage, FormState, ParsedEntry
from sixfold.ui.auth import PageAuth, PageUser
from sixfold.ui.templating import PageTemplates
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices

PATH = "/admin/tools"
_ACTIONS, _MAX_SECONDS = 8, 120
_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")
_ADDRESS = re.compile(r"https?://[^\s@?#]+")


class ToolsPage(EntryPage):
    """The page of tool servers and web search; the template's `probe` is the result of a test."""

    template = "admin/tools.html"

    async def values(self, view: ConfigurationView) -> dict[str, Any]:
        """Return the latest changes."""
        read = self._services.database.read
        logs = [await read(actions.page(_ACTIONS, None, f"{name}.")) for name in (TOOL_SERVERS, SEARCH)]
        log = sorted((each for page in logs for each in page.actions), key=lambda each: each.id, reverse=True)
        return {"probe": None, "log": log[:_ACTIONS]}


def tool_server(form: Mapping[str, str]) -> ParsedEntry:
    """Return the section, name and value of the form of a tool server; raises `InvalidInput`."""
    name = form.get("name", "").strip()
    if not _NAME.fullmatch(name):
        raise errors.InvalidInput.of(
            "name", "Enter a name of at most 32 lowercase letters, digits and hyphens, such as files"
        )
    value: dict[str, Any] = {"url": _address(form, "url", "http://127.0.0.1:9000/mcp")}
    value["accounts"] = "all" if form.get("accounts") == "all" else "operators"
    if form.get("api_key", "").strip():
        value["api_key"] = form["api_key"].strip()
    if tools := form.get("tools", "").replace(",", " ").split():
        value["tools"] = tools
    if seconds := form.get("timeout_seconds", "").strip():
        value["timeout_seconds"] = _seconds(seconds)
    return ParsedEntry(TOOL_SERVERS, name, value)


def search(form: Mapping[str, str]) -> ParsedEntry:
    """Return the section, name and value of the form of the web search; raises `InvalidInput`."""
    return ParsedEntry(SEARCH, SEARXNG, _address(form, "searxng", "http://127.0.0.1:8888").rstrip("/"))


def _address(form: Mapping[str, str], name: str, example: str) -> str:
    address = form.get(name, "").strip()
    if not _ADDRESS.fullmatch(address):
        raise errors.InvalidInput.of(name, f"Enter an address without a user or query, such as {example}")
    return address


def _seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 1 <= (seconds := float(text)) <= _MAX_SECONDS:
            return seconds
    raise errors.InvalidInput.of("timeout_seconds", f"The timeout must be 1 to {_MAX_SECONDS} seconds")


def routes(services: WebServices, pages: PageTemplates, auth: PageAuth) -> tuple[RouteEntry, ...]:
    page, configuration = ToolsPage(services, pages), services.configuration
    forms = EntryForms(services, auth, PATH, page.render)

    async def save_server(request: Request, user: PageUser) -> Response:
        form = await auth.read_form(request, user)
        if form.get("do") != "test":
            return await forms.save(user, form, "server", tool_server, "url")
        state = FormState("server", form.get("original", ""), form)
        try:
            parsed = tool_server(form)
            probe = await configuration.probe_tools(parsed.name, parsed.value)
        except errors.InvalidInput as error:
            return await page.render(user, state.refused(error, "url"))
        return await page.render(user, state, probe=probe)

    async def save_search(request: Request, user: PageUser) -> Response:
        form = await auth.read_form(request, user)
        if form.get("do") != "test":
            return await forms.save(user, form, "search", search, "searxng")
        state = FormState("search", "", form)
        try:
            probe = await configuration.probe_search(search(form).value)
        except errors.InvalidInput as error:
            return await page.render(user, state.refused(error, "searxng"))
        return await page.render(user, state, probe=probe)

    return (
        RouteEntry(PATH, {"GET": auth.page(page.show)}, access=rights.OPERATE),
        forms.route("servers", save_server),
        forms.route("search", save_search),
        forms.removal("servers", TOOL_SERVERS, "server"),
        forms.removal("search", SEARCH, "search"),
    )
