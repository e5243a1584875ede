"""The pages that change the memory: edit with preview, merge, restore, move, delete, confirm links."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core.database import now
from sixfold.core.memory import limits, mentions, merge, slugs
from sixfold.core.memory.commands import FREELY, WriteTerms
from sixfold.core.memory.models import Caller, Link, MemoryPage
from sixfold.errors import SixfoldError
from sixfold.ui.auth import PageAuth, PageUser
from sixfold.ui.memory import editing
from sixfold.ui.memory.editing import EditOutcome, TypedPage
from sixfold.ui.memory.markdown import RenderContext, RenderedPage, page_path
from sixfold.ui.memory.reading import laid_out, slug_of
from sixfold.ui.templating import PageTemplates
from sixfold.web.services import WebServices

_REFUSED = (
    errors.BadRequest,
    errors.Forbidden,
    errors.TooLarge,
    errors.InsufficientCredits,
    errors.StoreFailed,
    errors.Conflict,
)
_MARKS_LEFT = "Some conflict markers are left: choose a side for each, or save with the markers."
_GONE = "The page was deleted while you were editing. Saving restores it with this text."


@dataclass(frozen=True, slots=True)
class EditDesk:
    """The state of the editor page."""

    typed: TypedPage
    met: EditOutcome | None = None
    problem: str = ""
    preview: RenderedPage | None = None
    marked: bool = False
    status: int = 200


class WritePages:
    """The editor and the forms that change pages."""

    def __init__(self, services: WebServices, shown: PageTemplates, auth: PageAuth) -> None:
        self._services = services
        self._memory = services.memory
        self._pages = shown
        self._auth = auth

    # -- the editor ------------------------------------------------------------------------------

    async def new(self, request: Request, user: PageUser) -> Response:
        """Show the editor for a new page."""
        _check(user)
        query = request.query_params
        slug = query.get("slug", "").strip()[: limits.LONG_SLUG]
        home = ", ".join(user.caller.home())
        typed = TypedPage(slug=slug, title=query.get("title", "")[: limits.TITLE_CHARS], collections=home)
        return await self._editor(user, EditDesk(typed))

    async def create(self, request: Request, user: PageUser) -> Response:
        """Create a page; after an error, show the editor with the same text."""
        form = await self._auth.read_form(request, user)
        typed = editing.of_form(form)
        if form.get("action") == "preview":
            return await self._previewed(user, typed)
        name = typed.slug or slugs.loosely(typed.title.replace("/", "-")) or ""
        try:
            named = replace(typed, slug=slugs.normalize(name))
            saved = await self._memory.write(user.caller, editing.wanted(named, None), WriteTerms())
        except errors.Conflict as error:
            taken = f"Page {name} already exists: choose another slug, or edit that page."
            return await self._editor(user, EditDesk(typed, problem=taken, status=error.status))
        except _REFUSED as error:
            return await self._editor(user, _refused(typed, error))
        return _to(saved.page.slug)

    async def edit(self, request: Request, user: PageUser) -> Response:
        """Show the editor for a page."""
        _check(user)
        view = await self._memory.read(user.caller, slug_of(request))
        _check(user, view.page)
        if view.moved:
            return RedirectResponse(page_path(view.page.slug, "edit"), 303)
        return await self._editor(user, EditDesk(editing.of_page(view.page)))

    async def save(self, request: Request, user: PageUser) -> Response:
        """Save a page; if it has changed meanwhile, show the merged text instead."""
        form = await self._auth.read_form(request, user)
        typed = editing.of_form(form, slug_of(request))
        if form.get("action") == "preview":
            return await self._previewed(user, typed)
        if form.get("merging") and form.get("action") != "anyway" and merge.has_marks(typed.body):
            return await self._editor(user, EditDesk(typed, problem=_MARKS_LEFT, marked=True, status=409))
        caller = user.caller
        base = await self._memory.version(caller, typed.slug, typed.version) if typed.version else None
        terms = WriteTerms(if_version=base.version) if base is not None else WriteTerms()
        try:
            saved = await self._memory.write(caller, editing.wanted(typed, base), terms)
        except errors.PreconditionFailed:
            return await self._merged(user, typed)
        except _REFUSED as error:
            return await self._editor(user, _refused(typed, error))
        return _to(saved.page.slug)

    async def _merged(self, user: PageUser, typed: TypedPage) -> Response:
        base = await self._memory.version(user.caller, typed.slug, typed.version)
        try:
            theirs = (await self._memory.read(user.caller, typed.slug)).page
        except errors.NotFound:
            desk = EditDesk(replace(typed, version=0), problem=_GONE, status=409)
            return await self._editor(user, desk)
        met = await asyncio.to_thread(editing.meet, typed, base, theirs)
        if met.typed == editing.of_page(theirs):
            # Both made the same change.
            return _to(theirs.slug)
        return await self._editor(user, EditDesk(met.typed, met=met, marked=bool(met.conflicts), status=409))

    async def _previewed(self, user: PageUser, typed: TypedPage) -> Response:
        text = await self._laid_out(user.caller, typed.slug, typed.title, typed.body)
        return await self._editor(user, EditDesk(typed, preview=text))

    async def preview(self, request: Request, user: PageUser) -> Response:
        """Return the preview fragment that the script shows beside the editor."""
        form = await self._auth.read_form(request, user)
        _check(user)
        typed = editing.of_form(form)
        text = await self._laid_out(user.caller, typed.slug, typed.title, typed.body)
        return self._pages.render("memory/preview.html", None, title=typed.title or typed.slug, text=text)

    async def _laid_out(self, caller: Caller, slug: str, title: str, body: str) -> RenderedPage:
        place = slugs.loosely(slug) or "new"
        names = await asyncio.to_thread(mentions.names_in, body, place)
        found = await self._services.database.read(mentions.of_names(caller, names, place))
        return await laid_out(
            merge.readable(body), RenderContext(place, title, found, True, caller.account_id)
        )

    async def _editor(self, user: PageUser, desk: EditDesk) -> Response:
        return self._pages.render(
            "memory/edit.html",
            user.session,
            status=desk.status,
            user=user,
            desk=desk,
            typed=desk.typed,
            met=desk.met,
            now=await self._services.database.read(now()),
        )

    # -- other forms -----------------------------------------------------------------------------

    async def restore(self, request: Request, user: PageUser) -> Response:
        """Restore an older version, also of a deleted page."""
        form = await self._auth.read_form(request, user)
        number = editing.of_form(form).version
        saved = await self._memory.restore(user.caller, slug_of(request), number, FREELY)
        return _to(saved.page.slug)

    async def place(self, request: Request, user: PageUser) -> Response:
        """Show the forms that move and delete a page."""
        _check(user)
        view = await self._memory.read(user.caller, slug_of(request))
        _check(user, view.page)
        return self._place(user, {"page": view.page, "to": view.page.slug, "problem": ""})

    async def move(self, request: Request, user: PageUser) -> Response:
        """Rename a page."""
        form = await self._auth.read_form(request, user)
        slug, to = slug_of(request), form.get("to", "").strip()[: limits.LONG_SLUG]
        try:
            saved = await self._memory.rename(user.caller, slug, to, FREELY)
        except (
            errors.BadRequest,
            errors.Conflict,
            errors.InsufficientCredits,
            errors.TooLarge,
        ) as error:
            view = await self._memory.read(user.caller, slug)
            return self._place(user, {"page": view.page, "to": to, "problem": error.message}, error.status)
        return _to(saved.page.slug)

    def _place(self, user: PageUser, values: dict[str, Any], status: int = 200) -> Response:
        return self._pages.render("memory/move.html", user.session, status=status, user=user, **values)

    async def delete(self, request: Request, user: PageUser) -> Response:
        """Delete a page and show how to restore it."""
        await self._auth.read_form(request, user)
        page = await self._memory.delete(user.caller, slug_of(request), FREELY)
        return _to(page.slug)

    async def judge(self, request: Request, user: PageUser) -> Response:
        """Confirm or dismiss an inferred link."""
        form = await self._auth.read_form(request, user)
        action = form.get("action", "")
        if action not in {"confirm", "dismiss"}:
            raise errors.BadRequest("action must be confirm or dismiss")
        link = Link("", form.get("to", ""), form.get("type", ""))
        page = await self._memory.relink(user.caller, slug_of(request), (action, link), FREELY)
        return RedirectResponse(f"{page_path(page.slug)}#inferred", 303)


def _check(user: PageUser, page: MemoryPage | None = None) -> None:
    if page is not None and not user.caller.may_change(page.collections):
        raise errors.Forbidden(f"This key may not change {page.slug}")


def _refused(typed: TypedPage, error: SixfoldError) -> EditDesk:
    return EditDesk(typed, problem=error.message, status=error.status)


def _to(slug: str) -> Response:
    return RedirectResponse(page_path(slug), 303)
