"""Characters: a name, a description, a greeting and an avatar, with a unique name for URLs."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass

from anyascii import anyascii

from sixfold import errors
from sixfold.core import ids
from sixfold.core.database import Query, Row, Transaction, one
from sixfold.core.gallery.pagination import LAST_ID, GalleryPage, page

MAX_CHARACTERS = 10_000
_URL_NAME_CHARS = 48
_MAX_ATTEMPTS = 8


@dataclass(frozen=True, slots=True)
class CharacterDraft:
    """A character to create; `avatar` names a stored file."""

    account_id: str
    name: str
    description: str
    greeting: str
    avatar: str | None


@dataclass(frozen=True, slots=True)
class Character:
    """A published character; the time is in epoch µs."""

    id: str
    author_id: str
    url_name: str
    name: str
    description: str
    greeting: str
    avatar: str | None
    created_at: int

    @classmethod
    def of(cls, row: Row) -> Character:
        """Build a character from a row."""
        return cls(**{name: row[name] for name in cls.__slots__})


def create(draft: CharacterDraft) -> Transaction[Character]:
    """Create a character; raises `Forbidden` if the account has too many."""
    usage = yield from one("gallery_character_count", account_id=draft.account_id)
    if usage is not None and usage["total"] >= MAX_CHARACTERS:
        raise errors.Forbidden(f"An account can have at most {MAX_CHARACTERS} characters")
    url_name = yield from _unique_name(slug(draft.name))
    rows = yield Query(
        "gallery_character_insert",
        {
            "id": ids.new("char"),
            "account_id": draft.account_id,
            "url_name": url_name,
            "name": draft.name,
            "description": draft.description,
            "greeting": draft.greeting,
            "avatar": draft.avatar,
        },
    )
    return Character.of(rows[0])


def list_page(limit: int, cursor: str | None) -> Transaction[GalleryPage[Character]]:
    """Return a page of all characters, newest first."""
    rows = yield Query("gallery_characters", {"before": cursor or LAST_ID, "limit": limit + 1})
    return page([Character.of(row) for row in rows], limit)


def slug(name: str) -> str:
    """Return the form of a name for URLs, in Latin letters; `character` if none can be derived."""
    text = re.sub(r"[^a-z0-9]+", "-", anyascii(name).lower())
    return text.strip("-")[:_URL_NAME_CHARS].strip("-") or "character"


def _unique_name(slug_text: str) -> Transaction[str]:
    candidate = slug_text
    for _ in range(_MAX_ATTEMPTS):
        existing = yield from one("gallery_url_name", url_name=candidate)
        if existing is None:
            return candidate
        candidate = f"{slug_text}-{secrets.token_hex(4)}"
    raise errors.Conflict("This name is already taken: try again")
