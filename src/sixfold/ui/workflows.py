"""`/workflows`: list, show, run, import, rename, copy and delete workflows."""

from __future__ import annotations

import asyncio
import re
from pathlib import PurePath
from typing import Protocol
from urllib.parse import quote

import msgspec
from markupsafe import Markup
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core import money
from sixfold.core.accounts import rights
from sixfold.core.accounts.keys import Principal
from sixfold.core.configuration.entries import COMFYUI
from sixfold.core.configuration.ports import ServerProbe
from sixfold.core.media.media import MEDIA_PATH
from sixfold.core.media.ports import OutputFile
from sixfold.core.predictions.history import run_parts
from sixfold.core.predictions.history.entries import HistoryFile
from sixfold.core.predictions.states import PredictionState
from sixfold.core.workflows import workflows
from sixfold.core.workflows.workflows import PATH, Workflow
from sixfold.ui.auth import PageAuth, PageUser
from sixfold.ui.catalog import example_outputs, initial_values, input_files
from sixfold.ui.catalog.pages import MAX_FIELDS, form_fields, price_text
from sixfold.ui.templating import PageTemplates
from sixfold.web import multipart, requests, responses
from sixfold.web.files import REVALIDATE_PRIVATE
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices
from sixfold.web.sessions import SessionCookie

_STYLE = re.compile("<style>.*?</style>", re.DOTALL)
_MAX_NAME = 200
# Maximum number of columns on wide screens, narrow screens and phones, and of drawings with compact nodes.
_COLUMNS, _COMPACT_COLUMNS = (6, 3, 1), (12, 6, 4, 3)
# Larger graphs are drawn for wide screens only.
_MOST_REDRAWN = 60
_FORM_BYTES = 4096
# Characters that the name of an entry cannot contain.
_UNUSABLE = re.compile(r"[^\w.:-]+")
# The texts for the status of a verification.
_CHECKED = {
    "api-validated": "Checked: every node exists",
    "gpu-verified": "Checked by a run on a GPU",
    "unverified": "Not checked",
}
_SVG_HEADERS = {
    "Cache-Control": REVALIDATE_PRIVATE,
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
}


class ComfyTest(msgspec.Struct, frozen=True):
    """The result of testing the URL of a ComfyUI server."""

    url: str
    probe: ServerProbe


class WorkflowCards(Protocol):
    """The workflow operations that the pages need; `account_id` is None for anonymous users."""

    async def list_page(self, request: Request, account_id: str | None) -> tuple[list[Workflow], str | None]:
        """Return a page of workflows and the cursor of the next page."""
        ...

    async def find(self, slug: str, account_id: str | None) -> Workflow:
        """Return a workflow; raises `NotFound`."""
        ...

    def draw(self, workflow: Workflow, columns: int = _COLUMNS[0], *, compact: bool = False) -> str:
        """Return the graph as SVG, in at most `columns` columns; compact nodes only have titles."""
        ...

    def sketch(self, workflow: Workflow) -> str:
        """Return a small SVG of the graph, styled by the page."""
        ...

    async def missing(self, workflow: Workflow) -> dict[str, dict[str, list[str]]]:
        """Return the ids of nodes with classes unknown to this server, by package and class."""
        ...

    async def rename(self, principal: Principal, slug: str, name: str, expected: int | None) -> Workflow:
        """Rename a workflow of the account; raises `NotFound`, `Forbidden` or `PreconditionFailed`."""
        ...

    async def duplicate(self, principal: Principal, slug: str) -> Workflow:
        """Copy a workflow; raises `NotFound`."""
        ...

    async def remove(self, principal: Principal, slug: str, expected: int | None) -> None:
        """Delete a workflow of the account; raises `NotFound`, `Forbidden` or `PreconditionFailed`."""
        ...

    async def import_file(self, account_id: str, content: bytes, name: str) -> Workflow:
        """Import a workflow from a JSON file or an image's metadata; raises `BadRequest`."""
        ...


