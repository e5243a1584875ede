"""The availability report: from the server of the data folder, or from a probe if no server runs."""

from __future__ import annotations

import asyncio
import http.client
from typing import Any, Literal

import msgspec

from sixfold import settings
from sixfold.app import catalog as app_catalog
from sixfold.app import media as app_media
from sixfold.app.gateway import runtime as app_gateway
from sixfold.app.gateway import web_search as app_web_search
from sixfold.cli.client import SOCKET, KeyRefused, ServerClient, read_key
from sixfold.cli.server_lock import RunningServer
from sixfold.cli.terminal import CommandError
from sixfold.core.catalog import availability
from sixfold.core.catalog.engine_selection import SelectionPolicy
from sixfold.core.catalog.models import Catalog
from sixfold.net.clients import HttpClients
from sixfold.settings import Settings

SERVER_SECONDS = 5
# A server that accepts the connection may be busy loading a model, so the timeout is long.
PROBE_SECONDS = 3.0
_PATH = "/api/engines?refresh=true"
_PROBED_NOTE = "; showing what this command found itself"


class CheckReport(msgspec.Struct, frozen=True):
    """Resources, engines and models, in the format of `GET /api/engines`.

    `source` is the origin of the report. `note` is the reason if a running server did not return one, or
    empty. `warnings` are the server's warnings about its network.
    """

    found: list[dict[str, Any]]
    engines: list[dict[str, Any]]
    models: list[dict[str, Any]]
    source: Literal["server", "probe"]
    note: str = ""
    warnings: tuple[str, ...] = ()
    # GPUs that several programs share; only a running server can report them.
    gpus: tuple[dict[str, Any], ...] = ()


class _NoReport(Exception):
    """Raised if the running server does not return a report; the message is the reason."""


def read(server_settings: Settings, running: RunningServer | None) -> CheckReport:
    """Request the report from the running server; probe this machine if that fails or none runs."""
    note = ""
    if running is not None and running.url:
        try:
            return _report(_request_report(server_settings, running.url), "server")
        except _NoReport as reason:
            note = f"{reason}{_PROBED_NOTE}"
    catalog = app_catalog.catalog(server_settings, app_catalog.price_table(server_settings))
    return _report(asyncio.run(_probe(server_settings, catalog)), "probe", note)


def _report(document: dict[str, Any], source: Literal["server", "probe"], note: str = "") -> CheckReport:
    warnings = tuple(map(str, document.get("warnings", ())))
    gpus = tuple(document.get("gpus", ()))
    return CheckReport(
        document["found"], document["engines"], document["models"], source, note, warnings, gpus
    )


# -- the running server ----------------------------------------------------------------------------


def _request_report(server_settings: Settings, url: str) -> dict[str, Any]:
    """Try the key in the environment, then the key of the first start, then the local socket."""
    keys = [settings.api_key(), read_key(server_settings.data_dir)]
    path = server_settings.data_dir / SOCKET
    clients = [ServerClient(url, api_key) for api_key in dict.fromkeys(key for key in keys if key)]
    for client in [*clients, *([ServerClient(url, None, path)] if path.is_socket() else [])]:
        status, document = _get(client, url)
        if status == http.client.OK and _is_report(document):
            return document
        if status not in {http.client.UNAUTHORIZED, http.client.FORBIDDEN}:
            older = ": it may be older than this version" if status == http.client.NOT_FOUND else ""
            raise _NoReport(f"The server at {url} returned {status} for GET /api/engines{older}")
    raise _NoReport(f"The server at {url} requires an operator's key: set SIXFOLD_API_KEY")


def _get(client: ServerClient, url: str) -> tuple[int, Any]:
    client.timeout_seconds = SERVER_SECONDS
    try:
        response = client.ask("GET", _PATH)
    except KeyRefused:
        return http.client.UNAUTHORIZED, None
    except CommandError as error:
        if isinstance(error.__cause__, TimeoutError):
            raise _NoReport(f"The server at {url} did not respond within {SERVER_SECONDS} s") from error
        raise _NoReport(f"The server at {url} cannot be reached ({error.__cause__})") from error
    return response.status, response.document


def _is_report(document: Any) -> bool:
    return isinstance(document, dict) and {"found", "engines", "models"} <= document.keys()


# -- without a server ------------------------------------------------------------------------------


async def _probe(server_settings: Settings, catalog: Catalog) -> dict[str, Any]:
    """Probe once for everything that a server with these settings would use."""
    clients = HttpClients(app_media.open_fetcher(server_settings))
    engine_states = app_catalog.availability(server_settings, catalog, clients, seconds=PROBE_SECONDS)
    try:
        search = app_web_search.engine(server_settings, clients)
        probe_search = search.probe() if search is not None else asyncio.sleep(0)
        (ready, servers), *_ = await asyncio.gather(
            app_gateway.look(server_settings, PROBE_SECONDS), engine_states.refresh(), probe_search
        )
    finally:
        await clients.aclose()
    engine_states.status_sources |= {
        name: lambda standing=standing: standing for name, standing in ready.items()
    }
    installed = app_catalog.resources(
        server_settings, catalog, engine_states, lambda: servers, search=lambda: search
    )
    resources = await installed.resources()
    return dict(
        availability.report(
            catalog, SelectionPolicy(server_settings.previews_allowed, status_of=engine_states), resources
        )
    )
