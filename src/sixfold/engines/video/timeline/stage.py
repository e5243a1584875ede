"""The picture at a second: every track's clips, one over the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sixfold.core.work import colours
from sixfold.core.work.engines import EngineError, UnusableInput
from sixfold.core.work.timeline import Project
from sixfold.engines.image import decode
from sixfold.engines.video import reading
from sixfold.engines.video.reading import Reel
from sixfold.engines.video.timeline import lettering, sprites
from sixfold.engines.video.timeline.shots import Shot
from sixfold.engines.video.timeline.sprites import Sprite

Array = NDArray[Any]

_SEEN = frozenset({"video", "image", "text"})


class Stage:
    """Paints a project, second by second, in the order of time; only clips that are on lie in memory."""

    def __init__(self, project: Project, tracks: Sequence[Sequence[Shot]], size: tuple[int, int]) -> None:
        self._project = project
        self._tracks = [shots for shots in tracks if shots and shots[0].kind in _SEEN]
        red, green, blue, cover = colours.rgba(project.background) or (0, 0, 0, 255)
        ground = [round(part * cover / 255) for part in (red, green, blue)]
        self._ground = np.full((size[1], size[0], 3), ground, np.uint8)
        self._reels: dict[Shot, Reel] = {}
        self._still: dict[Shot, Sprite] = {}
        self._moving: dict[Shot, tuple[int, Sprite]] = {}
        self._last: tuple[Any, Array] | None = None

    def close(self) -> None:
        """Let go of every file."""
        for reel in self._reels.values():
            reel.close()
        self._reels.clear()

    def picture(self, second: float) -> Array:
        """The frame at a second, in RGB; the very same one where nothing has changed."""
        self._forget(second)
        on = [[shot for shot in shots if shot.on(second)] for shots in self._tracks]
        seen = tuple(self._state(shot, second) for shots in on for shot in shots)
        if self._last is not None and self._last[0] == seen:
            return self._last[1]
        canvas = self._ground.copy()
        for shots in on:
            canvas = self._track(canvas, shots, second)
        self._last = (seen, canvas)
        return canvas

    def _state(self, shot: Shot, second: float) -> tuple[Any, ...]:
        """What decides how a clip looks now."""
        frame = 0
        if shot.kind == "video":
            reel = self._reel(shot)
            reel.at(shot.source_second(second))
            frame = reel.count
        return shot.name, frame, round(float(shot.faded(second)), 4), shot.coming(second)

    def _track(self, canvas: Array, shots: list[Shot], second: float) -> Array:
        coming = {shot: share for shot in shots if (share := shot.coming(second)) is not None}
        leaving = {shot.before for shot in coming}
        for shot in shots:
            if shot in coming:
                canvas = self._handed_over(canvas, shot, coming[shot], second)
            elif shot not in leaving:
                self._lay(canvas, shot, second)
        return canvas

    def _handed_over(self, canvas: Array, shot: Shot, share: float, second: float) -> Array:
        before = shot.before
        kind = "" if shot.clip.transition is None else shot.clip.transition.type
        if kind == "slide":
            width = canvas.shape[1]
            gone = round(share * width)
            if before is not None:
                self._lay(canvas, before, second, -gone)
            self._lay(canvas, shot, second, width - gone)
            return canvas
        over = canvas.copy()
        if before is not None:
            self._lay(canvas, before, second)
        self._lay(over, shot, second)
        return sprites.wiped(canvas, over, share) if kind == "wipe" else sprites.mixed(canvas, over, share)

    def _lay(self, canvas: Array, shot: Shot, second: float, shift: int = 0) -> None:
        opacity = shot.clip.opacity * float(shot.faded(second))
        if opacity > 0:
            sprites.lay(canvas, self._sprite(shot, second), opacity, shift)

    # -- what each clip shows ------------------------------------------------------------------------

    def _sprite(self, shot: Shot, second: float) -> Sprite:
        if shot.kind == "video":
            return self._frame(shot, second)
        if shot not in self._still:
            self._still[shot] = self._made(shot)
        return self._still[shot]

    def _made(self, shot: Shot) -> Sprite:
        if shot.kind == "text":
            return lettering.of(shot.clip, self._project)
        box = sprites.box_of(shot.clip, self._project)
        longest = round(max(box.width, box.height)) * 2
        if shot.path is None:
            raise EngineError(f"{shot.place}: The picture is missing")
        try:
            picture = decode.decode(shot.path, target=(longest, longest))
            return sprites.of_picture(picture.rgb, picture.alpha, shot.clip, box)
        except EngineError as error:
            raise UnusableInput(f"{shot.place}: {error}") from error

    def _frame(self, shot: Shot, second: float) -> Sprite:
        reel = self._reel(shot)
        frame = reel.at(shot.source_second(second))
        kept = self._moving.get(shot)
        if kept is not None and kept[0] == reel.count:
            return kept[1]
        box = sprites.box_of(shot.clip, self._project)
        try:
            at = sprites.fitted(reel.size(frame), box, shot.clip.fit)
        except UnusableInput as error:
            raise UnusableInput(f"{shot.place}: {error}") from error
        pixels = reel.pixels(frame, (round(at.width), round(at.height)))
        if pixels.shape[2] == 4:
            pixels = reading.premultiplied(pixels)
        found = sprites.placed(pixels, at, box, shot.clip)
        self._moving[shot] = (reel.count, found)
        return found

    def _reel(self, shot: Shot) -> Reel:
        if shot not in self._reels:
            if shot.path is None:
                raise EngineError(f"{shot.place}: The film is missing")
            try:
                self._reels[shot] = Reel(shot.path, shot.clip.trim_start)
            except EngineError as error:
                raise type(error)(f"{shot.place}: {error}") from error
        return self._reels[shot]

    def _forget(self, second: float) -> None:
        """Let go of what is over."""
        for kept in (self._reels, self._still, self._moving):
            for shot in [shot for shot in kept if second >= shot.until]:
                if kept is self._reels:
                    self._reels[shot].close()
                del kept[shot]
