"""Choose the weights of search by coordinate descent on LoCoMo and half of the project wiki's questions.

.venv/bin/python -m bench.tuning [--rounds N] [--meaning FOLDER]

Prints proposed changes of `core/memory/indexing/weights.py` without applying them. The held-out conversations
and the other half of the wiki are only reported. `--meaning` tunes the weights of vector search, with the
files of MiniLM in FOLDER; without it, the weights of word search are tuned.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from bench import quality
from bench.quality import Case, Corpus, Quality
from sixfold.core.memory.indexing.weights import WEIGHTS, Weights
from sixfold.core.memory.search import query_parser, ranking
from sixfold.core.memory.search.embedding import Embedder
from sixfold.core.memory.search.index_cache import IndexCache
from sixfold.core.memory.search.ports import IndexView, Saturation, SearchFilter
from sixfold.core.memory.search.ranking import RankedQuery
from sixfold.engines.text.minilm import NAME, MiniLM
from sixfold.store.search.index import PageIndex
from sixfold.store.sqlite.database import SqliteDatabase

_STEPS = (0.5, 0.75, 1.25, 1.5)  # the factors that are tried for one weight at a time
_WORDS = (
    "passage", "previous", "next", "previous_but_one", "next_but_one", "reply", "folder", "path", "article",
    "entities", "links", "statement", "substance", "answer", "crowd", "page.k1", "page.b", "whole_folder.k1",
    "whole_folder.b",
)  # fmt: skip
_MEANING = ("meaning", "meaning_previous", "meaning_next")
_LEAST_GAIN = 0.0008  # smaller gains may be random


@dataclass(frozen=True, slots=True)
class Asked:
    """A prepared case: the view of the memory, and the question as parsed for ranking."""

    view: IndexView
    question: RankedQuery
    case: Case
    slugs: Sequence[str]


async def prepare(database: SqliteDatabase, corpora: Sequence[Corpus], model: MiniLM | None) -> list[Asked]:
    """Write the corpora, embed them if `model` is set, and parse every question."""
    index_cache = IndexCache(database, PageIndex, 2**32)
    if model is not None:
        index_cache.use(NAME)
    prepared: list[Asked] = []
    for corpus in corpora:
        caller = await quality.remember(database, corpus)
        if model is not None:
            embedder = Embedder(database, model)
            while await embedder.step():
                pass
        index: Any = await index_cache.index(caller.account_id)
        view = index.view(())
        vectors = model.embed([case.question for case in corpus.cases]) if model is not None else []
        for number, case in enumerate(corpus.cases):
            vector = vectors[number] if vectors else None
            prepared.append(
                Asked(view, query_parser.parse_query(view, case.question, vector), case, index.slugs)
            )
    return prepared


def evaluate(questions: Iterable[Asked], weights: Weights) -> Quality:
    judged: list[tuple[float, float, float, float]] = []
    for one in questions:
        ranked = ranking.rank(one.view, one.question, weights)
        places = one.view.best(ranked.score, ranked.candidates, SearchFilter(), quality.DEPTH)
        judged.append(quality.judge([one.slugs[place] for place in places], one.case.answers))
    return quality.mean(judged)


def objective(parts: Sequence[Quality]) -> float:
    """Return the score to maximize: recall and order; LoCoMo counts four times as much as the wiki."""
    shares = (0.8, 0.2) if len(parts) > 1 else (1.0,)
    values = ((part.recall_5 + part.recall_10 + part.ndcg) / 3 for part in parts)
    return sum(share * value for share, value in zip(shares, values, strict=True))


def vary(weights: Weights, name: str, factor: float) -> Weights:
    """Return the weights with `name` multiplied by `factor`; a name such as `page.k1` is nested."""
    outer, _, inner = name.partition(".")
    value = getattr(weights, outer)
    if inner:
        assert isinstance(value, Saturation)
        most = 1.0 if inner == "b" else 10.0
        changed: Any = msgspec.structs.replace(
            value, **{inner: min(most, round(getattr(value, inner) * factor, 3))}
        )
    else:
        changed = type(value)(round(value * factor, 3))
    return msgspec.structs.replace(weights, **{outer: changed})


def descend(judge: Callable[[Weights], float], names: Sequence[str], rounds: int) -> Weights:
    """Change one weight at a time while the score improves, and return the best weights."""
    weights = WEIGHTS
    best = judge(weights)
    for _ in range(rounds):
        before = best
        for name in names:
            for factor in _STEPS:
                other = vary(weights, name, factor)
                result = judge(other)
                if result > best + _LEAST_GAIN:
                    best, weights = result, other
                    print(
                        f"{best:.4f} {name} x {factor}: {getattr(weights, name.partition('.')[0])}",
                        flush=True,
                    )
        if best == before:
            break
    return weights


def ablation(parts: Mapping[str, Sequence[Asked]], weights: Weights) -> None:
    """Print the quality with every signal, and without each of them."""
    print("| | " + " | ".join(f"{name} R@5 | R@10 | nDCG" for name in parts) + " |")
    print("|---" * (1 + 3 * len(parts)) + "|")
    _print_row("every signal", parts, weights)
    names = [name for name in Weights.__struct_fields__ if isinstance(getattr(weights, name), float)]
    for name in names:
        changed = vary(weights, name, 0)
        if name == "article":
            changed = msgspec.structs.replace(weights, article=1.0)
        _print_row(f"without {name}", parts, changed)


def _print_row(title: str, parts: Mapping[str, Sequence[Asked]], weights: Weights) -> None:
    results = (evaluate(part, weights) for part in parts.values())
    cells = (f"{result.recall_5:.3f} | {result.recall_10:.3f} | {result.ndcg:.3f}" for result in results)
    print(f"| {title} | " + " | ".join(cells) + " |", flush=True)


async def cross_validate(rounds: int) -> None:
    """Tune on half of the wiki and all conversations except one, measure that one, and repeat for each."""
    database = SqliteDatabase(":memory:")
    try:
        names = (*quality.TUNING, *quality.UNSEEN)
        talks = {name: await prepare(database, quality.locomo((name,)), None) for name in names}
        known = (await prepare(database, quality.own(), None))[::2]
    finally:
        await database.close()
    kinds: dict[str, list[float]] = {}
    for name, held in talks.items():
        rest = [request for other, part in talks.items() if other != name for request in part]
        parts = (rest, known)

        def judge(weights: Weights, parts: Sequence[Sequence[Asked]] = parts) -> float:
            return objective([evaluate(part, weights) for part in parts])

        weights = descend(judge, _WORDS, rounds)
        for one in held:
            result = evaluate([one], weights).recall_10
            for kind in (one.case.kind, "all"):
                kinds.setdefault(kind, []).append(result)
    for kind, values in sorted(kinds.items()):
        low, high = quality.interval(values)
        mean = sum(values) / len(values)
        print(f"{kind}: R@10 {mean:.3f} ({low:.3f} to {high:.3f}), {len(values)} questions", flush=True)


async def _tune(options: argparse.Namespace) -> None:
    model = MiniLM(options.meaning) if options.meaning else None
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        database = SqliteDatabase(Path(folder) / "tuning.db")
        try:
            tuning = await prepare(database, quality.locomo(quality.TUNING), model)
            unseen = await prepare(database, quality.locomo(quality.UNSEEN), model)
            own = await prepare(database, quality.own(), model)
            islands = await prepare(database, quality.islands(), model)
        finally:
            await database.close()
    known, remaining = own[::2], own[1::2]
    parts = [part for part in (tuning, known) if part]

    def judge(weights: Weights) -> float:
        return objective([evaluate(part, weights) for part in parts])

    weights = descend(judge, _MEANING if model else _WORDS, options.rounds)
    for name in Weights.__struct_fields__:
        before, after = getattr(WEIGHTS, name), getattr(weights, name)
        print(f"{name}: {before}" + (f" -> {after}" if after != before else ""))
    for name, part in (
        ("tuning", tuning),
        ("unseen", unseen),
        ("wiki, tuned", known),
        ("wiki, kept", remaining),
        ("islands", islands),
    ):
        if part:
            print(f"{name}: {evaluate(part, WEIGHTS)}\n  -> {evaluate(part, weights)}")
    if options.ablation:
        parts_by_name = {"conversations": unseen, "wiki": own, "islands": islands}
        ablation({name: part for name, part in parts_by_name.items() if part}, WEIGHTS)


def main() -> None:
    """Tune the weights and print the results."""
    parser = argparse.ArgumentParser(prog="bench.tuning", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--meaning", type=Path, help="the folder of MiniLM's files")
    parser.add_argument("--ablation", action="store_true", help="also print the quality without each signal")
    parser.add_argument(
        "--cross", action="store_true", help="measure each conversation by weights of the others"
    )
    options = parser.parse_args()
    asyncio.run(cross_validate(options.rounds) if options.cross else _tune(options))


if __name__ == "__main__":
    main()
