"""Index entries of pages, written in the transaction that writes the page.

An `IndexEntry` contains word counts and the values of filters. Entries of an account are numbered by its
changes, so that a server with an index in memory reads only newer entries and finds every committed change.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import msgspec

from sixfold.core.database import Query, Transaction
from sixfold.core.memory import markdown, slugs
from sixfold.core.memory.indexing import answer_kinds, chunks, tokens
from sixfold.core.memory.indexing.weights import TITLE_WEIGHT
from sixfold.core.memory.models import Link, MemoryPage

# The version of entries, which must be changed whenever the entry of an unchanged page would differ.
FORM = 7
PREFIX = f"[{FORM},"
# Maximum number of names of a page that a query can match.
_MAX_NAMES = 32
# Maximum characters of front matter that are indexed.
_MAX_HEAD = 4_096
_SPEAKER = re.compile(r"\s{0,8}(?:\*\*|__)?([^\W\d_][\w .'’-]{0,40}?)(?:\*\*|__)?:(?:\*\*|__)?\s")
# In a body of at most this many characters, a question is the subject of the page.
_SHORT = 600
_ASKING = re.compile(r"[?？؟][\s*_\")”»]*$", re.MULTILINE)
_NUMBER = re.compile(r"\d+")


class IndexEntry(msgspec.Struct, array_like=True, frozen=True):
    """The search data of a page; times are in epoch µs.

    `terms` counts the words of the whole page, and `passages` those of each passage if the page has more than
    one. `names` are the words of the title, the speaker and the linked pages; `path` contains those of the
    folders. `article` is true for a self-contained page, whose title contains the words of its slug. Other
    pages are parts of their folder, such as the turns of a conversation or the days of a log. `asks` is true
    for a short page with a line that ends in a question. `holds` contains the counts of times, numbers and
    names, in the order of `answer_kinds.KINDS`; `title` contains the distinct words of the title.
    """

    # The version of the entry must be the first field.
    form: int
    slug: str
    type: str
    tags: tuple[str, ...]
    collections: tuple[str, ...]
    created_at: int
    updated_at: int
    terms: dict[str, int]
    passages: tuple[dict[str, int], ...]
    names: tuple[str, ...]
    path: tuple[str, ...]
    article: bool
    asks: bool
    holds: tuple[int, int, int]
    title: tuple[str, ...]


_ENCODE = msgspec.json.Encoder()
_DECODE = msgspec.json.Decoder(IndexEntry)


def decode(entry: str) -> IndexEntry | None:
    """Decode an entry that `encode` wrote; return None for an entry of another version."""
    return _DECODE.decode(entry) if entry.startswith(PREFIX) else None


def encode(entry: IndexEntry) -> str:
    """Encode an entry in the format of the database."""
    return _ENCODE.encode(entry).decode()


def put(page: MemoryPage, links: Sequence[Link]) -> Transaction[None]:
    """Index a page, replacing its previous entry."""
    yield from put_many(((page, links),))


def put_many(batch: Sequence[tuple[MemoryPage, Sequence[Link]]]) -> Transaction[None]:
    """Index many distinct pages of one account together, as an import does."""
    if not batch:
        return
    account_id = batch[0][0].account_id
    rows = [(page.id, encode(entry(page, links))) for page, links in batch]
    change = yield from next_change(account_id)
    yield Query(
        "memory_index_put",
        {"account_id": account_id, "change": change, "rows": _ENCODE.encode(rows).decode()},
    )


def remove(account_id: str, page_id: str) -> Transaction[None]:
    """Remove a page from the index; a missing page is not an error."""
    change = yield from next_change(account_id)
    yield Query("memory_index_remove", {"account_id": account_id, "page_id": page_id, "change": change})
    yield Query("memory_vector_remove", {"page_id": page_id})


def next_change(account_id: str) -> Transaction[int]:
    """Return this transaction's change number; an account's changes are numbered in commit order."""
    rows = yield Query("memory_change_next", {"account_id": account_id})
    return int(rows[0]["change"])


def is_article(slug: str, title: str) -> bool:
    """Return whether the title contains all words of the slug, which must not contain a number."""
    name = slugs.name(slug)
    return _NUMBER.search(name) is None and set(tokens.words(name.replace("_", " "))) <= set(
        tokens.words(title)
    )


def entry(page: MemoryPage, links: Sequence[Link]) -> IndexEntry:
    title = tokens.words(page.title)
    head = _head_terms(page, title)
    passages = [
        tokens.terms(markdown.without_comments(page.body[start:end]))
        for start, end in chunks.split(page.body)
    ]
    entry_counts = head.copy()
    for passage in passages:
        entry_counts.update(passage)
    if len(passages) > 1:
        for passage in passages:
            # The words of the title count once in each passage.
            passage.update(head.keys())
    return IndexEntry(
        form=FORM,
        slug=page.slug,
        type=page.type,
        tags=tuple(dict.fromkeys((*page.tags, *markdown.tags(page.body)))),
        collections=page.collections,
        created_at=page.created_at,
        updated_at=page.updated_at,
        terms=entry_counts,
        passages=tuple(passages) if len(passages) > 1 else (),
        names=_names(page, title, links),
        path=tuple(sorted(_slug_terms(slugs.parent(page.slug)))),
        article=is_article(page.slug, page.title),
        asks=len(page.body) <= _SHORT and _ASKING.search(page.body) is not None,
        holds=answer_kinds.count_answers(page.body),
        title=tuple(dict.fromkeys(word for word in title if word))[:_MAX_NAMES],
    )


def _head_terms(page: MemoryPage, title: Sequence[str]) -> Counter[str]:
    """Return the words of the title, front matter and tags, and the remaining words of the slug."""
    counts: Counter[str] = Counter()
    for word in title:
        if word:
            counts[word] += TITLE_WEIGHT
    # A title of stop words, such as "The Who", is found by these words.
    if not counts:
        counts.update(word for word in tokens.fold(page.title).split() if word)
    if page.head:
        counts.update(tokens.terms(page.head[:_MAX_HEAD]))
    for tag in page.tags:
        counts.update(tokens.terms(tag).keys() - counts.keys())
    counts.update(_slug_terms(slugs.name(page.slug)) - counts.keys())
    return counts


def _slug_terms(slug: str) -> set[str]:
    """Return the words of a slug without its numbers."""
    return set(tokens.terms(_NUMBER.sub(" ", slug).replace("_", " ")))


def _names(page: MemoryPage, title: Sequence[str], links: Sequence[Link]) -> tuple[str, ...]:
    names = dict.fromkeys(title)
    speaker = _SPEAKER.match(page.body)
    if speaker is not None:
        names.update(dict.fromkeys(tokens.words(speaker[1])))
    for link in links[:_MAX_NAMES]:
        names.update(dict.fromkeys(tokens.words(slugs.name(link.target).replace("_", " "))))
    names.pop("", None)
    return tuple(names)[:_MAX_NAMES]
