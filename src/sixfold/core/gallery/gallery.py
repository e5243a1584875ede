"""The gallery: what faces call to publish, and to show what was published."""

from __future__ import annotations

from dataclasses import replace

from sixfold.core.database import Database, Transaction
from sixfold.core.gallery import characters, posts
from sixfold.core.gallery.characters import Character
from sixfold.core.gallery.pagination import GalleryPage
from sixfold.core.gallery.posts import Post
from sixfold.core.media.media import MediaService, MediaSource


class Gallery:
    """Publishes under fresh names: what else names the same bytes stays as private as it was."""

    def __init__(self, database: Database, media: MediaService) -> None:
        self._database = database
        self._media = media

    async def add_character(self, draft: characters.CharacterDraft, avatar: MediaSource | None) -> Character:
        """A character; its avatar counts as an upload of the account. Raises `TooLarge`, `Forbidden`."""
        return await self._database.write(self._character(draft, avatar))

    def _character(
        self, draft: characters.CharacterDraft, avatar: MediaSource | None
    ) -> Transaction[Character]:
        if avatar is None:
            return (yield from characters.create(draft))
        name = yield from self._media.name_blob(draft.account_id, avatar)
        return (yield from characters.create(replace(draft, avatar=name)))

    async def add_post(self, draft: posts.PostDraft, media: MediaSource) -> Post:
        """A post; its file counts as an upload of the account. Raises `TooLarge`, `Forbidden`."""
        return await self._database.write(self._post(draft, media))

    def _post(self, draft: posts.PostDraft, media: MediaSource) -> Transaction[Post]:
        name = yield from self._media.name_blob(draft.account_id, media)
        return (yield from posts.create(replace(draft, media=name)))

    async def characters(self, limit: int, cursor: str | None) -> GalleryPage[Character]:
        """Everybody's characters, newest first."""
        return await self._database.read(characters.listed(limit, cursor))

    async def posts(self, limit: int, cursor: str | None, tag: str = "") -> GalleryPage[Post]:
        """Everybody's posts, newest first; with a tag, those that carry it."""
        return await self._database.read(posts.listed(limit, cursor, posts.folded(tag)))
