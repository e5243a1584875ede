"""Whether a server has seen the database for long enough to say that another lets its leases lapse.

While a database is away nobody can renew a lease. Whoever reaches it again first must not take that for the
death of all others.
"""

from __future__ import annotations

import time

_PATIENCE = 0.25  # of a lease: how late a look may come


class LeaseGuard:
    """One chore's view: it looks every `every_seconds`, at leases of `lease_seconds`."""

    def __init__(self, every_seconds: float, lease_seconds: float) -> None:
        self._late = every_seconds + _PATIENCE * lease_seconds
        self._lease = lease_seconds
        self._seen_at = time.monotonic()
        self._clear_at = 0.0

    def is_reliable(self) -> bool:
        """Call this with each look that reached the database; False for a lease's time after a gap."""
        moment = time.monotonic()
        if moment - self._seen_at > self._late:
            self._clear_at = moment + self._lease
        self._seen_at = moment
        return moment >= self._clear_at
