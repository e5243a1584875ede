"""Links between places in both directions."""

from __future__ import annotations

from collections.abc import Collection

from sixfold.store.search.strings import BytesColumn, Numbers

_MANY = 64  # number of sources above which they are a set, because packed ones are copied on each change
_SOURCE_BYTES = 60  # of a set


class LinkTable:
    """The targets and sources of each place, with four bytes for each link."""

    def __init__(self) -> None:
        self._targets = BytesColumn()
        self._sources = BytesColumn()
        self._many: dict[int, set[int]] = {}
        self._in_sets = 0

    def begin(self, place: int) -> None:
        """Add an unused place, which is at most one after the last."""
        if place == len(self._targets):
            self._targets[place] = self._sources[place] = b""

    def targets(self, place: int) -> Collection[int]:
        return Numbers("I", self._targets[place])

    def sources(self, place: int) -> Collection[int]:
        return self._many.get(place) or Numbers("I", self._sources[place])

    def replace(self, place: int, targets: Collection[int]) -> None:
        before, after = set(self.targets(place)), set(targets)
        if before == after:
            return
        self._targets[place] = Numbers("I", sorted(after)).tobytes()
        for target in after - before:
            self._add_source(target, place)
        for target in before - after:
            self._remove_source(target, place)

    def _add_source(self, place: int, source: int) -> None:
        if (many := self._many.get(place)) is not None:
            many.add(source)
            self._in_sets += 1
            return
        packed = Numbers("I", self._sources[place])
        packed.append(source)
        if len(packed) < _MANY:
            self._sources[place] = packed.tobytes()
        else:
            self._many[place] = set(packed)
            self._in_sets += len(packed)
            self._sources[place] = b""

    def _remove_source(self, place: int, source: int) -> None:
        if (many := self._many.get(place)) is not None:
            many.remove(source)
            self._in_sets -= 1
            if not many:
                del self._many[place]
            return
        packed = Numbers("I", self._sources[place])
        packed.remove(source)
        self._sources[place] = packed.tobytes()

    @property
    def size(self) -> int:
        """The estimated size in bytes."""
        return self._targets.size + self._sources.size + self._in_sets * _SOURCE_BYTES
