"""Requests without a key: which ones come from this machine, and which look as if they were forwarded."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping

from starlette.requests import HTTPConnection

from sixfold import errors
from sixfold.web.trusted_hosts import TrustedHosts, host_of, is_forwarded, is_loopback

_LOG = logging.getLogger("sixfold.server")
_LOG_SECONDS = 60.0  # between two lines in the log
_OLD_HTTP = frozenset({"0.9", "1.0"})
_KEY_NEEDED = "This needs the header Authorization: Bearer <API_KEY>"
_OLD_HTTP_REFUSED = (
    "HTTP/1.0 without a key is refused, since proxies use it: send the header Authorization: Bearer <API_KEY>"
)


class KeylessAccess:
    """Admits requests without a key that come from this machine, and counts those that look forwarded.

    A program that forwards bytes leaves no sign, so what such requests may do must be harmless.
    """

    def __init__(self, origins: TrustedHosts, clock: Callable[[], float] = time.monotonic) -> None:
        self._origins = origins
        self._clock = clock
        self._signs: Mapping[str, Callable[[HTTPConnection], bool]] = {
            "a forwarding header": is_forwarded,
            "HTTP/1.0": _is_old,
            "a public URL": lambda _connection: origins.has_public_url,
        }
        self._seen: Counter[str] = Counter()
        self._quiet_until = 0.0

    def require(self, connection: HTTPConnection) -> None:
        """Raise `Unauthenticated` unless a program or an own page on this machine asks, without a proxy."""
        peer, host = connection.client, host_of(connection)
        if peer is None or not is_loopback(peer.host):
            raise errors.Unauthenticated(_KEY_NEEDED)
        signs = [name for name, shows in self._signs.items() if shows(connection)]
        if signs:
            self._note(signs)
            raise errors.Unauthenticated(_OLD_HTTP_REFUSED if signs == ["HTTP/1.0"] else _KEY_NEEDED)
        if host is None or not is_loopback(host) or not self._origins.trusts_origin(connection):
            raise errors.Unauthenticated(_KEY_NEEDED)

    @property
    def warnings(self) -> tuple[str, ...]:
        """A sentence where requests without a key looked forwarded since the start."""
        if not self._seen:
            return ()
        counts = ", ".join(f"{name}: {count}" for name, count in sorted(self._seen.items()))
        return (
            f"Requests without a key look forwarded by a proxy and were refused ({counts}): "
            "set SIXFOLD_PUBLIC_URL where a proxy stands in front, and send a key",
        )

    def _note(self, signs: list[str]) -> None:
        self._seen.update(signs)
        moment = self._clock()
        if moment >= self._quiet_until:
            self._quiet_until = moment + _LOG_SECONDS
            _LOG.warning("%s", self.warnings[0])


def _is_old(connection: HTTPConnection) -> bool:
    return connection.scope.get("http_version") in _OLD_HTTP
