"""Ids are unique across threads and forked processes, although they are drawn in batches."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ThreadPoolExecutor

from sixfold.core import ids


def _make(count: int) -> list[str]:
    return [ids.new("req") for _ in range(count)]


def test_ids_of_concurrent_threads_are_unique() -> None:
    with ThreadPoolExecutor(4) as pool:
        results = [results for some in pool.map(_make, [2_000] * 4) for results in some]
    assert len({results[-25:] for results in results}) == len(results) == 8_000
    assert {len(results) for results in results} == {40}


def test_ids_of_forked_processes_are_unique() -> None:
    # Draws a batch.
    ids.new("req")
    with multiprocessing.get_context("fork").Pool(2) as pool:
        theirs = [result for some in pool.map(_make, [100, 100], chunksize=1) for result in some]
    ours = _make(100)
    assert len({result[-25:] for result in [*theirs, *ours]}) == 300


def test_ids_sort_by_their_creation_time() -> None:
    result = _make(500)
    assert [each[:13] for each in result] == sorted(each[:13] for each in result)
    assert ids.earliest("req", 0) < result[0]


def test_draw_is_random_without_a_key_and_fixed_with_one() -> None:
    assert ids.draw(2**31, "node.0") == ids.draw(2**31, "node.0") != ids.draw(2**31, "node.1")
    assert len({ids.draw(2**31) for _ in range(8)}) > 1
    assert {ids.draw(1), ids.draw(1, "node.0")} == {0}
