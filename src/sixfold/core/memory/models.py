"""The values of the memory: pages, links, timeline entries and callers.

Every change of a page goes through `pages.save`, which writes the page, its version and its explicit links.
In the same transaction it then calls `index.put(page, links)`, which makes the page searchable at once
(`index.put_many` for a batch of an import, `index.remove(account_id, page_id)` for a deleted page), and
`inference.refresh(page)`, which infers links from plain sentences (`inference.forget(page)` removes them).

Both may read earlier writes of the same transaction; write transactions run one after the other on every
database.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from sixfold.core.accounts import rights
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.rights import Rights

Origin = Literal["explicit", "inferred", "confirmed"]
# The type of a link that does not state a type.
LINK_TYPE = "links_to"
PAGE_TYPE = "note"


class MemoryPage(msgspec.Struct, frozen=True):
    """A current page; times are in epoch µs.

    `body` is Markdown without its front matter, which `head` contains verbatim with its fences ("" if it is
    missing). `path` is the file from which the page was imported, for exports ("" otherwise).
    """

    id: str
    account_id: str
    slug: str
    title: str
    body: str
    type: str
    tags: tuple[str, ...]
    collections: tuple[str, ...]
    version: int
    created_at: int
    updated_at: int
    created_by: str
    head: str = ""
    path: str = ""


class Link(msgspec.Struct, frozen=True):
    """A typed link between slugs; `context` is the line or sentence that contains it.

    `target` is the slug of the page to which the link resolves, or the written target if it is unresolved.
    """

    source: str
    target: str
    type: str = LINK_TYPE
    context: str = ""
    origin: Origin = "explicit"
    resolved: bool = True


class TimelineEntry(msgspec.Struct, frozen=True):
    """An entry of a page's timeline; `date` is a year, month, day or time in ISO 8601."""

    date: str
    summary: str
    detail: str = ""
    source: str = ""
    created_at: int = 0


class Caller(msgspec.Struct, frozen=True):
    """The account that reads or writes, the name for its changes, and the limits of its key.

    If `collections` is set, the caller sees pages in any of them, and changes pages only in these; empty
    means the whole memory. A `write_only` caller may not read the pages that it changes. `replays` identifies
    whose stored responses answer its repeated requests. `behalf` is the member or team of an organization for
    which the caller acts, "" for the account itself. Pages that the caller changes may also be in the
    collections `beside`. If the memory belongs to another account, which has shared a part of it at `since`
    (epoch µs), the caller sees neither earlier versions nor deleted pages.
    """

    account_id: str
    name: str
    collections: tuple[str, ...] = ()
    read_only: bool = False
    write_only: bool = False
    replays: str = ""
    behalf: str = ""
    beside: tuple[str, ...] = ()
    since: int | None = None

    @classmethod
    def of(cls, principal: Principal) -> Caller:
        """Return the caller of a principal; raises `Forbidden` without a right to the memory."""
        if not principal.rights & rights.MEMORY:
            principal.require(rights.MEMORY_READ)
        by_hand = principal.authentication == "session"
        name = principal.email if by_hand else principal.key_id or principal.email
        if principal.memory is not None:
            return cls(
                account_id=principal.memory.account_id,
                name=principal.email or name,
                collections=(principal.memory.collection,),
                read_only=not (principal.memory.may_write and principal.has(Rights.MEMORY_WRITE)),
                write_only=not principal.has(Rights.MEMORY_READ),
                replays=principal.replays,
                beside=principal.memory.beside,
                since=principal.memory.since,
            )
        return cls(
            account_id=principal.account_id,
            name=name,
            collections=principal.scope.collections,
            read_only=not principal.has(Rights.MEMORY_WRITE),
            write_only=not principal.has(Rights.MEMORY_READ),
            replays=principal.replays,
            behalf=principal.member_id or principal.team_id or "",
        )

    @property
    def may_write(self) -> bool:
        """Whether the caller may change any page."""
        return not self.read_only

    def shown(self, page: MemoryPage) -> MemoryPage:
        """Return a page that the caller has changed, without its content if the caller is `write_only`."""
        if not self.write_only:
            return page
        return msgspec.structs.replace(page, title="", body="", tags=(), collections=(), created_by="")

    def may_change(self, collections: tuple[str, ...]) -> bool:
        """Return whether the caller may change a page in these collections, or move a page into them."""
        if self.read_only or not self.collections:
            return not self.read_only
        other_collections = set(collections) - set(self.collections)
        return len(other_collections) < len(set(collections)) and other_collections <= set(self.beside)

    def home(self, before: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Return the default collections of a page: its previous ones, or the only one of the key."""
        if not self.collections:
            return ()
        return before or (self.collections if len(self.collections) == 1 else ())

    def sees(self, collections: tuple[str, ...]) -> bool:
        """Return whether the caller can see a page in these collections."""
        return not self.collections or not set(self.collections).isdisjoint(collections)
