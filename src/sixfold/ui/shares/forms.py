"""`/shares/new` and `/account/shares`: the forms with which an owner shares an object and ends a share.

A script opens the first one as a dialog.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import urlencode

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core.accounts import rights
from sixfold.core.accounts.organizations import grantees
from sixfold.core.accounts.organizations.grantees import Grantee
from sixfold.core.accounts.rights import Rights
from sixfold.core.clock import DAY_US, SECOND_US
from sixfold.core.memory.sharing import folders, membership
from sixfold.core.memory.sharing.folders import FolderShareDraft
from sixfold.core.shares import objects, shares
from sixfold.core.shares.objects import ShareTarget
from sixfold.core.shares.shares import ShareDraft
from sixfold.ui.auth import PageAuth, PageUser
from sixfold.ui.templating import PageTemplates
from sixfold.web import requests, sessions
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices

LIST = "/account/shares"
_FORM_BYTES = 8192
_MAX_ID, _ROWS = 300, 50
# The numbers of days after which a share ends that the form offers.
LIVES = {"": "never", "1": "after a day", "7": "after a week", "30": "after 30 days"}
_DAY_SECONDS = DAY_US // SECOND_US
# The option for one account; the other options are IDs of teams, and "" for everyone.
_ACCOUNT = "account"
_EMPTY: Mapping[str, str] = MappingProxyType({})


class ShareForms:
    """The forms with which an owner creates and ends shares."""

    def __init__(self, services: WebServices, pages: PageTemplates, auth: PageAuth) -> None:
        self._services = services
        self._pages = pages
        self._auth = auth

    async def new(self, request: Request, user: PageUser) -> Response:
        """Show the form for an object, with its shares."""
        kind = requests.query_choice(request, "kind", objects.KINDS, _MAX_ID)
        object_id = requests.query_text(request, "id", _MAX_ID)
        if not kind or not object_id:
            raise errors.BadRequest("Choose what to share: open a run, a workflow, a chat or a page first")
        return await self._render(user, ShareDraft.of({"kind": kind, "id": object_id}))

    async def create(self, request: Request, user: PageUser) -> Response:
        """Share an object and show the link once."""
        form = await self._auth.read_form(request, user)
        life = form.get("life", "")
        if life not in LIVES:
            raise errors.BadRequest("Choose when the link ends")
        draft = ShareDraft.of(
            {
                "kind": form.get("kind"),
                "id": form.get("id"),
                "include_inputs": "inputs" in form,
                "public": "public" in form and not form.get("who"),
                "expires_in": int(life) * _DAY_SECONDS if life else None,
            }
        )
        try:
            draft = replace(draft, grantee=_grantee(form, form.get("who", "")))
            _, token = await self._services.database.write(shares.create(user.principal, draft))
        except (errors.BadRequest, errors.NotFound, errors.Conflict) as error:
            if not form.get("who"):
                raise
            return await self._render(user, draft, form=form, problem=error.message, status=error.status)
        return await self._render(user, draft, self._services.settings.base_url + shares.path_of(token))

    async def end(self, request: Request, user: PageUser) -> Response:
        form = await self._auth.read_form(request, user)
        share_id = requests.path_value(request, "share_id")
        await self._services.database.write(shares.end(user.principal, share_id))
        return RedirectResponse(sessions.own_path(form.get("next", "")) or LIST, 303)

    async def show_list(self, request: Request, user: PageUser) -> Response:
        cursor = requests.query_text(request, "cursor", _MAX_ID) or None
        return await self._render_list(
            user, cursor, {"folder": requests.query_text(request, "folder", _MAX_ID)}
        )

    async def share_folder(self, request: Request, user: PageUser) -> Response:
        """Share a folder of the memory with an account."""
        form = await self._auth.read_form(request, user)
        fields = {name: form.get(name, "") for name in ("folder", "who", "with", "access")}
        try:
            grantee = _grantee(form, form.get("who", _ACCOUNT))
            named = {"with": grantee.name, "team_id": grantee.team_id}
            draft = FolderShareDraft.of({"folder": fields["folder"], "access": fields["access"], **named})
            await self._services.database.write(folders.share(user.principal, draft))
        except (errors.BadRequest, errors.NotFound, errors.Conflict) as error:
            return await self._render_list(user, None, fields, error.message, error.status)
        await membership.move_all(self._services.database, user.account_id, draft.folder)
        return RedirectResponse(f"{LIST}#folders", 303)

    async def end_folder(self, request: Request, user: PageUser) -> Response:
        await self._auth.read_form(request, user)
        share_id = requests.path_value(request, "folder_id")
        folder = await self._services.database.write(folders.end(user.principal, share_id))
        await membership.move_all(self._services.database, user.account_id, folder)
        return RedirectResponse(f"{LIST}#folders", 303)

    async def _render_list(
        self,
        user: PageUser,
        cursor: str | None,
        form: Mapping[str, str] = _EMPTY,
        problem: str = "",
        status: int = 200,
    ) -> Response:
        read, principal = self._services.database.read, user.principal
        has_memory = "memory" in self._services.settings.enabled_apis and principal.has(Rights.MEMORY_READ)
        return self._pages.render(
            "account/shares.html",
            user.session,
            status=status,
            user=user,
            page=await read(shares.page(principal, _ROWS, cursor)),
            received_shares=await read(shares.received(principal, _ROWS)),
            teams=dict(await read(grantees.teams_of_person(user.account_id))),
            here=LIST,
            has_memory=has_memory,
            folders=await read(folders.of_account(principal)) if has_memory else (),
            received=await read(folders.received(principal)) if has_memory else (),
            form=form,
            problem=problem,
        )

    async def _render(
        self,
        user: PageUser,
        draft: ShareDraft,
        link: str = "",
        *,
        form: Mapping[str, str] = _EMPTY,
        problem: str = "",
        status: int = 200,
    ) -> Response:
        target, existing, teams = await self._services.database.read(_with_shares(user, draft))
        values: dict[str, Any] = {"kind": draft.kind, "id": draft.object_id}
        return self._pages.render(
            "shares/new.html",
            user.session,
            status=status,
            user=user,
            target=target,
            shares=existing,
            link=link,
            lives=LIVES,
            here=f"/shares/new?{urlencode(values)}",
            draft=draft,
            teams=dict(teams),
            form=form,
            problem=problem,
        )


def _with_shares(user: PageUser, draft: ShareDraft) -> Any:
    target: ShareTarget = yield from objects.locate(user.principal, draft.kind, draft.object_id)
    page = yield from shares.page(user.principal, _ROWS, None, draft.kind, target.id)
    return target, page.shares, (yield from grantees.teams_of_person(user.account_id))


def _grantee(form: Mapping[str, str], grantee_field: str) -> Grantee:
    """Return the account or the team that a form names; raises `BadRequest`."""
    if grantee_field != _ACCOUNT:
        return Grantee.of({"team_id": grantee_field})
    if not form.get("with", "").strip():
        raise errors.BadRequest("Enter the e-mail address of the account, or the name of the organization")
    return Grantee.of({"with": form["with"]})


def routes(services: WebServices, pages: PageTemplates, auth: PageAuth) -> tuple[RouteEntry, ...]:
    own = ShareForms(services, pages, auth)
    page, signed_in, run = auth.page, auth.signed_in, rights.RUN
    return (
        RouteEntry("/shares/new", {"GET": page(own.new)}, access=run),
        RouteEntry("/shares", {"POST": signed_in(own.create)}, _FORM_BYTES, access=run),
        RouteEntry("/shares/{share_id}/end", {"POST": signed_in(own.end)}, _FORM_BYTES, access=run),
        RouteEntry(LIST, {"GET": page(own.show_list)}, access=run),
        RouteEntry(
            f"{LIST}/folders", {"POST": signed_in(own.share_folder)}, _FORM_BYTES, access=rights.MEMORY_EDIT
        ),
        RouteEntry(
            f"{LIST}/folders/{{folder_id}}/end",
            {"POST": signed_in(own.end_folder)},
            _FORM_BYTES,
            access=rights.MEMORY_WRITE,
        ),
    )
