"""The browser of a request, named so that its owner recognises it: no version number."""

from __future__ import annotations

from starlette.requests import Request

# The first word that stands in the header counts: browsers name those that they descend from, too.
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
    """As in `Firefox on Linux`; empty for an unknown browser."""
    header = request.headers.get("user-agent", "")
    found = (_first(_BROWSERS, header), _first(_SYSTEMS, header))
    return " on ".join(word for word in found if word)


def _first(words: dict[str, str], header: str) -> str:
    return next((meaning for word, meaning in words.items() if word in header), "")
