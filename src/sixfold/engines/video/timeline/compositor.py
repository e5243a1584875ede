"""The picture at a second: every track's clips, one over the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sixfold.core.catalog import css_colors
from sixfold.core.catalog.engines import EngineError, UnusableInput
from sixfold.core.catalog.timeline import Project
from sixfold.engines.image import decode
from sixfold.engines.video import decoder
from sixfold.engines.video.decoder import VideoReader
from sixfold.engines.video.timeline import compositing, sprites, text
from sixfold.engines.video.timeline.clip_timing import ClipTiming
from sixfold.engines.video.timeline.compositing import CompositeCanvas, CompositeLayer, Sheets
from sixfold.engines.video.timeline.sprites import Sprite, SpriteBox

_SEEN = frozenset({"video", "image", "text"})


class Compositor:
    """Paints a project, second by second, in the order of time; only clips that are on lie in memory."""

    def __init__(
        self,
        project: Project,
        tracks: Sequence[Sequence[ClipTiming]],
        size: tuple[int, int],
        paper: CompositeCanvas,
    ) -> None:
        self._project = project
        self._paper = paper
        self._tracks = [shots for shots in tracks if shots and shots[0].kind in _SEEN]
        red, green, blue, cover = css_colors.rgba(project.background) or (0, 0, 0, 255)
        ground = (round(red * cover / 255), round(green * cover / 255), round(blue * cover / 255))
        self._ground = paper.ground(size, ground)
        self._width = size[0]
        self._reels: dict[ClipTiming, VideoReader] = {}
        self._still: dict[ClipTiming, CompositeLayer] = {}
        self._moving: dict[ClipTiming, tuple[int, CompositeLayer]] = {}
        self._last: tuple[Any, Sheets] | None = None

    def close(self) -> None:
        """Let go of every file."""
        for reel in self._reels.values():
            reel.close()
        self._reels.clear()

    def picture(self, second: float) -> Sheets:
        """The frame at a second; the very same one where nothing has changed."""
        self._forget(second)
        on = [[shot for shot in shots if shot.on(second)] for shots in self._tracks]
        seen = tuple(self._state(shot, second) for shots in on for shot in shots)
        if self._last is not None and self._last[0] == seen:
            return self._last[1]
        canvas = _copied(self._ground)
        for shots in on:
            canvas = self._track(canvas, shots, second)
        self._last = (seen, canvas)
        return canvas

    def _state(self, shot: ClipTiming, second: float) -> tuple[Any, ...]:
        """What decides how a clip looks now."""
        frame = 0
        if shot.kind == "video":
            reel = self._reel(shot)
            reel.at(shot.source_second(second))
            frame = reel.count
        return shot.name, frame, round(float(shot.faded(second)), 4), shot.coming(second)

    def _track(self, canvas: Sheets, shots: list[ClipTiming], second: float) -> Sheets:
        coming = {shot: share for shot in shots if (share := shot.coming(second)) is not None}
        leaving = {shot.before for shot in coming}
        for shot in shots:
            if shot in coming:
                canvas = self._handed_over(canvas, shot, coming[shot], second)
            elif shot not in leaving:
                self._lay(canvas, shot, second)
        return canvas

    def _handed_over(self, canvas: Sheets, shot: ClipTiming, share: float, second: float) -> Sheets:
        before = shot.before
        kind = "" if shot.clip.transition is None else shot.clip.transition.type
        if kind == "slide":
            gone = 2 * round(share * self._width / 2)
            if before is not None:
                self._lay(canvas, before, second, -gone)
            self._lay(canvas, shot, second, self._width - gone)
            return canvas
        over = _copied(canvas)
        if before is not None:
            self._lay(canvas, before, second)
        self._lay(over, shot, second)
        return (
            compositing.wiped(canvas, over, share)
            if kind == "wipe"
            else compositing.mixed(canvas, over, share)
        )

    def _lay(self, canvas: Sheets, shot: ClipTiming, second: float, shift: int = 0) -> None:
        opacity = shot.clip.opacity * float(shot.faded(second))
        if opacity > 0:
            compositing.lay(self._paper, canvas, self._layer(shot, second), opacity, shift)

    # -- what each clip shows ------------------------------------------------------------------------

    def _layer(self, shot: ClipTiming, second: float) -> CompositeLayer:
        if shot.kind == "video":
            return self._frame(shot, second)
        if shot not in self._still:
            self._still[shot] = self._paper.layer(self._made(shot))
        return self._still[shot]

    def _made(self, shot: ClipTiming) -> Sprite:
        if shot.kind == "text":
            return text.of(shot.clip, self._project)
        box = sprites.box_of(shot.clip, self._project)
        longest = round(max(box.width, box.height)) * 2
        if shot.path is None:
            raise EngineError(f"{shot.place}: The picture is missing")
        try:
            picture = decode.decode(shot.path, target=(longest, longest))
            return sprites.of_picture(picture.rgb, picture.alpha, shot.clip, box)
        except EngineError as error:
            raise UnusableInput(f"{shot.place}: {error}") from error

    def _frame(self, shot: ClipTiming, second: float) -> CompositeLayer:
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
        found = self._as_it_is(reel, frame, at, box, shot)
        if found is None:
            pixels = reel.pixels(frame, (round(at.width), round(at.height)))
            if pixels.shape[2] == 4:
                pixels = decoder.premultiplied(pixels)
            found = self._paper.layer(sprites.placed(pixels, at, box, shot.clip))
        self._moving[shot] = (reel.count, found)
        return found

    def _as_it_is(
        self, reel: VideoReader, frame: Any, at: SpriteBox, box: SpriteBox, shot: ClipTiming
    ) -> CompositeLayer | None:
        """A frame that needs no way by RGB: made as the paper is, begun and ended where its colours are."""
        left, top, width, height = sprites.seen(at, box, shot.clip.fit)
        size, corner = (round(at.width), round(at.height)), (round(at.left), round(at.top))
        if shot.clip.rotation % 360 or any(part & 1 for part in (left, top, width, height, *size, *corner)):
            return None
        found = self._paper.frame(reel, frame, size)
        if found is None:
            return None
        return compositing.cut(self._paper, CompositeLayer(found, *corner), (left, top), (width, height))

    def _reel(self, shot: ClipTiming) -> VideoReader:
        if shot not in self._reels:
            if shot.path is None:
                raise EngineError(f"{shot.place}: The film is missing")
            try:
                self._reels[shot] = reel = VideoReader(shot.path, shot.clip.trim_start)
                if reel.over(shot.clip.trim_start):
                    raise UnusableInput("trim_start is beyond its end")
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


def _copied(canvas: Sheets) -> Sheets:
    return tuple(sheet.copy() for sheet in canvas)
