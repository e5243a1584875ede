"""The pages that change the memory: edit with preview, merge, restore, move, delete, confirm links."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core.database import now
from sixfold.core.memory import limits, mentions, merge, slugs
from sixfold.core.memory.commands import FREELY, WriteTerms
from sixfold.core.memory.import_export import attachments
from sixfold.core.memory.models import Link, MemoryPage
from sixfold.errors import SixfoldError
from sixfold.ui.auth import PageAuth, PageUser
from sixfold.ui.memory import editor_content
from sixfold.ui.memory.editor_content import EditorContent, MergedEdit
from sixfold.ui.memory.markdown import RenderContext, RenderedPage, page_path
from sixfold.ui.memory.reading import render_page, slug_of
from sixfold.ui.templating import PageTemplates
from sixfold.web.services import WebServices

_FORM_ERRORS = (
    errors.BadRequest,
    errors.Forbidden,
    errors.TooLarge,
    errors.InsufficientCredits,
    errors.StoreFailed,
    errors.Conflict,
)
_MARKERS_LEFT = "Some conflicts are not resolved: choose a side for each, or save with the conflict markers."
_MAX_CONFLICTS = 10_000
_DELETED = "The page was deleted while you were editing. Saving restores it with this text."


class EditorState(msgspec.Struct, frozen=True):
    """The state of the editor page."""

    content: EditorContent
    merged: MergedEdit | None = None
    problem: str = ""
    preview: RenderedPage | None = None
    marked: bool = False
    status: int = 200
    conflicts: int = 0

    @property
    def settled(self) -> tuple[int, int]:
        """The number of settled conflicts, and the number of conflicts at first."""
        conflicts = len(self.merged.conflicts) if self.merged is not None else 0
        total = max(conflicts, min(self.conflicts, _MAX_CONFLICTS))
        return total - conflicts, total


class WritePages:
    """The editor and the forms that change pages."""

    def __init__(self, services: WebServices, templates: PageTemplates, auth: PageAuth) -> None:
        self._services = services
        self._memory = services.memory
        self._pages = templates
        self._auth = auth

    # -- the editor ------------------------------------------------------------------------------

    async def new(self, request: Request, user: PageUser) -> Response:
        _check(user)
        query = request.query_params
        shared = user.principal.memory
        default = f"{shared.folder}/" if shared is not None else ""
        slug = query.get("slug", default).strip()[: limits.LONG_SLUG]
        collections = ", ".join(user.caller.home())
        content = EditorContent(
            slug=slug, title=query.get("title", "")[: limits.TITLE_CHARS], collections=collections
        )
        return await self._editor(user, EditorState(content))

    async def create(self, request: Request, user: PageUser) -> Response:
        """Create a page; after an error, show the editor with the same text."""
        form = await self._auth.read_form(request, user)
        content = editor_content.of_form(form)
        if form.get("action") == "preview":
            return await self._preview(user, content)
        name = content.slug or slugs.loosely(content.title.replace("/", "-")) or ""
        try:
            content = replace(content, slug=slugs.normalize(name))
            saved_page = await self._memory.write(
                user.caller, editor_content.page_write(content, None), WriteTerms()
            )
        except errors.Conflict as error:
            problem = f"Page {name} already exists: choose another slug, or edit that page."
            return await self._editor(user, EditorState(content, problem=problem, status=error.status))
        except _FORM_ERRORS as error:
            return await self._editor(user, _with_error(content, error))
        return _redirect(user, saved_page.page.slug)

    async def edit(self, request: Request, user: PageUser) -> Response:
        _check(user)
        slug = slug_of(request)
        try:
            view = await self._memory.read(user.caller, slug)
        except errors.NotFound:
            # This page offers to create the page, or to restore it if it was deleted.
            return _redirect(user, slug)
        _check(user, view.page)
        if view.moved:
            return _redirect(user, view.page.slug, "edit")
        return await self._editor(user, EditorState(editor_content.of_page(view.page)))

    async def save(self, request: Request, user: PageUser) -> Response:
        """Save a page; if it has changed meanwhile, show the merged text instead."""
        form = await self._auth.read_form(request, user)
        content = editor_content.of_form(form, slug_of(request))
        is_preview = form.get("action") == "preview"
        if form.get("merging") and form.get("action") != "anyway" and merge.has_marks(content.body):
            return await self._unsettled(user, content, form, is_preview=is_preview)
        if is_preview:
            return await self._preview(user, content)
        caller = user.caller
        base = await self._memory.version(caller, content.slug, content.version) if content.version else None
        terms = WriteTerms(if_version=base.version) if base is not None else WriteTerms()
        try:
            saved_page = await self._memory.write(caller, editor_content.page_write(content, base), terms)
        except errors.PreconditionFailed:
            return await self._merged(user, content)
        except _FORM_ERRORS as error:
            return await self._editor(user, _with_error(content, error))
        return _redirect(user, saved_page.page.slug)

    async def _merged(self, user: PageUser, content: EditorContent) -> Response:
        base = await self._memory.version(user.caller, content.slug, content.version)
        try:
            theirs = (await self._memory.read(user.caller, content.slug)).page
        except errors.NotFound:
            editor = EditorState(replace(content, version=0), problem=_DELETED, status=409)
            return await self._editor(user, editor)
        merged = await asyncio.to_thread(editor_content.merge_edit, content, base, theirs)
        if merged.content == editor_content.of_page(theirs):
            # Both made the same change.
            return _redirect(user, theirs.slug)
        return await self._editor(
            user, EditorState(merged.content, merged=merged, marked=bool(merged.conflicts), status=409)
        )

    async def _unsettled(
        self, user: PageUser, content: EditorContent, form: Mapping[str, str], *, is_preview: bool
    ) -> Response:
        """Show the remaining conflicts, and how many are resolved."""
        try:
            theirs = (await self._memory.read(user.caller, content.slug)).page
        except errors.NotFound:
            return await self._editor(
                user, EditorState(content, problem=_MARKERS_LEFT, marked=True, status=409)
            )
        merged = await asyncio.to_thread(editor_content.unsettled, content, theirs)
        text = await self._render(user, content.slug, content.title, content.body) if is_preview else None
        total = form.get("conflicts", "")
        editor = EditorState(
            content,
            merged=merged,
            problem="" if is_preview else _MARKERS_LEFT,
            preview=text,
            marked=True,
            status=200 if is_preview else 409,
            conflicts=int(total[:5]) if total.isascii() and total.isdigit() else 0,
        )
        return await self._editor(user, editor)

    async def _preview(self, user: PageUser, content: EditorContent) -> Response:
        text = await self._render(user, content.slug, content.title, content.body)
        return await self._editor(user, EditorState(content, preview=text))

    async def preview(self, request: Request, user: PageUser) -> Response:
        """Return the preview fragment that the script shows beside the editor."""
        form = await self._auth.read_form(request, user)
        _check(user)
        content = editor_content.of_form(form)
        text = await self._render(user, content.slug, content.title, content.body)
        return self._pages.render("memory/preview.html", None, title=content.title or content.slug, text=text)

    async def _render(self, user: PageUser, slug: str, title: str, body: str) -> RenderedPage:
        path, caller = slugs.loosely(slug) or "new", user.caller
        names = await asyncio.to_thread(mentions.names_in, body, path)
        page_mentions = await self._services.database.read(mentions.of_draft(caller, names, path))
        embedded = await asyncio.to_thread(attachments.embedded_slugs, body, path)
        files = await self._services.database.read(attachments.of_names(caller, embedded, path))
        context = RenderContext(
            path, title, page_mentions, True, caller.account_id, files=files, base=user.memory_path
        )
        return await render_page(merge.readable(body), context)

    async def _editor(self, user: PageUser, editor: EditorState) -> Response:
        return self._pages.render(
            "memory/edit.html",
            user.session,
            status=editor.status,
            user=user,
            editor=editor,
            content=editor.content,
            merged=editor.merged,
            now=await self._services.database.read(now()),
        )

    # -- other forms -----------------------------------------------------------------------------

    async def restore(self, request: Request, user: PageUser) -> Response:
        """Restore an older version of a page, which may be deleted."""
        form = await self._auth.read_form(request, user)
        number = editor_content.of_form(form).version
        saved_page = await self._memory.restore(user.caller, slug_of(request), number, FREELY)
        return _redirect(user, saved_page.page.slug)

    async def show_move(self, request: Request, user: PageUser) -> Response:
        _check(user)
        view = await self._memory.read(user.caller, slug_of(request))
        _check(user, view.page)
        return self._render_move(user, {"page": view.page, "to": view.page.slug, "problem": ""})

    async def move(self, request: Request, user: PageUser) -> Response:
        form = await self._auth.read_form(request, user)
        slug, to = slug_of(request), form.get("to", "").strip()[: limits.LONG_SLUG]
        try:
            saved_page = await self._memory.rename(user.caller, slug, to, FREELY)
        except (errors.BadRequest, errors.Conflict, errors.InsufficientCredits, errors.TooLarge) as error:
            view = await self._memory.read(user.caller, slug)
            return self._render_move(
                user, {"page": view.page, "to": to, "problem": error.message}, error.status
            )
        return _redirect(user, saved_page.page.slug)

    def _render_move(self, user: PageUser, values: dict[str, Any], status: int = 200) -> Response:
        return self._pages.render("memory/move.html", user.session, status=status, user=user, **values)

    async def delete(self, request: Request, user: PageUser) -> Response:
        """Delete a page and show how to restore it."""
        await self._auth.read_form(request, user)
        page = await self._memory.delete(user.caller, slug_of(request), FREELY)
        return _redirect(user, page.slug)

    async def set_task(self, request: Request, user: PageUser) -> Response:
        """Check or clear the box of a task, found by its line in a version of the page."""
        form = await self._auth.read_form(request, user)
        number, slug = form.get("task", ""), slug_of(request)
        content = editor_content.of_form(form, slug)
        if not (number.isascii() and number.isdigit() and len(number) < 10):
            raise errors.BadRequest("task must be the number of a line")
        page = await self._memory.version(user.caller, slug, content.version)
        await self._memory.set_task(user.caller, page, int(number), FREELY)
        return _redirect(user, page.slug, anchor="#tasks")

    async def review_link(self, request: Request, user: PageUser) -> Response:
        """Confirm or dismiss an inferred link."""
        form = await self._auth.read_form(request, user)
        action = form.get("action", "")
        if action not in {"confirm", "dismiss"}:
            raise errors.BadRequest("action must be confirm or dismiss")
        link = Link("", form.get("to", ""), form.get("type", ""))
        page = await self._memory.relink(user.caller, slug_of(request), (action, link), FREELY)
        return _redirect(user, page.slug, anchor="#inferred")


def _check(user: PageUser, page: MemoryPage | None = None) -> None:
    if page is not None and not user.caller.may_change(page.collections):
        raise errors.Forbidden(f"This key may not change {page.slug}")


def _with_error(content: EditorContent, error: SixfoldError) -> EditorState:
    return EditorState(content, problem=error.message, status=error.status)


def _redirect(user: PageUser, slug: str, action: str = "", anchor: str = "") -> Response:
    return RedirectResponse(page_path(slug, action, user.memory_path) + anchor, 303)
