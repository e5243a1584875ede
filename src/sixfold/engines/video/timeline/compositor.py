"""Composition of the clips of all tracks into frames."""

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
from sixfold.engines.video.timeline.compositing import CanvasFormat, CompositeLayer, Planes
from sixfold.engines.video.timeline.sprites import Sprite, SpriteBox

_VISIBLE = frozenset({"video", "image", "text"})


class Compositor:
    """Renders the frames of a project in order of time; only active clips are in memory."""

    def __init__(
        self,
        project: Project,
        tracks: Sequence[Sequence[ClipTiming]],
        size: tuple[int, int],
        canvas_format: CanvasFormat,
    ) -> None:
        self._project = project
        self._format = canvas_format
        self._tracks = [shots for shots in tracks if shots and shots[0].kind in _VISIBLE]
        red, green, blue, alpha = css_colors.rgba(project.background) or (0, 0, 0, 255)
        background = (round(red * alpha / 255), round(green * alpha / 255), round(blue * alpha / 255))
        self._background = canvas_format.fill(size, background)
        self._width = size[0]
        self._readers: dict[ClipTiming, VideoReader] = {}
        self._still: dict[ClipTiming, CompositeLayer] = {}
        self._moving: dict[ClipTiming, tuple[int, CompositeLayer]] = {}
        self._last: tuple[Any, Planes] | None = None

    def close(self) -> None:
        """Close all files."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()

    def frame(self, second: float) -> Planes:
        """Return the frame at a time; it is the same object if nothing has changed since the last call."""
        self._drop_ended(second)
        active = [[shot for shot in shots if shot.active(second)] for shots in self._tracks]
        state = tuple(self._state(shot, second) for shots in active for shot in shots)
        if self._last is not None and self._last[0] == state:
            return self._last[1]
        canvas = _copy(self._background)
        for shots in active:
            canvas = self._track(canvas, shots, second)
        self._last = (state, canvas)
        return canvas

    def _state(self, shot: ClipTiming, second: float) -> tuple[Any, ...]:
        frame = 0
        if shot.kind == "video":
            reader = self._reader(shot)
            reader.at(shot.source_second(second))
            frame = reader.count
        return shot.name, frame, round(float(shot.fade(second)), 4), shot.transition_progress(second)

    def _track(self, canvas: Planes, shots: list[ClipTiming], second: float) -> Planes:
        entering = {shot: share for shot in shots if (share := shot.transition_progress(second)) is not None}
        leaving = {shot.before for shot in entering}
        for shot in shots:
            if shot in entering:
                canvas = self._transition(canvas, shot, entering[shot], second)
            elif shot not in leaving:
                self._draw(canvas, shot, second)
        return canvas

    def _transition(self, canvas: Planes, shot: ClipTiming, share: float, second: float) -> Planes:
        before = shot.before
        kind = "" if shot.clip.transition is None else shot.clip.transition.type
        if kind == "slide":
            shift = 2 * round(share * self._width / 2)
            if before is not None:
                self._draw(canvas, before, second, -shift)
            self._draw(canvas, shot, second, self._width - shift)
            return canvas
        over = _copy(canvas)
        if before is not None:
            self._draw(canvas, before, second)
        self._draw(over, shot, second)
        return (
            compositing.wipe(canvas, over, share)
            if kind == "wipe"
            else compositing.crossfade(canvas, over, share)
        )

    def _draw(self, canvas: Planes, shot: ClipTiming, second: float, shift: int = 0) -> None:
        opacity = shot.clip.opacity * float(shot.fade(second))
        if opacity > 0:
            compositing.draw(self._format, canvas, self._layer(shot, second), opacity, shift)

    # -- layers of clips -----------------------------------------------------------------------------

    def _layer(self, shot: ClipTiming, second: float) -> CompositeLayer:
        if shot.kind == "video":
            return self._video_layer(shot, second)
        if shot not in self._still:
            self._still[shot] = self._format.layer(self._sprite(shot))
        return self._still[shot]

    def _sprite(self, shot: ClipTiming) -> Sprite:
        if shot.kind == "text":
            return text.of(shot.clip, self._project)
        box = sprites.box_of(shot.clip, self._project)
        longest = round(max(box.width, box.height)) * 2
        if shot.path is None:
            raise EngineError(f"{shot.place}: The image file is missing")
        try:
            image = decode.decode(shot.path, target=(longest, longest))
            return sprites.of_image(image.rgb, image.alpha, shot.clip, box)
        except EngineError as error:
            raise UnusableInput(f"{shot.place}: {error}") from error

    def _video_layer(self, shot: ClipTiming, second: float) -> CompositeLayer:
        reader = self._reader(shot)
        frame = reader.at(shot.source_second(second))
        cached = self._moving.get(shot)
        if cached is not None and cached[0] == reader.count:
            return cached[1]
        box = sprites.box_of(shot.clip, self._project)
        try:
            at = sprites.fit(reader.size(frame), box, shot.clip.fit)
        except UnusableInput as error:
            raise UnusableInput(f"{shot.place}: {error}") from error
        layer = self._direct_layer(reader, frame, at, box, shot)
        if layer is None:
            pixels = reader.pixels(frame, (round(at.width), round(at.height)))
            if pixels.shape[2] == 4:
                pixels = decoder.premultiply(pixels)
            layer = self._format.layer(sprites.place(pixels, at, box, shot.clip))
        self._moving[shot] = (reader.count, layer)
        return layer

    def _direct_layer(
        self, reader: VideoReader, frame: Any, at: SpriteBox, box: SpriteBox, shot: ClipTiming
    ) -> CompositeLayer | None:
        """Return the layer without conversion to RGB, or None if its format or position does not allow it."""
        left, top, width, height = sprites.visible(at, box, shot.clip.fit)
        size, corner = (round(at.width), round(at.height)), (round(at.left), round(at.top))
        if shot.clip.rotation % 360 or any(part & 1 for part in (left, top, width, height, *size, *corner)):
            return None
        planes = self._format.frame(reader, frame, size)
        if planes is None:
            return None
        return compositing.crop(self._format, CompositeLayer(planes, *corner), (left, top), (width, height))

    def _reader(self, shot: ClipTiming) -> VideoReader:
        if shot not in self._readers:
            if shot.path is None:
                raise EngineError(f"{shot.place}: The video file is missing")
            try:
                self._readers[shot] = reader = VideoReader(shot.path, shot.clip.trim_start)
                if reader.ends_before(shot.clip.trim_start):
                    raise UnusableInput(
                        f"trim_start must be before the end of the file (got {shot.clip.trim_start:g})"
                    )
            except EngineError as error:
                raise type(error)(f"{shot.place}: {error}") from error
        return self._readers[shot]

    def _drop_ended(self, second: float) -> None:
        for cache in (self._readers, self._still, self._moving):
            for shot in [shot for shot in cache if second >= shot.until]:
                if cache is self._readers:
                    self._readers[shot].close()
                del cache[shot]


def _copy(canvas: Planes) -> Planes:
    return tuple(plane.copy() for plane in canvas)
