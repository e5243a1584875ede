"""Names to which a key can be limited: models, and services that are not models of the catalog."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sixfold import near_names
from sixfold.core.gateway.search import service as web_search
from sixfold.core.gateway.tools import servers

# Services of the gateway, the creation of posts, web search and tools of MCP servers.
SERVICES = (
    *("chat", "vision", "embeddings", "speech", "transcription", "images", "create-ai", "create-post"),
    *(web_search.SERVICE, servers.SERVICE),
)
# Number of characters of an unknown name that a message shows, and of names for which it suggests others. A
# comparison of one name with a thousand others takes 40 ms.
_MAX_CHARS, _MAX_QUESTIONS = 100, 5


def is_known(name: str, known: Collection[str], servers: Collection[str] | None = None) -> bool:
    """Return whether a name is one of `known`, or `SERVER/model` of one of the servers.

    `servers` is None if any server may exist; those on other hosts are named `KIND@HOST`.
    """
    if name in known or name in SERVICES:
        return True
    server, slash, _ = name.partition("/")
    return bool(slash) and (servers is None or server.partition("@")[0] in servers)


def not_found(names: Iterable[str], known: Collection[str]) -> str:
    """Return a clause about unknown names: `Model or service chatt (did you mean chat?) not found`.

    Only for the first five names, it suggests others.
    """
    known_names = sorted({*known, *SERVICES})
    described: list[str] = []
    for number, name in enumerate(names):
        question = near_names.question(name, known_names) if number < _MAX_QUESTIONS else ""
        described.append(f"{name[:_MAX_CHARS]} ({question})" if question else name[:_MAX_CHARS])
    return f"Model or service {', '.join(described)} not found" if described else ""
