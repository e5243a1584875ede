"""fal's queue API, by fal's client over TLS and by plain requests."""

from __future__ import annotations

import asyncio
import datetime
import hmac
import ipaddress
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from PIL import Image

from sixfold.settings import worker_environment
from tests.api.app_fixture import AppFixture, bearer, running_app
from tests.api.test_hosting_webhooks import INSIDE, wait_for_messages, webhook_url
from tests.fakes.fault_server import Faults
from tests.harness.embedded_server import EmbeddedServer, open_listener

QUEUE = "/fal/queue"
SCHNELL = f"{QUEUE}/fal-ai/flux/schnell"
CALLS = Path(__file__).with_name("fal_calls.py")


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[AppFixture]:
    async with running_app(tmp_path, **INSIDE) as result:
        yield result


def certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1, and its key."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    moment = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    result = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(moment - datetime.timedelta(days=1))
        .not_valid_after(moment + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=True)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    paths = folder / "server.crt", folder / "server.pem"
    paths[0].write_bytes(result.public_bytes(pem))
    paths[1].write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return paths


@asynccontextmanager
async def over_tls(folder: Path) -> AsyncIterator[tuple[AppFixture, dict[str, str]]]:
    """A server behind TLS, and the environment of fal's client for it."""
    public, private = certificate(folder)
    with open_listener() as listener:
        host = f"127.0.0.1:{listener.getsockname()[1]}"
        async with running_app(folder / "data", public_url=f"https://{host}") as result:
            config = uvicorn.Config(
                result.asgi,
                log_config=None,
                lifespan="off",
                ssl_certfile=str(public),
                ssl_keyfile=str(private),
            )
            server = EmbeddedServer(config)
            serving = asyncio.create_task(server.serve([listener]))
            try:
                yield (
                    result,
                    {
                        "FAL_RUN_HOST": f"{host}/fal",
                        "FAL_QUEUE_RUN_HOST": f"{host}/fal/queue",
                        "FAL_KEY": result.key,
                        "SSL_CERT_FILE": str(public),
                    },
                )
            finally:
                server.should_exit = True
                await serving


async def test_the_official_client_works_over_tls(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "image.png")
    async with over_tls(tmp_path) as (app, environment):
        program = await asyncio.create_subprocess_exec(
            sys.executable,
            str(CALLS),
            str(tmp_path / "image.png"),
            env={**worker_environment(), **environment},
            stdout=asyncio.subprocess.PIPE,
        )
        printed, _ = await program.communicate()
        assert program.returncode == 0
        assert await app.balance() == ("4.92", "0.00")
    answers = [json.loads(line) for line in printed.splitlines()]
    first, queued, canceled, new, old, *failed = answers
    (image,) = first["subscribed"]["images"]
    assert (image["content_type"], first["subscribed"]["seed"]) == ("image/png", 7)
    assert image["url"].startswith(f"https://{environment['FAL_RUN_HOST'].partition('/')[0]}/media/")
    assert (first["last"], first["subscribed"]["prompt"]) == ("Completed", "a fox")
    assert list(first["metrics"]) == ["inference_time"]
    assert [line["message"] for line in first["logs"]] == ["painting for ra2"]
    assert queued["queued"] in {"Queued", "InProgress"}
    assert (canceled["canceled"], canceled["kind"]) == ("The request was canceled.", "client_cancelled")
    for each in (new, old):
        assert each["ran"]["image"]["content_type"] == "image/png"
        assert each["uploaded"].endswith(".png")
    assert [each["status"] for each in failed] == [422, 422, 404, 502, 401]
    assert failed[0]["message"][0]["loc"] == ["body", "prompt"]
    assert failed[1]["message"][0]["msg"] == "num_images must be 1: request each output separately"
    assert [each["kind"] for each in failed[2:]] == ["bad_request", "runner_server_error", "bad_request"]


async def submit(app: AppFixture, prompt: str = "a fox", query: str = "") -> dict[str, Any]:
    response = await app.client.post(f"{SCHNELL}{query}", json={"prompt": prompt}, headers=app.bearer)
    assert response.status_code == 200, response.text
    return response.json()


def path_of(url: str) -> str:
    return "/fal" + url.partition("/fal")[2]


async def test_status_responses_have_fal_statuses_and_urls(app: AppFixture) -> None:
    result = await submit(app, "SLOW")
    assert result["status"] == "IN_QUEUE"
    assert path_of(result["response_url"]) == f"{QUEUE}/fal-ai/flux/requests/{result['request_id']}"
    state = await app.client.get(path_of(result["status_url"]), headers=app.bearer)
    assert (state.status_code, state.json()["logs"]) == (202, None)
    early = await app.client.get(path_of(result["response_url"]), headers=app.bearer)
    assert (early.status_code, early.json()["detail"]) == (400, "Request is still in progress")
    foreign = await app.client.get(path_of(result["status_url"]), headers=bearer(app.other))
    assert foreign.status_code == 404
    canceled = await app.client.put(path_of(result["cancel_url"]), headers=app.bearer)
    assert (canceled.status_code, canceled.json()) == (202, {"status": "CANCELLATION_REQUESTED"})
    await app.until("5.00", "0.00")
    second_response = await app.client.put(path_of(result["cancel_url"]), headers=app.bearer)
    assert (second_response.status_code, second_response.json()) == (400, {"status": "ALREADY_COMPLETED"})
    response = await app.client.get(path_of(result["status_url"]), params={"logs": 1}, headers=app.bearer)
    assert (response.status_code, response.json()["status"]) == (200, "COMPLETED")


