"""A server that could not reach the database does not expire leases of others."""

from __future__ import annotations

import pytest

from sixfold.core.workers import lease_guard
from sixfold.core.workers.lease_guard import LeaseGuard


def test_lease_check_is_unreliable_for_a_lease_after_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = [100.0]
    monkeypatch.setattr(lease_guard.time, "monotonic", lambda: moment[0])
    looking = LeaseGuard(1.0, 6.0)
    for _ in range(3):
        moment[0] += 1.0
        assert looking.is_reliable()
    # The database was unavailable for this time.
    moment[0] += 4.0
    assert not looking.is_reliable()
    for _ in range(5):
        moment[0] += 1.0
        assert not looking.is_reliable()
    moment[0] += 1.0
    assert looking.is_reliable()
