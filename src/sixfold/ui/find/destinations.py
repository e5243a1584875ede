"""The pages and settings that a search can lead to."""

from __future__ import annotations

import msgspec

from sixfold.core.accounts import rights
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.rights import Access


class Destination(msgspec.Struct, frozen=True):
    """A page of the site, with search words, the access that it requires, and its API."""

    path: str
    title: str
    words: str
    access: Access = rights.RUN
    api: str = ""

    def is_open_to(self, principal: Principal) -> bool:
        ranks = rights.ROLES
        has_role = ranks.index(principal.role) >= ranks.index(self.access.role)
        return has_role and principal.has(self.access.right)


DESTINATIONS = (
    Destination("/catalog", "Catalog", "models services start make", rights.PUBLIC),
    Destination("/chat", "New chat", "chat ask conversation llm", api="gateway"),
    Destination("/workflows", "Workflows", "graphs nodes comfyui import", rights.PUBLIC, "workflows"),
    Destination("/predictions", "History", "runs predictions results outputs earlier"),
    Destination("/memory", "Memory", "pages notes wiki search", rights.MEMORY_READ, "memory"),
    Destination("/memory/~new", "New memory page", "write note create", rights.MEMORY_WRITE, "memory"),
    Destination(
        "/memory/~import", "Import into the memory", "obsidian upload", rights.MEMORY_WRITE, "memory"
    ),
    Destination("/memory/~export", "Export the memory", "download backup", rights.MEMORY_READ, "memory"),
    Destination("/gallery", "Gallery", "posts published public", rights.PUBLIC, "media"),
    Destination("/docs", "Docs", "documentation help guides reference api", rights.PUBLIC),
    Destination("/account", "Account overview", "settings balance", rights.ADMIN_READ),
    Destination("/account/usage", "Usage", "settings spending cost tokens csv", rights.ACCOUNT_READ),
    Destination("/account/keys", "API keys", "settings key token secret budget new", rights.ADMIN_READ),
    Destination(
        "/account/billing",
        "Billing",
        "settings credit add money pay top-up ledger invoice",
        rights.ADMIN_READ,
    ),
    Destination("/account/members", "Members and teams", "settings organization invite", rights.ACCOUNT_READ),
    Destination(
        "/account/security", "Sign-in and security", "settings password passkey sessions", rights.PERSON_READ
    ),
    Destination(
        "/account/data", "Your data", "settings export delete erase account privacy", rights.OWNER_READ
    ),
    Destination("/account/shares", "Shared links", "settings share"),
    Destination("/admin", "Operator: overview", "admin queue workers failures", rights.OPERATE),
    Destination("/admin/requests", "Operator: requests", "admin log errors", rights.OPERATE),
    Destination("/admin/people", "Operator: people", "admin accounts invite credit suspend", rights.OPERATE),
    Destination("/admin/usage", "Operator: usage", "admin spending costs earned csv report", rights.OPERATE),
    Destination("/admin/engines", "Operator: engines", "admin install enable providers", rights.OPERATE),
    Destination("/admin/providers", "Operator: providers", "admin keys openai anthropic fal", rights.OPERATE),
    Destination(
        "/admin/models", "Operator: models", "admin model servers aliases fallbacks weights", rights.OPERATE
    ),
    Destination("/admin/prices", "Operator: prices", "admin", rights.OPERATE),
    Destination(
        "/admin/tools", "Operator: tools", "admin mcp tool servers web search searxng", rights.OPERATE
    ),
    Destination("/admin/content", "Operator: content", "admin guardrail mask log texts days", rights.OPERATE),
    Destination("/admin/alerts", "Operator: alerts", "admin cost alerts webhook spending", rights.OPERATE),
    Destination("/admin/backups", "Operator: backups", "admin backup restore download", rights.OPERATE),
    Destination("/admin/audit", "Operator: audit log", "admin", rights.OPERATE),
)
