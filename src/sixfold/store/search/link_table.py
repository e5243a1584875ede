"""Links between positions in both directions."""

from __future__ import annotations

from collections.abc import Collection

from sixfold.store.search.strings import BytesColumn, Numbers

MANY = 64  # number of sources above which they are a set, because packed ones are copied on each change
_SOURCE_BYTES = 60  # of a set


class LinkTable:
    """The targets and sources of each position, with four bytes for each link."""

    def __init__(self) -> None:
        self._targets = BytesColumn()
        self._sources = BytesColumn()
        self._many: dict[int, set[int]] = {}
        self._in_sets = 0

    def begin(self, position: int) -> None:
        """Add an unused position, which is at most one after the last."""
        if position == len(self._targets):
            self._targets[position] = self._sources[position] = b""

    def targets(self, position: int) -> Collection[int]:
        return Numbers("I", self._targets[position])

    def sources(self, position: int) -> Collection[int]:
        return self._many.get(position) or Numbers("I", self._sources[position])

    def replace(self, position: int, targets: Collection[int]) -> None:
        before, after = set(self.targets(position)), set(targets)
        if before == after:
            return
        self._targets[position] = Numbers("I", sorted(after)).tobytes()
        for target in after - before:
            self._add_source(target, position)
        for target in before - after:
            self._remove_source(target, position)

    def _add_source(self, position: int, source: int) -> None:
        if (many := self._many.get(position)) is not None:
            many.add(source)
            self._in_sets += 1
            return
        packed = Numbers("I", self._sources[position])
        packed.append(source)
        if len(packed) < MANY:
            self._sources[position] = packed.tobytes()
        else:
            self._many[position] = set(packed)
            self._in_sets += len(packed)
            self._sources[position] = b""

    def _remove_source(self, position: int, source: int) -> None:
        if (many := self._many.get(position)) is not None:
            many.remove(source)
            self._in_sets -= 1
            if not many:
                del self._many[position]
            return
        packed = Numbers("I", self._sources[position])
        packed.remove(source)
        self._sources[position] = packed.tobytes()

    @property
    def size(self) -> int:
        """The estimated size in bytes."""
        return self._targets.size + self._sources.size + self._in_sets * _SOURCE_BYTES
