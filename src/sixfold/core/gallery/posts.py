"""Posts: an image or video with text and tags."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from sixfold import errors
from sixfold.core import ids
from sixfold.core.database import Query, Row, Transaction, one
from sixfold.core.gallery.pagination import LAST_ID, GalleryPage, page

MAX_POSTS = 10_000
MAX_TAGS, MAX_TAG_CHARS = 20, 40


@dataclass(frozen=True, slots=True)
class PostDraft:
    """A post to create; `media` names a stored file."""

    account_id: str
    text: str
    media: str
    content_type: str
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Post:
    """A published post; the time is in epoch µs."""

    id: str
    author_id: str
    text: str
    media: str
    content_type: str
    tags: tuple[str, ...]
    created_at: int

    @classmethod
    def of(cls, row: Row) -> Post:
        """Build a post from a row."""
        values: dict[str, Any] = {name: row[name] for name in cls.__slots__}
        values["tags"] = tuple(json.loads(row["tags"]))
        return cls(**values)


def create(draft: PostDraft) -> Transaction[Post]:
    """Create a post; raises `Forbidden` if the account has too many."""
    usage = yield from one("gallery_post_count", account_id=draft.account_id)
    if usage is not None and usage["total"] >= MAX_POSTS:
        raise errors.Forbidden(f"An account can have at most {MAX_POSTS} posts")
    rows = yield Query(
        "gallery_post_insert",
        {
            "id": ids.new("post"),
            "account_id": draft.account_id,
            "text": draft.text,
            "media": draft.media,
            "content_type": draft.content_type,
            "tags": json.dumps(draft.tags, ensure_ascii=False),
        },
    )
    post = Post.of(rows[0])
    for tag in draft.tags:
        yield Query("gallery_tag_insert", {"tag": tag, "post_id": post.id})
    return post


def list_page(limit: int, cursor: str | None, tag: str) -> Transaction[GalleryPage[Post]]:
    """Return a page of all posts, newest first, optionally only those with a tag."""
    name = "gallery_posts_tagged" if tag else "gallery_posts"
    params: dict[str, str | int] = {"before": cursor or LAST_ID, "limit": limit + 1}
    rows = yield Query(name, {**params, "tag": tag} if tag else params)
    return page([Post.of(row) for row in rows], limit)


def normalize_tag(tag: str) -> str:
    """Return the stored form of a tag: without `#` and extra spaces, in lower case."""
    return " ".join(tag.strip().lstrip("#").split()).casefold()
