"""Measure retrieval in other languages: `python -m bench.languages` prints one row per language.

The columns are the shares of questions whose page is the first result and among the first three. The
corpora are small and written for this benchmark: they compare versions of Sixfold, not products.
"""

from __future__ import annotations

import asyncio

from bench import quality
from sixfold.core.memory.search.index_cache import IndexCache
from sixfold.core.memory.search.service import SearchService
from sixfold.store.search.index import PageIndex
from sixfold.store.sqlite.database import SqliteDatabase


async def measure() -> dict[str, tuple[int, int, int]]:
    """Return, by language, the questions answered by the first result, by the first three, and in total."""
    database = SqliteDatabase(":memory:")
    finder = SearchService(database, IndexCache(database, PageIndex))
    rows: dict[str, tuple[int, int, int]] = {}
    try:
        for corpus in quality.languages():
            caller = await quality.remember(database, corpus)
            ask = quality.asking(finder, caller, "lexical")
            results = [await ask(case.question) for case in corpus.cases]
            places = [
                list(ranked).index(case.answers[0]) if case.answers[0] in ranked else quality.DEPTH
                for case, ranked in zip(corpus.cases, results, strict=True)
            ]
            first, third = (sum(place < depth for place in places) for depth in (1, 3))
            rows[corpus.name] = first, third, len(places)
    finally:
        await database.close()
    return rows


def main() -> None:
    print("| language | questions | first | first three |", "|---|---|---|---|", sep="\n")
    for name, (first, third, all_) in asyncio.run(measure()).items():
        print(f"| {name} | {all_} | {first / all_:.2f} | {third / all_:.2f} |")


if __name__ == "__main__":
    main()
