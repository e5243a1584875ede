"""Where a request comes from: which hosts, origins and peers are believed to be this machine's own."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from sixfold import errors
from sixfold.settings import Settings
from sixfold.web import peers
from sixfold.web.peers import is_loopback, is_near

# What proxies and tunnels add. One of these means that the peer is not who asks.
_FORWARDED = frozenset(
    {
        "forwarded",
        "via",
        "client-ip",
        "true-client-ip",
        "proxy-connection",
        "proxy-authorization",
        "cdn-loop",
        "x-real-ip",
        "x-client-ip",
        "x-cluster-client-ip",
        "x-envoy-external-address",
        "x-originating-ip",
        "x-remote-ip",
        "x-remote-addr",
        "x-host",
        "x-original-host",
        "x-original-url",
        "x-rewrite-url",
        "x-proxyuser-ip",
        "x-appengine-user-ip",
        "x-arr-log-id",
        "x-cloud-trace-context",
    }
)
_FORWARDED_PREFIXES = (
    "x-forwarded",
    "x-original-forwarded",
    "cf-",
    "fastly-",
    "fly-",
    "x-amz-cf-",
    "x-amzn-",
    "x-azure-",
    "x-vercel-",
    "ngrok-",
    "tailscale-",
)
_HOST = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_MAX_ADDRESS = 64
_SAME_SITE = frozenset({"", "none", "same-origin"})


def host_of(request: HTTPConnection) -> str | None:
    """The name in the one Host header, without its port; None when there are none or several."""
    values = request.headers.getlist("host")
    found = _HOST.fullmatch(values[0]) if len(values) == 1 else None
    return found[1].strip("[]").lower() if found is not None else None


def is_forwarded(request: HTTPConnection) -> bool:
    """Whether anything on the way says that it passed the request on."""
    return any(
        name in _FORWARDED or name.startswith(_FORWARDED_PREFIXES)
        for name in (raw.decode("latin-1").lower().replace("_", "-") for raw, _ in request.scope["headers"])
    )


class TrustedHosts:
    """Which Host and Origin headers are this server's own; built from its settings."""

    def __init__(self, settings: Settings) -> None:
        self._public_url = settings.public_url
        self._origins = {settings.base_url}
        self._hosts = {settings.host.lower()}
        public = urlsplit(settings.base_url).hostname
        if public:
            self._hosts.add(public)

    @property
    def has_public_url(self) -> bool:
        """Whether others reach this server by a public URL."""
        return bool(self._public_url)

    def admit(self, request: HTTPConnection) -> None:
        """Raise `Forbidden` for a Host that is not ours."""
        if not self.trusts_host(request):
            raise errors.Forbidden("This address is not this server's own: set SIXFOLD_PUBLIC_URL to it")

    def trusts_host(self, request: HTTPConnection) -> bool:
        """Whether the Host is ours. A name that rebinding could point here is not; an address cannot be."""
        host = host_of(request)
        if host is None:
            return False
        if host in self._hosts or is_loopback(host):
            return True
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return False
        return True

    def trusts_origin(self, request: HTTPConnection) -> bool:
        """Whether the page that asks, as far as the browser names one, is our own."""
        if request.headers.get("sec-fetch-site", "") not in _SAME_SITE:
            return False
        origin = request.headers.get("origin")
        if origin is None or origin in self._origins:
            return True
        scheme, _, netloc = origin.partition("://")
        return scheme in {"http", "https"} and netloc == request.headers.get("host")

    def trusts(self, request: HTTPConnection) -> bool:
        """Whether the Host is ours, and what asks is one of our own pages or no page at all."""
        return self.trusts_host(request) and self.trusts_origin(request)

    def caller(self, request: HTTPConnection) -> str:
        """The caller's address, for rate limits only: the peer's, or the one that our proxy names."""
        peer = request.client.host if request.client is not None else ""
        named = request.headers.get("x-forwarded-for", "").rpartition(",")[2].strip()[:_MAX_ADDRESS]
        return named if named and self._public_url and is_near(peer) else peer

    def network(self, request: HTTPConnection) -> str:
        """The caller's address; of IPv6 the /64, as one subscriber has all addresses of it."""
        return peers.network(self.caller(request))

    def limited(self, request: HTTPConnection) -> str | None:
        """The same, or None for this machine and for a proxy, whose clients have no limits of an address."""
        caller = self.caller(request)
        is_peer = request.client is not None and caller == request.client.host
        return peers.limited(caller, behind_proxy=is_peer and bool(self._public_url))
