"""Requests without a key that look forwarded are counted, and logged once a minute."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import HTTPConnection

from sixfold import errors
from sixfold.settings import Settings
from sixfold.web.auth import KeylessAccess
from sixfold.web.trusted_hosts import TrustedHosts


def scope_of(version: str = "1.1", peer: str = "127.0.0.1", **headers: str) -> HTTPConnection:
    """Return the ASGI scope of a request."""
    named = {"host": "127.0.0.1:8600", **headers}
    scope: dict[str, Any] = {
        "type": "http",
        "http_version": version,
        "client": (peer, 40000),
        "headers": [(name.encode(), value.encode()) for name, value in named.items()],
    }
    return HTTPConnection(scope)


def refusal(access: KeylessAccess, connection: HTTPConnection) -> str:
    with pytest.raises(errors.Unauthenticated) as excinfo:
        access.require(connection)
    return excinfo.value.message


def test_forwarded_requests_are_logged_once_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    moment = 100.0
    access = KeylessAccess(TrustedHosts(Settings(data_dir=tmp_path)), lambda: moment)
    with caplog.at_level(logging.WARNING, "sixfold.server"):
        access.require(scope_of())
        assert access.warnings == ()
        for _ in range(3):
            assert "HTTP/1.0" in refusal(access, scope_of("1.0"))
        assert "HTTP/1.0" not in refusal(access, scope_of("1.0", via="1.0 proxy"))
        assert len(caplog.records) == 1
        moment += 60
        refusal(access, scope_of(forwarded="for=203.0.113.9"))
    assert len(caplog.records) == 2
    assert "HTTP/1.0: 4, a forwarding header: 2" in access.warnings[0]


def test_direct_remote_request_is_refused_and_not_counted(tmp_path: Path) -> None:
    access = KeylessAccess(TrustedHosts(Settings(data_dir=tmp_path)))
    refusal(access, scope_of("1.0", peer="203.0.113.9"))
    refusal(access, scope_of(host="evil.example"))
    assert access.warnings == ()


def test_public_url_implies_a_proxy(tmp_path: Path) -> None:
    access = KeylessAccess(TrustedHosts(Settings(data_dir=tmp_path, public_url="https://six.example")))
    refusal(access, scope_of())
    assert "a public URL: 1" in access.warnings[0]


def test_every_process_warns_of_forwarded_requests(tmp_path: Path) -> None:
    hosts, record = TrustedHosts(Settings(data_dir=tmp_path)), tmp_path / "forwarded.txt"
    first, second = KeylessAccess(hosts, record=record), KeylessAccess(hosts, record=record)
    assert second.warnings == ()
    refusal(first, scope_of(via="1.1 proxy"))
    assert first.warnings == second.warnings
    assert "a forwarding header: 1" in second.warnings[0]
