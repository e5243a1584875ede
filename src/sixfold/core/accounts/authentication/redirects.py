"""OAuth redirect URIs (RFC 8252): https, http on the loopback interface, or a private-use scheme."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

import msgspec

MAX_CHARS = 500
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
# RFC 3986 without fragments, and without `;`, `'` and `*`, which are special in a Content-Security-Policy.
_URI = re.compile(r"(?:[A-Za-z0-9._~:/?\[\]@!$&()+,=-]|%[0-9A-Fa-f]{2})+")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")
_LABEL = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)")
_PRIVATE_USE_HOST = re.compile(r"[A-Za-z0-9._~-]*")
_MAX_HOST_CHARS = 253
_RESERVED_SCHEMES = frozenset(
    {"about", "blob", "data", "file", "filesystem", "ftp", "http", "javascript", "vbscript", "ws", "wss"}
)


class Redirect(msgspec.Struct, frozen=True):
    """A parsed redirect URI; `host` is empty for a private-use scheme."""

    scheme: str
    host: str
    port: int | None
    path: str

    @property
    def is_loopback(self) -> bool:
        """Whether the URI points to the machine on which the browser runs."""
        return self.scheme == "http"

    @property
    def policy_source(self) -> str:
        """The source expression for a Content-Security-Policy, from the validated parts."""
        if not self.host:
            return f"{self.scheme}:"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + (f":{self.port}" if self.port is not None else "")


def parse(uri: object) -> Redirect:
    """Parse a redirect URI; raises `ValueError` with a one-sentence message."""
    if not isinstance(uri, str) or not 0 < len(uri) <= MAX_CHARS or _URI.fullmatch(uri) is None:
        raise ValueError(
            f"A redirect URI must have 1 to {MAX_CHARS} URI characters, without fragment, spaces, ; ' * \\"
        )
    parts = urlsplit(uri)
    host, port = parts.hostname or "", parts.port
    if "@" in parts.netloc:
        raise ValueError("A redirect URI must not have a user name before its host")
    path = uri[len(parts.scheme) + 3 + len(parts.netloc) :]
    if parts.scheme == "https" and _is_host(host):
        return Redirect("https", host, port, path)
    if parts.scheme == "http" and host in LOOPBACK:
        return Redirect("http", host, port, path)
    private_use = _SCHEME.fullmatch(parts.scheme) and parts.scheme not in _RESERVED_SCHEMES | {"https"}
    if private_use and port is None and _PRIVATE_USE_HOST.fullmatch(parts.netloc):
        return Redirect(parts.scheme, "", None, uri)
    raise ValueError("A redirect URI must use https, http on the loopback interface, or a private-use scheme")


def is_same(uri: str, registered: str) -> bool:
    """Return whether a URI matches a registered one; the port of loopback URIs may differ."""
    try:
        requested_url, registered_url = parse(uri), parse(registered)
    except ValueError:
        # The URI was registered by a version with weaker validation.
        return False
    if requested_url.is_loopback and registered_url.is_loopback:
        return (requested_url.host, requested_url.path) == (registered_url.host, registered_url.path)
    return uri == registered


def _is_host(host: str) -> bool:
    if ":" in host:
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            return False
        return True
    labels = host.removesuffix(".").split(".")
    return len(host) <= _MAX_HOST_CHARS and all(_LABEL.fullmatch(label) for label in labels)
