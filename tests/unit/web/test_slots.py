"""StreamLimit for long-lived responses."""

from __future__ import annotations

from typing import Any

import pytest

from sixfold import errors
from sixfold.settings import Settings
from sixfold.web import admission
from sixfold.web.admission import Admission, StreamLimit
from sixfold.web.trusted_hosts import TrustedHosts


def test_account_and_server_slots_return_with_their_requests() -> None:
    result = StreamLimit("event_streams", "event streams", 2, 3)
    scopes: list[dict[str, Any]] = [{} for _ in range(6)]
    for scope in scopes[:2]:
        result.hold(scope, "ada")
        result.enter(scope, "ada")
    with pytest.raises(errors.TooManyStreams, match="2 open event streams") as excinfo:
        result.hold(scopes[2], "ada")
    assert (excinfo.value.status, excinfo.value.code) == (429, "too_many_event_streams")
    result.hold(scopes[3], "ben")
    result.enter(scopes[3], "ben")
    with pytest.raises(errors.TooManyConnections, match="event streams"):
        result.enter(scopes[4], "cleo")
    for scope in (*scopes, scopes[0]):
        admission.release(scope)
    assert (result.open, result.holders) == (0, {})


def test_each_server_counts_for_itself() -> None:
    settings = Settings(database_url="sqlite:", websockets_per_account=1)
    for _ in range(2):
        server = Admission(settings, TrustedHosts(settings))
        server.websockets.hold({}, "ada")
        with pytest.raises(errors.TooManyRequests):
            server.websockets.hold({}, "ada")


def test_ten_thousand_streams_leave_nothing_counted() -> None:
    result = StreamLimit("websockets", "websockets", 5, 5)
    for number in range(10_000):
        scope: dict[str, Any] = {}
        result.hold(scope, f"account {number % 7}")
        result.enter(scope, "x")
        admission.release(scope)
    assert (result.open, result.holders) == (0, {})
