"""A strict URL parser, whose result is used for both the check and the connection.

A guard can be bypassed if two parsers disagree. This parser does not repair URLs and rejects those that it
does not understand.
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import quote, urljoin

import idna
import msgspec

from sixfold.errors import FetchRefused
from sixfold.net.addresses import Address

MAX_CHARACTERS = 8192
DEFAULT_PORTS = {"http": 80, "https": 443}

_URL = re.compile(r"(?P<scheme>https?)://(?P<authority>[^/?#]*)(?P<target>[^#]*)(?:#.*)?", re.I | re.A)
_AUTHORITY = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[^\[\]:%@]+))(?::(?P<port>[0-9]{1,5}))?")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMERIC = re.compile(r"[0-9]+|0x[0-9a-f]*", re.I)
_UNQUOTED = "%/:?@!$&'()*+,;=~-._[]"


class UrlTarget(msgspec.Struct, frozen=True):
    """A parsed URL: `host` is an address or an ASCII name, and `path` is sent in the request line."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def netloc(self) -> str:
        """The Host header: an IPv6 address is in brackets, and the default port is omitted."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.netloc}{self.path}"


def parse(text: str) -> UrlTarget:
    """Parse a URL; raises `FetchRefused` with a one-sentence message."""
    if len(text) > MAX_CHARACTERS:
        raise FetchRefused(f"This URL may not be fetched: it is longer than {MAX_CHARACTERS} characters.")
    if any(character in text for character in "\\\ufffd") or not _is_plain(text):
        raise FetchRefused(
            "This URL may not be fetched: it contains a space, a backslash or a control character."
        )
    match = _URL.fullmatch(text)
    if match is None:
        raise FetchRefused("This URL may not be fetched: it must begin with http:// or https://.")
    scheme = match["scheme"].lower()
    host, port = _authority(match["authority"], scheme)
    path = quote(match["target"], safe=_UNQUOTED)
    return UrlTarget(scheme, host, port, path if path.startswith("/") else "/" + path)


def follow(origin: UrlTarget, location: str) -> UrlTarget:
    """Return the target of a redirect; raises `FetchRefused`, also for a redirect from https to http."""
    if not _is_plain(location) or "\\" in location:
        raise FetchRefused("This URL may not be fetched: its redirect target is not a valid URL.")
    try:
        joined = urljoin(origin.url, location)
    except ValueError as error:
        raise FetchRefused("This URL may not be fetched: its redirect target is not a valid URL.") from error
    target = parse(joined)
    if origin.scheme == "https" and target.scheme == "http":
        raise FetchRefused("This URL may not be fetched: it redirects from https to http.")
    return target


def literal(host: str) -> Address | None:
    """Return the address if the host is one, or None for a name; raises `FetchRefused` if unclear.

    `127.1`, `0x7f.0.0.1`, `017700000001` and `2130706433` are addresses to the C library but names to other
    parsers.
    """
    if ":" in host:
        return _address_v6(host)
    last = host.rstrip(".").rpartition(".")[2]
    if not _NUMERIC.fullmatch(last):
        return None
    try:
        return ipaddress.IPv4Address(host)
    except ValueError as error:
        raise FetchRefused("This URL may not be fetched: its host is not a valid IP address.") from error


def _is_plain(text: str) -> bool:
    """Return whether a string has no whitespace, control, invisible or unpaired characters."""
    return text.isprintable() and not any(character.isspace() for character in text)


def _authority(text: str, scheme: str) -> tuple[str, int]:
    if "@" in text:
        raise FetchRefused("This URL may not be fetched: it contains a user name or a password.")
    match = _AUTHORITY.fullmatch(text)
    if match is None:
        raise FetchRefused("This URL may not be fetched: its host or port is invalid.")
    port = int(match["port"]) if match["port"] else DEFAULT_PORTS[scheme]
    if not 0 < port < 65536:
        raise FetchRefused("This URL may not be fetched: its port must be from 1 to 65535.")
    if match["six"]:
        return str(_address_v6(match["six"])), port
    host = _name(match["name"])
    literal(host)
    return host, port


def _address_v6(text: str) -> ipaddress.IPv6Address:
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError as error:
        raise FetchRefused("This URL may not be fetched: its host is not a valid IP address.") from error
    if address.scope_id is not None:
        raise FetchRefused("This URL may not be fetched: its host names a network interface.")
    return address


def _name(text: str) -> str:
    """Return a host name in ASCII; digits and dots of other scripts must not form an address."""
    host = text.lower()
    if not text.isascii():
        try:
            host = idna.encode(text, uts46=True, std3_rules=True).decode("ascii")
        except UnicodeError as error:
            raise FetchRefused("This URL may not be fetched: its host is not a valid name.") from error
        if literal(host) is not None:
            raise FetchRefused("This URL may not be fetched: its host is not a valid name.")
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in host.split(".")):
        raise FetchRefused("This URL may not be fetched: its host is not a valid name.")
    return host
