"""The positions of a graph's files among all files of its result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


class FileOrder:
    """Predicts the position of each file while output nodes finish in any order.

    Files are ordered by their output nodes, with separate positions for previews and results. An earlier
    unfinished node counts as one file if it has the class of the file's node, otherwise as none.
    """

    def __init__(self, outputs: Iterable[tuple[str, str]]) -> None:
        self._classes = dict(outputs)
        self._order = list(self._classes)
        self._ranks: dict[str, int] = {}
        seen: Counter[str] = Counter()
        for node_id, class_type in self._classes.items():
            self._ranks[node_id] = seen[class_type]
            seen[class_type] += 1
        self._files: Counter[tuple[str, bool]] = Counter()
        self._finished: set[str] = set()
        # The first output node that has not finished, and the number of files before it.
        self._at = 0
        self._before: Counter[bool] = Counter()
        self._passed: Counter[str] = Counter()

    def next(self, node_id: str, *, temporary: bool) -> int:
        """Return the position of a node's next file, counted from 0."""
        position = self._before[temporary] + self._files[node_id, temporary]
        class_type = self._classes.get(node_id)
        if class_type is not None:
            position += self._ranks[node_id] - self._passed[class_type]
        self._files[node_id, temporary] += 1
        return position

    def finish(self, node_id: str) -> None:
        """Record that a node will produce no more files."""
        self._finished.add(node_id)
        while self._at < len(self._order) and self._order[self._at] in self._finished:
            passed_node = self._order[self._at]
            for temporary in (False, True):
                self._before[temporary] += self._files[passed_node, temporary]
            self._passed[self._classes[passed_node]] += 1
            self._at += 1
