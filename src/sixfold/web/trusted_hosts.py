"""Checks of the Host, the Origin and the address of a request."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from sixfold import errors
from sixfold.settings import Settings
from sixfold.web.connections import peers
from sixfold.web.connections.peers import is_loopback, is_private

# Headers that proxies and tunnels add: with one of them, the peer is not the caller.
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
    """Return the name in the Host header, without its port, or None if there is not exactly one."""
    values = request.headers.getlist("host")
    match = _HOST.fullmatch(values[0]) if len(values) == 1 else None
    return match[1].strip("[]").lower() if match is not None else None


def origin(request: HTTPConnection, settings: Settings) -> str:
    """Return the origin for URLs that the caller requests: the public URL, or else the request's own.

    Without a public URL, a server that listens on all addresses does not know the one that the caller uses.
    """
    if settings.public_url or host_of(request) is None:
        return settings.base_url
    return f"{request.scope.get('scheme', 'http')}://{request.headers['host']}"


def is_forwarded(request: HTTPConnection) -> bool:
    """Return whether a header shows that a proxy forwarded the request."""
    return any(
        name in _FORWARDED or name.startswith(_FORWARDED_PREFIXES)
        for name in (raw.decode("latin-1").lower().replace("_", "-") for raw, _ in request.scope["headers"])
    )


class TrustedHosts:
    """The Host and Origin values that belong to this server, by its settings."""

    def __init__(self, settings: Settings) -> None:
        self._public_url = settings.public_url
        self._origins = {settings.base_url}
        self._hosts = {settings.host.lower()}
        public = urlsplit(settings.base_url).hostname
        if public:
            self._hosts.add(public)

    @property
    def has_public_url(self) -> bool:
        """Whether a public URL is configured."""
        return bool(self._public_url)

    def admit(self, request: HTTPConnection) -> None:
        """Raise `Forbidden` for a Host that is not this server's."""
        if not self.trusts_host(request):
            raise errors.Forbidden(
                "The Host header does not name this server: set SIXFOLD_PUBLIC_URL to its URL"
            )

    def trusts_host(self, request: HTTPConnection) -> bool:
        """Return whether the Host belongs to this server; any IP address does.

        An unknown name could be DNS rebinding, which is impossible for an address.
        """
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
        """Return whether the request is from a page of this server or from a client that is not a browser."""
        if request.headers.get("sec-fetch-site", "") not in _SAME_SITE:
            return False
        origin = request.headers.get("origin")
        if origin is None or origin in self._origins:
            return True
        scheme, _, netloc = origin.partition("://")
        return scheme in {"http", "https"} and netloc == request.headers.get("host")

    def states_origin(self, request: HTTPConnection) -> bool:
        """Return whether the request states its origin, as browsers since 2020 do for forms.

        They do so for other pages over https and at loopback addresses only. All browsers send a User-Agent
        that begins with `Mozilla/`; other clients do not open links or submit forms of other sites.
        """
        headers = request.headers
        is_browser = headers.get("user-agent", "").startswith("Mozilla/")
        return not is_browser or "origin" in headers or "sec-fetch-site" in headers

    def trusts(self, request: HTTPConnection) -> bool:
        """Return whether both the Host and the Origin are trusted."""
        return self.trusts_host(request) and self.trusts_origin(request)

    def caller(self, request: HTTPConnection) -> str:
        """Return the caller's address for rate limits: the peer's, or the one that a trusted proxy names."""
        peer = request.client.host if request.client is not None else ""
        forwarded = request.headers.get("x-forwarded-for", "").rpartition(",")[2].strip()[:_MAX_ADDRESS]
        return forwarded if forwarded and self._public_url and is_private(peer) else peer

    def network(self, request: HTTPConnection) -> str:
        """Return the network of the caller: its address, or the /64 of an IPv6 address."""
        return peers.network(self.caller(request))

    def limited(self, request: HTTPConnection) -> str | None:
        """Return the network of the caller, or None if its address has no limits.

        Loopback addresses and the addresses of proxies are not limited.
        """
        caller = self.caller(request)
        is_peer = request.client is not None and caller == request.client.host
        return peers.limited_network(caller, behind_proxy=is_peer and bool(self._public_url))
