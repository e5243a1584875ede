"""Rankings of documents by their relevance to a query, as model servers return them."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import msgspec

# More than the documents of a request, whose texts a response repeats.
_MAX_RESULTS = 10_000


class RankedDocument(msgspec.Struct, frozen=True):
    """A document, given by its position in the request, and its relevance."""

    index: int
    score: float


class _RankedRow(msgspec.Struct):
    index: int
    relevance_score: float | None = None
    score: float | None = None


class _Ranking(msgspec.Struct):
    # Cohere, Jina, vLLM and llama.cpp; Voyage.
    results: list[_RankedRow] | None = None
    data: list[_RankedRow] | None = None


# text-embeddings-inference returns only the list.
_read = msgspec.json.Decoder(_Ranking | list[_RankedRow]).decode


def parse_ranking(body: bytes) -> tuple[RankedDocument, ...]:
    """Return the ranking in a response, the most relevant document first; raises `ValueError`.

    Of several results for a document, the first counts.
    """
    try:
        reply = _read(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ValueError("the response is not a ranking") from error
    results: Any = reply
    if isinstance(reply, _Ranking):
        results = reply.data if reply.results is None else reply.results
    rows: list[_RankedRow] = results or []
    ranked: dict[int, RankedDocument] = {}
    for row in rows:
        score = row.score if row.relevance_score is None else row.relevance_score
        if score is not None:
            ranked.setdefault(row.index, RankedDocument(row.index, score))
    if not 0 < len(ranked) <= _MAX_RESULTS:
        raise ValueError(f"the response has no results, or more than {_MAX_RESULTS:,}")
    return tuple(sorted(ranked.values(), key=lambda document: (-document.score, document.index)))


def rank_vectors(vectors: Sequence[Sequence[float]]) -> tuple[RankedDocument, ...]:
    """Rank vectors by their cosine with the first vector, the query's; negative cosines count as 0."""
    query, *documents = vectors
    ranked: list[RankedDocument] = []
    for index, vector in enumerate(documents):
        lengths = math.hypot(*query) * math.hypot(*vector)
        cosine = sum(map(operator.mul, query, vector)) / lengths if lengths else 0.0
        ranked.append(RankedDocument(index, min(1.0, max(0.0, cosine))))
    return tuple(sorted(ranked, key=lambda document: (-document.score, document.index)))