class WorkflowPages:
    """The pages for built-in workflows and the workflows of the signed-in user."""

    def __init__(
        self, services: WebServices, pages: PageTemplates, auth: PageAuth, workflow_list: WorkflowCards
    ) -> None:
        self._services = services
        self._pages = pages
        self._auth = auth
        self._workflow_list = workflow_list
        self.script = auth.script(self.import_file)
        self.nodes_script = auth.script(self.run_nodes)
        self.forms = {
            "rename": auth.page(self.rename),
            "duplicate": auth.page(self.duplicate),
            "delete": auth.page(self.remove),
        }
        self.connect_form = auth.page(self.connect)
        self.import_form = auth.signed_in(self.import_upload)
        self.max_bytes = services.settings.inline_body_bytes

    async def show_list(self, request: Request) -> Response:
        user = await self._auth.user(request)
        await self._services.workflows.load()
        page, next_cursor = await self._workflow_list.list_page(request, _account(user))
        built_in = self._services.workflows.spaces
        return self._pages.render(
            "workflows.html",
            _session(user),
            own=[workflow for workflow in page if workflow.slug not in built_in],
            built_in=[workflow for workflow in page if workflow.slug in built_in],
            sketches=await self._sketches(page),
            next_cursor=next_cursor,
            checked=_CHECKED,
            user=user,
        )

    async def show_workflow(self, request: Request) -> Response:
        user = await self._auth.user(request)
        workflow = await self._find(request, user)
        return await self._render(request, user, workflow)

    async def connect(self, request: Request, user: PageUser) -> Response:
        """Test the URL of a ComfyUI server, store it if the server responds, and show the result."""
        form = await self._auth.read_form(request, user)
        url = form.get("url", "").strip().rstrip("/")[:_MAX_NAME]
        workflow = await self._find(request, user)
        probe = await self._services.configuration.probe_comfyui(url)
        if probe.problem or form.get("do") == "test":
            return await self._render(request, user, workflow, ComfyTest(url, probe))
        name = _UNUSABLE.sub("-", url.partition("://")[2])
        await self._services.configuration.put(user.principal, COMFYUI, name, {"url": url})
        await self._services.workflows.refresh_remote(workflow.graph)
        return RedirectResponse(f"/workflows/{quote(workflow.slug)}", 303)

    async def _render(
        self, request: Request, user: PageUser | None, workflow: Workflow, tested: ComfyTest | None = None
    ) -> Response:
        await self._services.workflows.load()
        await self._services.workflows.refresh_remote(workflow.graph)
        model = (
            self._services.catalog[workflow.model]
            if user is None
            else await self._services.predictions.find(workflow.model, user.account_id)
        )
        initial = await initial_values.of_request(self._services, request, user, model)
        form = workflows.with_files(model, self._services.workflows.classes)
        missing = await self._workflow_list.missing(workflow)
        return self._pages.render(
            "workflow.html",
            _session(user),
            workflow=workflow,
            own=workflow.slug not in self._services.workflows.spaces,
            drawings=self._drawings(workflow),
            missing=missing,
            missing_count=sum(len(ids) for classes in missing.values() for ids in classes.values()),
            tested=tested,
            found=_found(missing, tested),
            may_connect=self._services.workflows.remote is not None,
            operator=user is not None and user.principal.is_operator,
            checked=_CHECKED.get(str(workflow.verification.get("status")), ""),
            model=model,
            fields=form_fields(form, initial, await input_files.recent(self._services, user, form)),
            inputs=(workflow.inputs or ())[:MAX_FIELDS],
            more_inputs=max(0, len(workflow.inputs or ()) - MAX_FIELDS),
            run=initial.run,
            max_bytes=self._services.settings.upload_body_bytes,
            price=price_text(self._services.predictions, model),
            path=f"/workflows/{workflow.slug}",
            example=example_outputs.by_model().get(workflow.model),
            hue="workflows",
            user=user,
            query=initial_values.query_of(request),
            base=PATH,
        )

    def _drawings(self, workflow: Workflow) -> list[Markup]:
        """Return drawings for all screens; the page shows the first that is whole and readable."""
        is_small = len(workflow.graph) <= _MOST_REDRAWN
        counts, compact_counts = (_COLUMNS, _COMPACT_COLUMNS) if is_small else (_COLUMNS[:1], ())
        draw = self._workflow_list.draw
        drawings = dict.fromkeys(
            (
                *(draw(workflow, count) for count in counts),
                *(draw(workflow, count, compact=True) for count in compact_counts),
            )
        )
        return [Markup(_STYLE.sub("", each, count=1)) for each in drawings]  # noqa: S704 - escaped by `draw`

    async def _sketches(self, page: list[Workflow]) -> dict[str, Markup]:
        sketches: dict[str, Markup] = {}
        for workflow in page:
            sketches[workflow.slug] = Markup(self._workflow_list.sketch(workflow))  # noqa: S704 - escaped by `sketch`
            await asyncio.sleep(0)
        return sketches

    async def graph_svg(self, request: Request) -> Response:
        """Return the SVG of a workflow's graph, for a card."""
        workflow = await self._find(request, await self._auth.user(request))
        await self._services.workflows.load()
        return Response(self._workflow_list.draw(workflow), 200, _SVG_HEADERS, "image/svg+xml")

    async def download(self, request: Request) -> Response:
        workflow = await self._find(request, await self._auth.user(request))
        suffix = {"image/png": "png", "image/webp": "webp", "image/jpeg": "jpg"}.get(
            workflow.content_type, "json"
        )
        disposition = f'attachment; filename="{workflow.slug}.{suffix}"'
        headers = {"Cache-Control": REVALIDATE_PRIVATE, "Content-Disposition": disposition}
        return Response(workflow.content, 200, headers, workflow.content_type)

    async def import_file(self, request: Request, user: PageUser) -> Response:
        """Import a file that was dropped on a page and return the path of its page."""
        name = requests.query_text(request, "name", _MAX_NAME)
        workflow = await self._workflow_list.import_file(user.account_id, await request.body(), name)
        return responses.json({"path": f"/workflows/{workflow.slug}", "slug": workflow.slug}, 201)

    async def import_upload(self, request: Request, user: PageUser) -> Response:
        """Import the file of a form without JavaScript and show its workflow."""
        async with multipart.form(request, max_files=1, max_fields=4) as form:
            csrf, file = form.get("csrf"), form.get("file")
            self._auth.check_csrf(request, user, csrf if isinstance(csrf, str) else None)
            if not isinstance(file, UploadFile) or not file.filename:
                raise errors.BadRequest("Choose a file first")
            name = PurePath(file.filename).stem[:_MAX_NAME]
            workflow = await self._workflow_list.import_file(user.account_id, await file.read(), name)
        return RedirectResponse(f"/workflows/{quote(workflow.slug)}", 303)

    async def rename(self, request: Request, user: PageUser) -> Response:
        form = await self._auth.read_form(request, user)
        slug = requests.path_value(request, "slug")
        name = form.get("name", "")[:_MAX_NAME]
        await self._workflow_list.rename(user.principal, slug, name, _version(form))
        return RedirectResponse(f"/workflows/{quote(slug)}", 303)

    async def duplicate(self, request: Request, user: PageUser) -> Response:
        await self._auth.read_form(request, user)
        copy = await self._workflow_list.duplicate(user.principal, requests.path_value(request, "slug"))
        return RedirectResponse(f"/workflows/{quote(copy.slug)}", 303)

    async def remove(self, request: Request, user: PageUser) -> Response:
        form = await self._auth.read_form(request, user)
        slug = requests.path_value(request, "slug")
        await self._workflow_list.remove(user.principal, slug, _version(form))
        return RedirectResponse("/workflows", 303)

    async def run_nodes(self, request: Request, user: PageUser) -> Response:
        """Return the results of a succeeded run: files by node, costs and files by part."""
        prediction_id = requests.path_value(request, "prediction_id")
        prediction = await self._services.predictions.get(prediction_id, user.tenant)
        if prediction.state is not PredictionState.SUCCEEDED:
            return responses.json({"nodes": {}, "parts": {}})
        outputs = prediction.output.files if prediction.output is not None else ()
        nodes = {str(file.info.get("node", "")): _thumbnail(file) for file in reversed(outputs)}
        parts = {
            part.id: {
                "cost": f"{money.format_usd(part.cost)} USD",
                "file": next((_thumbnail(file) for file in part.files), None),
            }
            for part in await run_parts.find(self._services.database, prediction.id)
        }
        return responses.json({"nodes": nodes, "parts": parts})

    async def _find(self, request: Request, user: PageUser | None) -> Workflow:
        self._services.trusted_hosts.admit(request)
        return await self._workflow_list.find(requests.path_value(request, "slug"), _account(user))


