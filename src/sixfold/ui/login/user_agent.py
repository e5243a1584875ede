"""Names of browsers and systems from the User-Agent header, without version numbers."""

from __future__ import annotations

from starlette.requests import Request

# In order of precedence: browsers also list the browsers that they are compatible with.
_BROWSERS = {
    "Edg": "Edge",
    "OPR/": "Opera",
    "SamsungBrowser": "Samsung Internet",
    "Firefox/": "Firefox",
    "FxiOS": "Firefox",
    "CriOS": "Chrome",
    "Chromium": "Chromium",
    "Chrome/": "Chrome",
    "Safari/": "Safari",
    "curl/": "curl",
}
_SYSTEMS = {
    "Android": "Android",
    "iPhone": "iPhone",
    "iPad": "iPad",
    "Windows": "Windows",
    "CrOS": "ChromeOS",
    "Macintosh": "Mac",
    "Linux": "Linux",
}


def name(request: Request) -> str:
    """Return a name such as `Firefox on Linux`, or an empty string for an unknown browser."""
    header = request.headers.get("user-agent", "")
    parts = (_first(_BROWSERS, header), _first(_SYSTEMS, header))
    return " on ".join(part for part in parts if part)


def _first(names: dict[str, str], header: str) -> str:
    return next((name for token, name in names.items() if token in header), "")