async def test_status_stream_ends_with_the_request(app: AppFixture) -> None:
    result = await submit(app)
    stream = await app.client.get(f"{path_of(result['status_url'])}/stream", headers=app.bearer)
    assert stream.headers["content-type"].startswith("text/event-stream")
    states = [json.loads(line[6:]) for line in stream.text.splitlines() if line.startswith("data: ")]
    assert [state["status"] for state in states].count("COMPLETED") == 1
    assert states[-1]["status"] == "COMPLETED"
    response = await app.client.get(f"{path_of(result['response_url'])}/response", headers=app.bearer)
    assert response.json()["images"][0]["url"]


@pytest.mark.parametrize(("prompt", "status"), [("a fox", "OK"), ("FAIL", "ERROR")])
async def test_a_webhook_has_fals_payload(app: AppFixture, prompt: str, status: str) -> None:
    faults = Faults()
    async with webhook_url(faults) as url:
        result = await submit(app, prompt, f"?fal_webhook={url}")
        await wait_for_messages(
            app, result["request_id"], lambda rows: len(rows) == 1 and bool(rows[0]["ended_at"])
        )
    (request,) = faults.steps("webhook")
    response = json.loads(request.document)
    assert (response["request_id"], response["status"]) == (result["request_id"], status)
    assert ("images" in response["payload"], "error" in response) == (status == "OK", status == "ERROR")


async def test_models_of_this_server_are_apps(app: AppFixture) -> None:
    body = {"prompt": "a fox", "width": 64, "height": 64}
    header = {"Authorization": f"Key {app.key}"}
    response = await app.client.post("/fal/sixfold/ra2", json=body, headers=header)
    assert response.status_code == 200
    assert response.json()["images"][0]["file_name"].endswith(".png")
    assert response.headers["x-fal-request-id"].startswith("pred_")


REFUSED: list[tuple[Any, int]] = [
    ({"prompt": "x", "image_size": "huge"}, 422),
    ({"prompt": "x", "image_size": {"width": 9}}, 422),
    ({"prompt": "x", "sync_mode": True}, 422),
    ({"prompt": 5}, 422),
    ([1], 400),
]


@pytest.mark.parametrize(("body", "status"), REFUSED)
async def test_invalid_input_gets_an_error_in_the_format_of_fal(
    app: AppFixture, body: Any, status: int
) -> None:
    response = await app.client.post(SCHNELL, json=body, headers=app.bearer)
    assert response.status_code == status, response.text
    assert response.headers["x-fal-request-id"]
    detail = response.json()["detail"]
    if status == 422:
        assert detail[0]["loc"][1] in body
    else:
        assert response.headers["x-fal-error-type"] == "bad_request"
    assert await app.balance() == ("5.00", "0.00")


async def test_concurrent_uploads_to_one_url_store_one_file(any_database_app: AppFixture) -> None:
    app, request = any_database_app, {"content_type": "text/plain"}
    issued = (await app.client.post("/fal/storage/upload/initiate", json=request, headers=app.bearer)).json()
    target, headers = path_of(issued["upload_url"]), {**app.bearer, "Content-Type": "text/plain"}
    puts = (app.client.put(target, content=b"file %d" % number, headers=headers) for number in range(8))
    statuses = sorted(answer.status_code for answer in await asyncio.gather(*puts))
    assert statuses == [200] + [409] * 7


async def test_an_account_cannot_choose_the_name_of_an_upload(app: AppFixture) -> None:
    """Others may still have the URL of a file that its owner has deleted."""
    secret = (await app.client.get("/api/account", headers=app.bearer)).json()["webhook_secret"]
    name, expires = f"{'a' * 32}.png", str(int(time.time()) + 600)
    text = f"upload {app.account.id} {name} {expires}"
    ticket = hmac.digest(secret.encode(), text.encode(), "sha256").hex()
    response = await app.client.put(
        f"/fal/storage/upload/{name}",
        params={"expires": expires, "ticket": ticket},
        content=b"x",
        headers=app.bearer,
    )
    assert response.status_code == 404
    assert (await app.client.get(f"/media/{name}")).status_code == 404


async def test_an_upload_url_works_once_for_its_account(app: AppFixture) -> None:
    request = {"content_type": "text/plain", "file_name": "a.txt"}
    response = await app.client.post("/fal/storage/upload/initiate", json=request, headers=app.bearer)
    issued = response.json()
    target = path_of(issued["upload_url"])

    async def put(url: str, key: str) -> httpx.Response:
        return await app.client.put(url, content=b"hello", headers=bearer(key))

    assert (await put(target, app.other)).status_code == 404
    assert (await put(target[:-1] + "x", app.key)).status_code == 404
    assert (await put(target.replace("/upload/", "/upload/a"), app.key)).status_code == 404
    assert (await put(target, app.key)).status_code == 200
    assert (await put(target, app.key)).status_code == 409
    assert (await app.client.get("/media" + issued["file_url"].partition("/media")[2])).text == "hello"
