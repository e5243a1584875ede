"""Client secrets of the Realtime API: their rights, their validity and their end."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import websockets

from sixfold.app import storage
from sixfold.core.accounts import keys, rights
from sixfold.core.accounts.keys import KeyLimits
from sixfold.core.gateway.realtime.client_secrets import ClientSecretCipher
from tests.api.realtime import PATIENCE_SECONDS, TEXT, RealtimeServer, event, running_realtime, say
from tests.harness import backends

pytestmark = pytest.mark.asyncio(loop_scope="module")
ON_ALL = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
PATH = "/v1/realtime/client_secrets"
PAGE = {"Origin": "https://app.example"}


@pytest.fixture
def server(shared_realtime: RealtimeServer) -> RealtimeServer:
    return shared_realtime.afresh()


async def secret_of(server: RealtimeServer, session: Any = TEXT, key: str | None = None) -> Any:
    async with server.client(key) as client:
        return await client.realtime.client_secrets.create(session=session)


async def handshake(server: RealtimeServer, key: str, **headers: str) -> int:
    """Return the status of a handshake of a browser."""
    opening = websockets.connect(
        f"ws://{server.address}/v1/realtime",
        additional_headers=headers,
        subprotocols=[
            websockets.Subprotocol(name) for name in ("realtime", f"openai-insecure-api-key.{key}")
        ],
    )
    try:
        async with opening as socket:
            async with asyncio.timeout(PATIENCE_SECONDS):
                first = json.loads(await socket.recv())
            return 101 if (first["type"], socket.subprotocol) == ("session.created", "realtime") else 0
    except websockets.InvalidStatus as error:
        return error.response.status_code
    except websockets.ConnectionClosed as error:
        return 0 if error.rcvd is None else error.rcvd.code


async def test_client_secret_opens_its_configured_session(server: RealtimeServer) -> None:
    session = {**TEXT, "model": "acme/small", "instructions": "Be short", "max_output_tokens": 40}
    created = await secret_of(server, session)
    assert created.value.startswith("ek_")
    assert (created.session.model, created.session.instructions) == ("acme/small", "Be short")
    async with server.client(created.value) as client, client.realtime.connect(model="other") as connection:
        first: Any = await event(connection)
        assert (first.session.model, first.session.instructions) == ("acme/small", "Be short")
        assert (await say(connection, "say 2 words"))[-1].response.status == "completed"
    sent = server.gateway.acme.requests[-1].document["messages"]
    assert [row["content"] for row in sent] == ["Be short", "say 2 words"]


async def test_a_page_of_another_origin_needs_a_secret(server: RealtimeServer) -> None:
    created = await secret_of(server)
    assert await handshake(server, created.value) == 101
    assert await handshake(server, created.value, **PAGE) == 101
    assert await handshake(server, server.gateway.app.key) == 101
    assert await handshake(server, server.gateway.app.key, **PAGE) == 403


async def test_client_secret_is_401_on_other_routes(server: RealtimeServer) -> None:
    created = await secret_of(server)
    headers = {"Authorization": f"Bearer {created.value}"}
    client = server.gateway.app.client
    body = {"model": "acme/small", "messages": [{"role": "user", "content": "Hi"}]}
    assert (await client.post("/v1/chat/completions", json=body, headers=headers)).status_code == 401
    assert (await client.post(PATH, json={}, headers=headers)).status_code == 401
    assert (await client.get("/v1/models", headers=headers)).status_code == 401


async def test_an_invalid_or_expired_secret_is_refused(server: RealtimeServer) -> None:
    app = server.gateway.app
    cipher = ClientSecretCipher(storage.server_secret(app.settings.data_dir, "server.key"))
    key = await app.database.write(keys.create(app.account.id))
    assert await handshake(server, cipher.encrypt(key.id, 2**60, {})) == 101
    assert await handshake(server, cipher.encrypt(key.id, 1, {})) == 401
    assert await handshake(server, ClientSecretCipher(bytes(32)).encrypt(key.id, 2**60, {})) == 401
    for value in ("ek_", "ek_AAAA", "ek_" + "A" * 2000):
        assert await handshake(server, value) == 401


REFUSED: dict[str, tuple[Any, str]] = {
    "a short validity": ({"expires_after": {"seconds": 9}}, "expires_after.seconds"),
    "a long validity": ({"expires_after": {"seconds": 7201}}, "expires_after.seconds"),
    "another anchor": ({"expires_after": {"anchor": "used_at"}}, "expires_after.anchor"),
    "no object": ({"session": "x"}, "session"),
    "another type": ({"session": {"type": "translation"}}, "session.type"),
    "a model of transcripts": ({"session": {"type": "transcription", "model": "x"}}, "session.model"),
    "a long model": ({"session": {"model": "x" * 201}}, "model"),
}


async def test_a_refused_secret_names_its_field(server: RealtimeServer) -> None:
    app = server.gateway.app
    for name, (body, param) in REFUSED.items():
        response = await app.client.post(PATH, json=body, headers=app.bearer)
        assert (response.status_code, response.json()["error"]["param"]) == (400, param), name
    large = {"session": {"instructions": "".join(map(chr, range(300, 30_000)))}}
    assert (await app.client.post(PATH, json=large, headers=app.bearer)).status_code == 413
    assert (await app.client.post(PATH, json={})).status_code == 401
    default = (await app.client.post(PATH, headers=app.bearer)).json()
    second_body = (
        await app.client.post(PATH, json={"expires_after": {"seconds": 10}}, headers=app.bearer)
    ).json()
    assert 588 <= default["expires_at"] - second_body["expires_at"] <= 592


@pytest.mark.parametrize("ground", ON_ALL)
async def test_client_secret_has_the_rights_and_end_of_its_key(ground: str, tmp_path: Path) -> None:
    backends.database_url(tmp_path, ground)
    async with running_realtime(tmp_path) as server:
        app = server.gateway.app
        reading = keys.create(app.account.id, granted=rights.Rights.MEMORY_READ)
        reader = (await app.database.write(reading)).api_key
        response = await app.client.post(PATH, json={}, headers={"Authorization": f"Bearer {reader}"})
        assert response.status_code == 403
        limited = await app.database.write(keys.create(app.account.id, KeyLimits(services=("tts",))))
        created = await secret_of(server, TEXT, limited.api_key)
        async with server.connect(TEXT, key=created.value) as connection:
            events = await say(connection, "say 1 words")
            assert [each.error.code for each in events if each.type == "error"] == ["forbidden"]
            await app.database.write(keys.revoke(limited.id))
            with pytest.raises(websockets.ConnectionClosed) as excinfo:
                await event(connection)
            assert excinfo.value.rcvd is not None
            assert excinfo.value.rcvd.code == 4401
        assert await handshake(server, created.value) == 401
