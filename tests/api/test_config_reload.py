"""A changed sixfold.toml applies while the server runs, and an invalid one changes nothing."""

from __future__ import annotations

import asyncio
import html
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from sixfold import settings
from sixfold.app.config_reload import WatchedFile
from tests.api.app_fixture import bearer, running_app
from tests.api.gateway import PRICE, Gateway
from tests.api.test_pages import signed_in
from tests.fakes.chat_servers import ModelServer, model_server
from tests.harness import backends
from tests.harness.waiting import wait_until

IMAGE_INPUTS = {"prompt": "a fox", "size": "1024x1024"}
LOG = "sixfold.configuration"


def written(acme: ModelServer, more: str = "", aliases: str = 'first = "acme/small"') -> str:
    price = "\n".join(f'{name} = "{amount}"' for name, amount in PRICE.items())
    return f"""
{more}
[gateway]
retries = 0
[gateway.upstreams.acme]
kind = "openai"
base_url = "{acme.url}"
api_key = "sk-acme"
[gateway.aliases]
{aliases}
[gateway.prices."acme/small"]
{price}
"""


@dataclass(frozen=True)
class ConfiguredServer:
    """A server with a configuration file; `write` replaces the file as an editor does."""

    gateway: Gateway
    file: Path

    def write(self, text: str) -> None:
        beside = self.file.with_suffix(".new")
        beside.write_text(text)
        beside.rename(self.file)

    async def models(self) -> set[str]:
        response = await self.gateway.app.client.get("/v1/models", headers=self.gateway.headers)
        return {row["id"] for row in response.json()["data"]}

    async def warnings(self) -> list[str]:
        """Return the warnings that `sixfold doctor` prints."""
        app = self.gateway.app
        response = await app.client.get("/api/engines", headers=bearer(await app.operator_key()))
        return response.json()["warnings"]

    async def cost(self) -> str:
        response = await self.gateway.app.client.post(
            "/api/ra1", json={"api_key": self.gateway.app.key, **IMAGE_INPUTS}
        )
        assert response.status_code == 200, response.text
        return response.json()["cost"]


@asynccontextmanager
async def running_configured(folder: Path, more: str = "") -> AsyncIterator[ConfiguredServer]:
    async with model_server() as acme:
        file = folder / "sixfold.toml"
        file.write_text(written(acme, more))
        environ = {"SIXFOLD_TESTING": "1", "SIXFOLD_DRIVER": "inline", "SIXFOLD_PROBE": "0"}
        environ |= backends.environ(folder)

        def load() -> settings.Settings:
            return settings.load(environ, data_dir=folder)

        async with running_app(folder, source=WatchedFile(load, load())) as app:
            yield ConfiguredServer(Gateway(app, acme, acme), file)


async def wait_for(condition: Callable[[], Awaitable[bool]]) -> None:
    await wait_until(condition, 30)


async def until_logged(caplog: pytest.LogCaptureFixture, text: str) -> str:
    async def is_logged() -> bool:
        return text in caplog.text

    await wait_for(is_logged)
    return next(record.getMessage() for record in caplog.records if text in record.getMessage())


