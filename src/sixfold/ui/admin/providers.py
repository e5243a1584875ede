"""`/admin/providers`: the operator's keys for hosted providers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core.accounts import rights
from sixfold.core.configuration.ports import KeyCheck
from sixfold.ui.admin.entry_forms import form_route
from sixfold.ui.auth import PageAuth, PageUser
from sixfold.ui.templating import PageTemplates
from sixfold.web import requests
from sixfold.web.routing import Handler, RouteEntry
from sixfold.web.services import WebServices

PATH = "/admin/providers"
Work = Callable[[PageUser, str, dict[str, str]], Awaitable[KeyCheck | None]]


class ProvidersPage:
    """The page, and its forms; each shows the page with the result at the provider's card."""

    def __init__(self, services: WebServices, pages: PageTemplates, auth: PageAuth) -> None:
        self._keys = services.provider_keys
        self._pages = pages
        self._auth = auth

    async def show(self, _request: Request, user: PageUser) -> Response:
        """Show the providers, those with a key first."""
        return await self._render(user)

    async def set(self, user: PageUser, provider: str, form: dict[str, str]) -> KeyCheck | None:
        """Store a key unless the provider rejects it; return None, or a note that the key is not tested."""
        result = await self._keys.set(user.principal, provider, form.get("key", ""))
        if result.state == "accepted":
            return None
        return KeyCheck("unknown", f"The key is stored, but not tested: {result.message}")

    async def check(self, _user: PageUser, provider: str, _form: dict[str, str]) -> KeyCheck | None:
        """Check whether the provider accepts the key in use."""
        return await self._keys.check(provider)

    async def remove(self, user: PageUser, provider: str, _form: dict[str, str]) -> KeyCheck | None:
        await self._keys.remove(user.principal, provider)
        return None

    def handler(self, work: Work) -> Handler:
        async def handle(request: Request, user: PageUser) -> Response:
            provider = requests.path_value(request, "provider")
            form = await self._auth.read_form(request, user)
            try:
                result = await work(user, provider, form)
            except errors.InvalidInput as error:
                return await self._render(user, provider, problem=error.message)
            if result is None:
                return RedirectResponse(f"{PATH}#{provider}", 303)
            return await self._render(user, provider, result)

        return self._auth.page(handle)

    async def _render(
        self, user: PageUser, provider: str = "", result: KeyCheck | None = None, problem: str = ""
    ) -> Response:
        providers = await self._keys.view()
        return self._pages.render(
            "admin/providers.html",
            user.session,
            status=400 if problem else 200,
            providers=providers,
            count=sum(bool(each.source) for each in providers),
            provider=provider,
            result=result,
            problem=problem,
        )


def routes(services: WebServices, pages: PageTemplates, auth: PageAuth) -> tuple[RouteEntry, ...]:
    page = ProvidersPage(services, pages, auth)
    forms = {"set": page.set, "check": page.check, "remove": page.remove}
    return (
        RouteEntry(PATH, {"GET": auth.page(page.show)}, access=rights.OPERATE),
        *(form_route(f"{PATH}/{{provider}}/{name}", page.handler(work)) for name, work in forms.items()),
    )
