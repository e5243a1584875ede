"""The decision whether this server may expire the leases of other servers.

While the database is unreachable, servers cannot renew their leases. The first server to reconnect must not
treat the other servers as dead.
"""

from __future__ import annotations

import time

# Fraction of a lease by which a check may be late.
_PATIENCE = 0.25


class LeaseGuard:
    """The state of a periodic task that runs every `every_seconds`; leases last `lease_seconds`."""

    def __init__(self, every_seconds: float, lease_seconds: float) -> None:
        self._late = every_seconds + _PATIENCE * lease_seconds
        self._lease = lease_seconds
        self._seen_at = time.monotonic()
        self._clear_at = 0.0

    def is_reliable(self) -> bool:
        """Record a check that reached the database; return False for the length of one lease after a gap."""
        now = time.monotonic()
        if now - self._seen_at > self._late:
            self._clear_at = now + self._lease
        self._seen_at = now
        return now >= self._clear_at
