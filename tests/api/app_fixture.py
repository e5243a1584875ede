"""In-process server for tests: the real application with a fast fake engine, three accounts, and a client."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import jinja2
from starlette.types import ASGIApp

from sixfold.app import asgi, bootstrap
from sixfold.app import catalog as app_catalog
from sixfold.app.bootstrap import Application
from sixfold.core import money
from sixfold.core.account_data import export
from sixfold.core.accounts import accounts, keys, ledger_queries, rights
from sixfold.core.accounts.accounts import Account
from sixfold.core.accounts.keys import KeyLimits
from sixfold.core.accounts.rights import Rights
from sixfold.core.database import Database, Row
from sixfold.core.predictions.service import PredictionService
from sixfold.engines import availability as engine_availability
from sixfold.settings import Settings
from sixfold.ui.templating import PageTemplates
from sixfold.web.app import WebApp
from tests.api import described
from tests.harness import backends, databases


class CompiledTemplates(jinja2.BytecodeCache):
    """Keeps compiled templates in memory: compiling them takes longer than many tests."""

    def __init__(self) -> None:
        self._codes: dict[tuple[str, str], Any] = {}

    def load_bytecode(self, bucket: Any) -> None:
        bucket.code = self._codes.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket: Any) -> None:
        self._codes[bucket.key, bucket.checksum] = bucket.code


PageTemplates.bytecode_cache = CompiledTemplates()
# No test installs a package, and each server looks for thirty of them twice.
engine_availability.is_importable = functools.cache(engine_availability.is_importable)
ORIGIN = "http://127.0.0.1:8600"
DOT = "tests.api.fake_engines:DotEngine"


# Reading it takes longer than many tests.
_document = functools.cache(app_catalog.models_document)


def small_models(quality: str = "full", real: Collection[str] = ()) -> Mapping[str, Any]:
    """Return the bundled catalog with every engine but `real` ones replaced by `DotEngine`."""
    document = _document()
    dot = {"factory": DOT, "quality": quality}
    engines = {name: row if name in real else {**row, **dot} for name, row in document["engines"].items()}
    return {**document, "engines": engines}


@dataclass(frozen=True, slots=True)
class AppFixture:
    """Running server and its accounts: `key` and `other` have 5 USD each, `poor` has nothing."""

    server: Application
    asgi: ASGIApp
    client: httpx.AsyncClient
    account: Account
    key: str
    other: str
    poor: str
    operator: Account

    @property
    def database(self) -> Database:
        return self.server.database

    @property
    def predictions(self) -> PredictionService:
        return self.server.predictions

    @property
    def settings(self) -> Settings:
        return self.server.settings

    @property
    def bearer(self) -> dict[str, str]:
        """Return the authorization header of the first account."""
        return bearer(self.key)

    async def exported(self, query: str) -> list[Row]:
        """Return the rows of a query that an export of the first account contains."""
        rows: list[Row] = []
        after: str | None = ""
        while after is not None:
            found, after = await self.database.read(export.batch(self.account.id, query, after))
            rows += found
        return rows

    async def balance(self) -> tuple[str, str]:
        """Return the posted and held balance of the first account."""
        account = await self.database.read(accounts.by_id(self.account.id))
        return money.format_usd(account.posted), money.format_usd(account.held)

    async def until(self, posted: str, held: str) -> None:
        """Wait until the first account has this posted and held balance."""
        async with asyncio.timeout(60):
            while await self.balance() != (posted, held):  # noqa: ASYNC110 - money has no event to wait for
                await asyncio.sleep(0.005)

    async def faults(self) -> tuple[str, ...]:
        """Return the faults that the verification of the ledger reports."""
        return await self.database.read(ledger_queries.verify())

    async def operator_key(self) -> str:
        result = keys.create(self.operator.id, granted=rights.ALL)
        return (await self.database.write(result)).api_key

    async def limited_key(self, scope: KeyLimits, granted: Rights | None = None) -> str:
        """Return another key of the first account."""
        created = keys.create(self.account.id, scope, granted=granted)
        return (await self.database.write(created)).api_key

    def visitor(self, peer: str = "127.0.0.1", base_url: str = ORIGIN) -> httpx.AsyncClient:
        """Return a client without cookies, from another address."""
        return client(self.asgi, peer, base_url, self.server)


def bearer(key: str) -> dict[str, str]:
    """Return the authorization header of a key."""
    return {"Authorization": f"Bearer {key}"}


class CheckedClient(httpx.AsyncClient):
    """Client that validates every response against its OpenAPI document."""

    def __init__(self, app: ASGIApp, application: Application | None, **options: Any) -> None:
        self._app, self._application = app, application
        super().__init__(**options)

    async def send(self, request: httpx.Request, *, stream: bool = False, **options: Any) -> httpx.Response:
        response = await super().send(request, stream=stream, **options)
        if not stream and self._application is not None and isinstance(self._app, WebApp):
            described.check(self._application, self._app, response)
        return response


def client(
    app: ASGIApp, peer: str = "127.0.0.1", base_url: str = ORIGIN, application: Application | None = None
) -> httpx.AsyncClient:
    """Return a client of an in-process application; with `application`, responses are validated."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=(peer, 40000))
    return CheckedClient(app, application, transport=transport, base_url=base_url, timeout=60)


@asynccontextmanager
async def running_app(
    folder: Path, models: Mapping[str, Any] | None = None, *, source: Any = None, **changes: Any
) -> AsyncIterator[AppFixture]:
    """Run the server; settings are keyword arguments or come from a `config_reload.Source`."""
    # A run that a test abandons would delay the shutdown by the 30 s of the setting.
    usual: dict[str, Any] = {"driver": "inline", "workers": 4, "testing": True, "drain_seconds": 1}
    usual |= backends.settings(folder)
    settings = Settings(data_dir=folder, **{**usual, **changes}) if source is None else source.loaded
    databases.prepare(folder)
    application = bootstrap.build(settings, small_models() if models is None else models, source)
    async with bootstrap.running(application):
        operator = await application.database.write(accounts.create("local@localhost", operator=True))
        people = [
            await application.database.write(accounts.create(f"{name}@example.com", credit=credit))
            for name, credit in (("ada", 5_000_000), ("ben", 5_000_000), ("cleo", 0))
        ]
        ada, ben, cleo = [
            (await application.database.write(keys.create(person.id))).api_key for person in people
        ]
        asgi_app = asgi.create_app(application)
        async with client(asgi_app, application=application) as visitor:
            yield AppFixture(application, asgi_app, visitor, people[0], ada, ben, cleo, operator)