def _thumbnail(file: OutputFile | HistoryFile) -> str | None:
    """Return the path of a small image of a file, or None."""
    kind = file.content_type.partition(";")[0]
    if not kind.startswith(("image/", "video/")) or kind == "image/svg+xml":
        return None
    return f"{MEDIA_PATH}{file.name}?w=160"


def _found(missing: dict[str, dict[str, list[str]]], tested: ComfyTest | None) -> int:
    """Return the number of missing node classes that the tested ComfyUI server provides."""
    models = frozenset() if tested is None else frozenset(tested.probe.models)
    return sum(name in models for classes in missing.values() for name in classes)


def _version(form: dict[str, str]) -> int | None:
    text = form.get("version", "")
    return int(text) if text.isdecimal() and len(text) < 10 else None


def _account(user: PageUser | None) -> str | None:
    return None if user is None else user.account_id


def _session(user: PageUser | None) -> SessionCookie | None:
    return None if user is None else user.session


def page_routes(workflows: WorkflowPages | None) -> tuple[RouteEntry, ...]:
    if workflows is None:
        return ()
    return (
        RouteEntry("/workflows", {"GET": workflows.show_list}, access=rights.PUBLIC),
        RouteEntry("/workflows/{slug}", {"GET": workflows.show_workflow}, access=rights.PUBLIC),
        RouteEntry("/workflows/{slug}/graph.svg", {"GET": workflows.graph_svg}, access=rights.PUBLIC),
        RouteEntry("/workflows/{slug}/download", {"GET": workflows.download}, access=rights.PUBLIC),
        RouteEntry(
            "/pages/workflow-import", {"POST": workflows.import_form}, workflows.max_bytes, access=rights.RUN
        ),
        *(
            RouteEntry(
                f"/workflows/{{slug}}/{name}", {"POST": handler}, _FORM_BYTES, access=rights.RUN_ACCOUNT_READ
            )
            for name, handler in workflows.forms.items()
        ),
        RouteEntry(
            "/workflows/{slug}/comfyui",
            {"POST": workflows.connect_form},
            _FORM_BYTES,
            access=rights.OPERATE_CHANGES,
        ),
    )


def script_routes(workflows: WorkflowPages | None) -> tuple[RouteEntry, ...]:
    if workflows is None:
        return ()
    return (
        RouteEntry("/pages/workflows", {"POST": workflows.script}, workflows.max_bytes, access=rights.RUN),
        RouteEntry(
            "/pages/predictions/{prediction_id}/nodes", {"GET": workflows.nodes_script}, access=rights.RUN
        ),
    )
