"""Log lines are JSON, and carry nothing secret."""

from __future__ import annotations

import io
import json
import logging
import secrets

import pytest

from sixfold.core import ids
from sixfold.web import logs

KEY = ids.secret("sf")
SECRETS = ["sf", "whsec", "link", "sess", "job", "code", "refresh", "invite", "ticket", "local", "ek"]


@pytest.mark.parametrize("prefix", SECRETS)
@pytest.mark.parametrize(
    "around", ["{}", '{{"api_key": "{}"}}', "GET /x?token={}&a=1", "Authorization: Bearer {}", "'{}'", "<{}>"]
)
def test_secrets_are_redacted(prefix: str, around: str) -> None:
    secret = ids.new(prefix) if prefix == "job" else ids.secret(prefix)
    assert secret not in logs.redact(around.format(secret))


PROVIDERS_KEYS = [
    "sk-proj-" + "Ab3dE_-" * 9,
    "sk-ant-" + "x1Y2" * 12,
    "r8_" + "Zq7" * 12 + "x",
    "0b1f0c7e-53d4-4a3e-9f43-1c5b7a2e9d10:5f2a9c4e7b1d8036a5c9e2f4b7d10386",
]


@pytest.mark.parametrize("key", PROVIDERS_KEYS)
@pytest.mark.parametrize("around", ["{}", "Authorization: Key {}", '{{"x-api-key": "{}"}}', "broke with {}."])
def test_keys_of_providers_are_redacted(key: str, around: str) -> None:
    assert key[-20:] not in logs.redact(around.format(key))


@pytest.mark.parametrize(
    "text", ['"password": "hunter2"', "password=hunter2", '\\"api_key\\": \\"hunter2\\"', "Bearer hunter2"]
)
def test_field_named_a_secret_is_redacted(text: str) -> None:
    assert "hunter2" not in logs.redact(text)


@pytest.mark.parametrize("path", ["/s/{}", "/s/{}/files/1.png", "/catalog/ra1?share={}"])
def test_token_of_a_shared_link_is_redacted(path: str) -> None:
    token = secrets.token_urlsafe(24)
    assert token not in logs.redact(f"GET {path.format(token)} 200")


@pytest.mark.parametrize("path", ["/media/{}.png", "/media/{}.png?w=640", "https://six.example/media/{}"])
def test_the_secret_name_of_a_file_is_redacted(path: str) -> None:
    name = secrets.token_urlsafe(24)
    assert name not in logs.redact(f"GET {path.format(name)} 200")


def test_the_secret_name_of_an_upload_folder_is_redacted() -> None:
    name = secrets.token_hex(16)
    assert logs.redact(f"GET /uploads/{name}/a/b.png") == "GET /uploads/***/a/b.png"


def test_text_without_secrets_is_not_redacted() -> None:
    text = f"pred {ids.new('pred')} of {ids.new('acct')} asked by {ids.new('req')}: a monkey in a hockey game"
    assert logs.redact(text) == text


def test_a_line_is_one_json_object_with_its_extras() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logs.JsonFormatter())
    logger = logging.getLogger("sixfold.test_logs")
    logger.addHandler(handler)
    error = ValueError(f"no such key {KEY}")
    logger.error("it\nbroke %d", 5, extra={"request_id": "req_1", "odd": object()}, exc_info=error)
    logger.removeHandler(handler)
    line = json.loads(stream.getvalue())
    assert stream.getvalue().count("\n") == 1
    assert (line["level"], line["message"], line["request_id"]) == ("error", "it\nbroke 5", "req_1")
    assert "ValueError" in line["trace"]
    assert KEY not in stream.getvalue()
