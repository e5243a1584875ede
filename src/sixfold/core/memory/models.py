"""The nouns of the memory: a page, a link, a timeline entry, and whoever asks for them.

Every change of a page goes through `pages.save`, which writes the page, its version and its explicit
links and then, in the same transaction, calls the two seams that others stand behind:

- `index.put(page, links)` makes the page searchable at once; `index.put_many` does so for a batch of an
  import; `index.remove(account_id, page_id)` forgets it.
- `inference.refresh(page)` draws links from plain sentences; `inference.forget(page)` takes them back.

Both may read what was written before them in the same transaction; transactions that write come one after
the other on every database.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sixfold.core.accounts import rights
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.rights import Rights

Origin = Literal["explicit", "inferred", "confirmed"]
LINK_TYPE = "links_to"  # of a link that names no type
PAGE_TYPE = "note"


@dataclass(frozen=True, slots=True)
class MemoryPage:
    """One current page; times in epoch µs.

    `body` is markdown without its front matter, which stands in `head` word for word with its fences
    ("" where there is none). `path` is the file that it was imported from, for the export ("" otherwise).
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


@dataclass(frozen=True, slots=True)
class Link:
    """One typed link between slugs; `context` is the line, or the sentence, that it stands in.

    `target` is the slug of the page that it leads to, or what was written where there is none yet.
    """

    source: str
    target: str
    type: str = LINK_TYPE
    context: str = ""
    origin: Origin = "explicit"
    resolved: bool = True


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One line of a page's timeline; `date` is a year, a month, a day or a moment in ISO 8601."""

    date: str
    summary: str
    detail: str = ""
    source: str = ""
    created_at: int = 0


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever reads or writes: the account, the name that changes are signed with, what its key may see.

    `collections` limits what is seen to pages in any of them, and what is changed to pages in them alone;
    empty is the whole memory. `replays` says whose kept answers its repeated requests get.
    """

    account_id: str
    name: str
    collections: tuple[str, ...] = ()
    read_only: bool = False
    replays: str = ""

    @classmethod
    def of(cls, principal: Principal) -> Caller:
        """The caller that a principal is; raises `Forbidden` where it has no right to the memory."""
        if not principal.rights & rights.MEMORY:
            principal.require(rights.MEMORY_READ)
        return cls(
            account_id=principal.account_id,
            name=principal.key_id or principal.email,
            collections=principal.scope.collections,
            read_only=not principal.has(Rights.MEMORY_WRITE),
            replays=principal.replays,
        )

    @property
    def may_write(self) -> bool:
        """Whether there is anything that this caller may change."""
        return not self.read_only

    def may_change(self, collections: tuple[str, ...]) -> bool:
        """Whether this caller may change a page in these collections, or move one there."""
        if self.read_only or not self.collections:
            return not self.read_only
        return bool(collections) and set(collections) <= set(self.collections)

    def home(self, before: tuple[str, ...] = ()) -> tuple[str, ...]:
        """The collections of a page that names none: those that it was in, or the only one of the key."""
        if not self.collections:
            return ()
        return before or (self.collections if len(self.collections) == 1 else ())

    def sees(self, collections: tuple[str, ...]) -> bool:
        """Whether a page in these collections is there for this caller."""
        return not self.collections or not set(self.collections).isdisjoint(collections)