async def test_reload_changes_aliases_and_prices_and_is_logged(
    either: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOG)
    async with running_configured(either) as server:
        assert "first" in await server.models()
        assert await server.cost() == "0.04"
        server.write(written(server.gateway.acme, '[prices.ra1]\nusd = "0.05"', 'second = "acme/small"'))
        message = await until_logged(caplog, "was reloaded")
        assert message == f"{server.file} was reloaded: [gateway.aliases], [prices]"
        assert {"second"} <= await server.models()
        assert "first" not in await server.models()
        assert (await server.gateway.chat(model="second")).status_code == 200
        assert (await server.gateway.chat(model="first")).status_code == 404
        assert await server.cost() == "0.05"
        assert await server.gateway.app.balance() != ("5.00", "0.00")
        assert await server.gateway.app.faults() == ()


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ('[prices.ra1]\nusd = "cheap"', "[prices.ra1] usd must be USD with at most six decimals"),
        ('[prices]\nown_hardware = "yes"', "[prices] own_hardware must be"),
        ("[prices", "is not valid TOML"),
        ("prices = 1", "[prices] must be a table (got 1)"),
        ("lavender = 1", "unknown setting 'lavender'"),
        ("port = [1]", "SIXFOLD_PORT must be a whole number (got [1])"),
        ('[engines.models]\nnothing = "x"', "[engines.models] has an unknown model 'nothing'"),
    ],
)
async def test_invalid_file_changes_nothing_and_its_error_is_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, more: str, reason: str
) -> None:
    caplog.set_level(logging.INFO, LOG)
    async with running_configured(tmp_path) as server:
        server.write(written(server.gateway.acme, more, 'second = "acme/small"'))
        message = await until_logged(caplog, "was not reloaded")
        assert str(server.file) in message
        assert reason in message
        assert "first" in await server.models()
        assert "second" not in await server.models()
        assert await server.cost() == "0.04"
        app = server.gateway.app
        assert await server.warnings() == [message]
        await signed_in(app, app.operator)
        assert reason in html.unescape((await app.client.get("/admin")).text)
        server.write(written(server.gateway.acme, "", 'third = "acme/small"'))
        await until_logged(caplog, "was reloaded")
        assert "third" in await server.models()
        assert await server.warnings() == []
        assert reason not in html.unescape((await app.client.get("/admin")).text)


async def test_reload_names_restart_settings_and_applies_the_rest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOG)
    async with running_configured(tmp_path) as server:
        more = 'port = 9000\nqueue_limit = 5\n[prices.ra1]\nusd = "0.05"'
        text = written(server.gateway.acme, more).replace("retries = 0", "retries = 1\ncache = true")
        server.write(text)
        message = await until_logged(caplog, "a restart is needed")
        assert message.endswith("a restart is needed for port, queue_limit, [gateway] cache")
        assert "was reloaded: [gateway] retries, [prices]" in caplog.text
        assert await server.cost() == "0.05"
        assert server.gateway.app.server.gateway_runtime.gateway.policy.retries == 1


async def test_reloaded_upstream_lists_its_models_before_serving(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOG)
    async with running_configured(tmp_path) as server, model_server() as other:
        more = f'\n[gateway.upstreams.other]\nkind = "openai"\nbase_url = "{other.url}"\nlocal = true\n'
        server.write(written(server.gateway.acme) + more)
        await until_logged(caplog, "was reloaded: [gateway.upstreams]")
        assert any(name.startswith("other/") for name in await server.models())
        assert (await server.gateway.chat(model="other/small")).status_code == 200


async def test_call_in_progress_keeps_its_price_and_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOG)
    async with running_configured(tmp_path) as server:
        first = (await server.gateway.chat(text="say 3 words", model="acme/small")).headers["x-sixfold-cost"]
        server.gateway.acme.mode = "wait"
        request = asyncio.create_task(server.gateway.chat(text="say 3 words", model="acme/small"))
        await wait_until(lambda: len(server.gateway.acme.requests) >= 2, 30)
        dearer = written(server.gateway.acme).replace('"1000"', '"1100"')
        server.write(dearer)
        await until_logged(caplog, "was reloaded: [gateway.prices]")
        server.gateway.acme.mode = "well"
        server.gateway.acme.go_on.set()
        assert (await request).headers["x-sixfold-cost"] == first
        after = (await server.gateway.chat(text="say 3 words", model="acme/small")).headers["x-sixfold-cost"]
        assert float(after) > float(first)


async def test_reload_request_reports_changes_or_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOG)
    async with running_configured(tmp_path) as server:
        server.gateway.app.server.operator.reloader.request()
        assert "nothing has changed" in await until_logged(caplog, "was read again")
