"""The routes of all pages."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.core.accounts import rights
from sixfold.ui import gallery, static_files, workflows
from sixfold.ui.account import data as account_data
from sixfold.ui.account import pages as account
from sixfold.ui.account import security
from sixfold.ui.admin import alerts, backups, content, engines, lab, people, prices, providers, tools, usage
from sixfold.ui.admin import models as admin_models
from sixfold.ui.admin import pages as admin
from sixfold.ui.auth import PageAuth
from sixfold.ui.catalog import pages as catalog
from sixfold.ui.catalog import session_page
from sixfold.ui.catalog.next_models import NextModels
from sixfold.ui.chat import routes as chat
from sixfold.ui.docs import routes as docs
from sixfold.ui.find import pages as find_pages
from sixfold.ui.login import oauth_consent, passkeys
from sixfold.ui.login import oidc as oidc_login
from sixfold.ui.login import pages as login_pages
from sixfold.ui.login.sessions import LoginService
from sixfold.ui.memory import routes as memory
from sixfold.ui.organization import invitation_page, members_forms
from sixfold.ui.organization.members_page import MembersPage
from sixfold.ui.predictions import form_runs, history, provenance, run_api, selection, text_uses
from sixfold.ui.predictions import pages as predictions
from sixfold.ui.predictions.output_view import OutputView
from sixfold.ui.shares import forms as share_forms
from sixfold.ui.shares import pages as shares
from sixfold.ui.start_page import StartPage
from sixfold.ui.templating import PageTemplates, model_title
from sixfold.ui.workflows import WorkflowCards, WorkflowPages
from sixfold.web import responses
from sixfold.web.openapi import OpenApiDocument
from sixfold.web.routing import ApiGroup, Handler, RouteEntry
from sixfold.web.services import WebServices

# The operator's pages whose routes need only the services, templates and sign-in.
_ADMIN = (people, usage, engines, providers, prices, tools, content, alerts, backups)


def build_apis(
    services: WebServices,
    documents: Mapping[str, OpenApiDocument],
    workflow_list: WorkflowCards | None = None,
) -> tuple[tuple[ApiGroup, ...], Handler]:
    """Return the groups of page and script routes, and the start page's handler."""
    apis = frozenset(services.settings.enabled_apis)
    templates = PageTemplates(apis, {"model_title": partial(model_title, services.catalog)})
    auth, login = PageAuth(services), LoginService(services)
    start = StartPage(services, templates)
    output_view = OutputView(templates, services, NextModels(services))
    runs = run_api.RunRoutes(services, output_view)
    workflow_pages = (
        None if workflow_list is None else WorkflowPages(services, templates, auth, workflow_list)
    )
    pages = ApiGroup(
        "ui",
        templates.error_page,
        (
            *login_pages.routes(services, templates, login),
            *oidc_login.routes(services, templates, login),
            *security.routes(services, templates, login),
            *account_data.routes(services, templates),
            *account.routes(services, templates),
            *members_forms.routes(services, MembersPage(services, templates)),
            *invitation_page.routes(services, templates),
            *admin.routes(services, templates, auth),
            *admin_models.routes(services, templates, auth),
            *(route for page in _ADMIN for route in page.routes(services, templates, auth)),
            *lab.routes(services, templates, auth),
            *gallery.routes(services, templates, auth),
            *session_page.routes(services, templates, auth),
            *workflows.page_routes(workflow_pages),
            *catalog.routes(services, templates, auth),
            *find_pages.page_routes(services, templates, auth),
            *history.routes(services, templates, auth),
            *selection.routes(services, templates, output_view, auth),
            *predictions.routes(services, templates, output_view, auth),
            *text_uses.routes(services, templates, auth),
            *form_runs.routes(services, runs, auth),
            *provenance.page_routes(services, auth),
            *shares.routes(services, templates, auth, workflow_list),
            *share_forms.routes(services, templates, auth),
            *docs.routes(services, templates, documents),
            *oauth_consent.routes(services, templates),
            *static_files.routes(),
        ),
    )
    scripts = ApiGroup(
        "ui",
        responses.error_response,
        (
            *passkeys.routes(services, login),
            *run_api.routes(services, runs, auth),
            *provenance.script_routes(services, auth),
            *find_pages.script_routes(services, templates, auth),
            *workflows.script_routes(workflow_pages),
        ),
    )
    groups = [pages, scripts]
    if "gateway" in apis:
        groups.append(chat.build_api(services, apis))
    if "memory" in apis:
        groups.append(memory.build_api(services, apis))
    return tuple(groups), start.show


def build_not_found(services: WebServices) -> ApiGroup:
    """Return a group for paths outside all APIs; the error page shows the signed-in user."""
    templates = PageTemplates(frozenset(services.settings.enabled_apis))

    async def not_found(request: Request) -> Response:
        await services.sessions.of(request)
        raise errors.NotFound("Page not found")

    methods: dict[str, Handler] = dict.fromkeys(("GET", "POST", "PUT", "PATCH", "DELETE"), not_found)
    return ApiGroup("ui", templates.error_page, (RouteEntry("unknown", methods, access=rights.PUBLIC),))


def build_start_page(start_page: Handler) -> ApiGroup:
    """Return a group with the start page, for servers without the Image utility API, which serves `/`."""
    route = RouteEntry("/", {"GET": start_page}, access=rights.PUBLIC)
    return ApiGroup("ui", responses.error_response, (route,))
