"""The strips of vectors: what is drawn, how much of it, and for which data."""

from __future__ import annotations

from typing import Any

import pytest

from sixfold.ui.predictions import output_view, vector_strips
from sixfold.ui.predictions.vector_strips import VectorStrips


def strips(vectors: list[Any], texts: object = None) -> VectorStrips | None:
    """Return the drawing of a result with these vectors."""
    return vector_strips.draw("embeddings", {"texts": texts}, {"embeddings": vectors})


def test_a_strip_has_a_path_for_each_color() -> None:
    drawn = strips([[0.0, 0.5, 0.5, -0.5, 0.125]])
    assert drawn is not None
    assert drawn.strips[0].paths == [
        ("less", 1.0, "M3 0h1v1h-1z"),
        ("more", 0.5, "M4 0h1v1h-1z"),
        ("more", 1.0, "M1 0h2v1h-2z"),
    ]
    assert drawn.strips[0].cells == [0.0, 0.5, 0.5, -0.5, 0.125]


def test_similarities_are_cosines_and_name_the_nearest() -> None:
    drawn = strips([[1, 0], [3, 3], [0, 2], [0, 0]], ["a", "b", "c", "d"])
    assert drawn is not None
    assert [f"{value:.2f}" for value in drawn.similarities[1]] == ["0.71", "1.00", "0.71", "0.00"]
    assert drawn.nearest[:3] == [1, 0, 1]
    assert [strip.label for strip in drawn.strips] == ["a", "b", "c", "d"]


def test_many_long_vectors_are_drawn_within_the_limits() -> None:
    drawn = strips([[0.1] * 1023 + [-0.9]] * 2048, ["x" * 500] * 2048)
    assert drawn is not None
    assert (len(drawn.strips), drawn.count, drawn.dimensions, drawn.width) == (12, 2048, 1024, 512)
    assert (drawn.cell_dimensions, drawn.strips[0].cells[-1]) == (2, -0.9)
    assert len(drawn.strips[0].label) == 81


@pytest.mark.parametrize(
    "vectors",
    [
        [],
        [[]],
        [[1], [1, 2]],
        [["1"]],
        [[True]],
        [[float("nan")]],
        [[float("inf")]],
        [[10**400]],
        [[0.1] * 8193],
        {"a": [1]},
    ],
)
def test_other_data_is_not_drawn(vectors: Any) -> None:
    assert strips(vectors) is None


def test_only_the_beginning_of_a_result_is_encoded() -> None:
    class Rows(list[Any]):
        """Counts the rows that are read."""

        read = 0

        def __iter__(self) -> Any:
            for row in super().__iter__():
                self.read += 1
                yield row

    rows = Rows([[0.25] * 384] * 2048)
    text = output_view.data_text({"embeddings": rows})
    assert text.startswith('{\n  "embeddings": [\n    [\n      0.25,')
    assert text.endswith("\n…")
    assert 0 < rows.read < 10
