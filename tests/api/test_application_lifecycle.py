"""Start and stop of the application: the order of its parts, and a part that cannot start."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sixfold import errors
from sixfold.app import bootstrap
from sixfold.app.bootstrap import Application
from sixfold.settings import Settings
from tests.api.app_fixture import small_models
from tests.harness import backends, databases


def _build(folder: Path) -> Application:
    options: dict[str, Any] = {"driver": "inline", "testing": True, "drain_seconds": 1}
    databases.prepare(folder)
    settings = Settings(data_dir=folder, **{**options, **backends.settings(folder)})
    return bootstrap.build(settings, small_models())


def _record(monkeypatch: pytest.MonkeyPatch, part: Any, method: str, calls: list[str]) -> None:
    run: Callable[..., Awaitable[Any]] = getattr(part, method)

    async def recorded(*arguments: Any, **options: Any) -> Any:
        calls.append(f"{type(part).__name__}.{method}")
        return await run(*arguments, **options)

    monkeypatch.setattr(part, method, recorded)


async def test_gateway_runs_until_runs_and_sessions_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    application, calls = _build(tmp_path), list[str]()
    for part, method in (
        (application.gateway_runtime, "start"),
        (application.scheduler, "start"),
        (application.live_sessions, "start"),
        (application.live_sessions, "drain"),
        (application.scheduler, "stop"),
        (application.gateway_runtime, "stop"),
        (application.clients, "aclose"),
        (application.key_use, "store"),
        (application.database, "close"),
    ):
        _record(monkeypatch, part, method, calls)
    async with bootstrap.running(application):
        pass
    assert calls == [
        "GatewayRuntime.start",
        "Scheduler.start",
        "SessionService.start",
        "SessionService.drain",
        "Scheduler.stop",
        "GatewayRuntime.stop",
        "HttpClients.aclose",
        "KeyUse.store",
        f"{type(application.database).__name__}.close",
    ]


class _BrokenSearch(msgspec.Struct):
    async def look(self) -> bool:
        raise errors.StoreFailed("the index cannot be read")


async def test_failed_start_stops_the_started_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken: Any = _BrokenSearch()
    application = msgspec.structs.replace(_build(tmp_path), memory_search=broken)
    calls = list[str]()
    _record(monkeypatch, application.database, "close", calls)
    before = asyncio.all_tasks()
    with pytest.raises(errors.StoreFailed, match="the index cannot be read"):
        async with bootstrap.running(application):
            raise AssertionError("the application must not run")
    assert len(calls) == 1
    assert asyncio.all_tasks() == before
