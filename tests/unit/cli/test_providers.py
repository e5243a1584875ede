"""`sixfold provider`: keys are read from standard input, encrypted, checked, and masked in the output."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sixfold.clients import provider_check
from sixfold.core.catalog.engines import EngineError
from sixfold.providers import PROVIDERS
from sixfold.settings import Settings
from sixfold.store.secrets import provider_key
from tests.fakes import fault_server
from tests.unit.cli.conftest import Commands

KEY = "sk-proj-canary-0123456789abcdef"


@pytest.fixture
def key_input(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{KEY}\n"))
    return monkeypatch


def test_key_is_read_from_stdin_and_shown_masked(sixfold: Commands, key_input: pytest.MonkeyPatch) -> None:
    result = sixfold("provider", "set", "openai", "--json")
    assert result.json == {"provider": "openai", "source": "stored", "hint": "…cdef", "used": True}
    assert provider_key(Settings(data_dir=sixfold.folder), "openai_api_key") == KEY
    listing = sixfold("provider", "list")
    row = {row["provider"]: row for row in sixfold.ok("provider", "list")["providers"]}["openai"]
    assert (row["source"], row["hint"], row["checked_at"]) == ("stored", "…cdef", None)
    assert row["set_at"].endswith("Z")
    doctor = sixfold("doctor")
    assert "a key is stored (…cdef)" in doctor.out
    assert KEY not in result.out + result.err + listing.out + doctor.out + doctor.err


def test_data_folder_of_a_key_is_accessible_by_its_owner_only(
    sixfold: Commands, key_input: pytest.MonkeyPatch
) -> None:
    sixfold.ok("provider", "set", "openai")
    assert {path.stat().st_mode & 0o077 for path in sixfold.folder.rglob("*")} == {0}


@pytest.mark.parametrize(
    "text", ["", "\n", "short\n", "two words are none\n", "ключ-который-не-подходит\n", "x" * 5000]
)
def test_malformed_key_is_refused(sixfold: Commands, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert "nothing was stored" in sixfold.error_of("provider", "set", "fal")
    assert provider_key(Settings(data_dir=sixfold.folder), "fal_key") == ""


def test_key_as_a_command_line_argument_is_refused(sixfold: Commands) -> None:
    assert sixfold("provider", "set", "fal", KEY).status == 2
    assert sixfold("provider", "set", "someone").status == 2


def test_variable_precedes_a_stored_key_with_a_notice(
    sixfold: Commands, key_input: pytest.MonkeyPatch
) -> None:
    key_input.setenv("OPENAI_API_KEY", "sk-from-the-environment-9999")
    result = sixfold("provider", "set", "openai")
    assert "OPENAI_API_KEY is also set" in result.out
    row = {row["provider"]: row for row in sixfold.ok("provider", "list")["providers"]}["openai"]
    assert (row["source"], row["hint"]) == ("environment", "…9999")


def test_removed_key_is_no_longer_stored(sixfold: Commands, key_input: pytest.MonkeyPatch) -> None:
    sixfold.ok("provider", "set", "openai")
    assert sixfold.ok("provider", "remove", "openai") == {"provider": "openai", "removed": True}
    assert "is not stored" in sixfold.error_of("provider", "remove", "openai")


def test_key_of_another_server_is_listed_with_an_error(
    sixfold: Commands, key_input: pytest.MonkeyPatch
) -> None:
    sixfold.ok("provider", "set", "openai")
    (sixfold.folder / "server.key").write_bytes(bytes(32))
    row = {row["provider"]: row for row in sixfold.ok("provider", "list")["providers"]}["openai"]
    assert "server.key was different" in row["problem"]


def test_list_and_check_create_no_data_folder(sixfold: Commands, tmp_path: Path) -> None:
    sixfold.folder = tmp_path / "nowhere"
    assert all(row["source"] is None for row in sixfold.ok("provider", "list")["providers"])
    assert not sixfold.folder.exists()
    assert "not found" in sixfold.error_of("provider", "check", "fal")


def test_check_names_the_missing_url(sixfold: Commands, key_input: pytest.MonkeyPatch) -> None:
    sixfold.ok("provider", "set", "azure")
    assert "requires AZURE_OPENAI_ENDPOINT" in sixfold.error_of("provider", "check", "azure")


async def test_provider_without_a_key_check_is_reported() -> None:
    spec = msgspec.structs.replace(PROVIDERS["fal"], check="")
    with pytest.raises(EngineError, match="fal has no request that checks a key"):
        await provider_check.check(spec, KEY, "http://127.0.0.1:9")


@asynccontextmanager
async def key_server(path: str, header: str, value: str) -> AsyncGenerator[str, None]:
    """Serve the path of the check, which accepts one key; yield the base URL."""

    async def respond(request: Request) -> Response:
        accepted = request.headers.get(header) == value
        return JSONResponse({"data": []} if accepted else {"detail": "no"}, 200 if accepted else 401)

    async with fault_server.serve([Route(path, respond)]) as port:
        yield f"http://127.0.0.1:{port}/v1"


@pytest.mark.parametrize(
    ("name", "path", "header", "value"),
    [
        ("openai", "/v1/models", "authorization", f"Bearer {KEY}"),
        ("replicate", "/v1/account", "authorization", f"Bearer {KEY}"),
        ("fal", "/v1/models/pricing", "authorization", f"Key {KEY}"),
        ("anthropic", "/v1/models", "x-api-key", KEY),
        ("azure", "/v1/models", "api-key", KEY),
        ("bedrock", "/v1/foundation-models", "authorization", f"Bearer {KEY}"),
        ("gemini", "/v1/models", "x-goog-api-key", KEY),
        ("vertex", "/v1/models/gemini-2.5-flash", "x-goog-api-key", KEY),
        ("openrouter", "/v1/key", "authorization", f"Bearer {KEY}"),
    ],
)
async def test_check_sends_the_key_to_the_provider(
    sixfold: Commands, monkeypatch: pytest.MonkeyPatch, name: str, path: str, header: str, value: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{KEY}\n"))
    sixfold.ok("provider", "set", name)
    async with key_server(path, header, value) as url:
        result = await asyncio.to_thread(sixfold.ok, "provider", "check", name, "--base-url", url)
        assert result["ok"]
    row = {row["provider"]: row for row in sixfold.ok("provider", "list")["providers"]}[name]
    assert row["checked_at"] == result["checked_at"]
    async with key_server(path, header, "another") as url:
        text = await asyncio.to_thread(sixfold.error_of, "provider", "check", name, "--base-url", url)
    assert "key was refused" in text
    assert KEY not in text
