"""The stage: one image being painted, with its layout, palette and planes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from sixfold.engines.image.scene.canvas import Color, Image, over
from sixfold.engines.image.scene.noise import stream
from sixfold.engines.image.scene.palette import Palette
from sixfold.engines.image.scene.prompt_parser import ParsedScene


@dataclass(frozen=True, slots=True)
class StageLayout:
    """Where things go, as shares of the width and height."""

    horizon: float
    light: tuple[float, float]
    subject_x: float
    flip: bool


@dataclass(slots=True)
class SceneStage:
    """`image` is float RGB, `depth` 0 near to 1 far; `unit` is a hundredth of the short side."""

    scene: ParsedScene
    look: str
    time: str
    weather: str
    place: str
    palette: Palette
    layout: StageLayout
    image: Image
    depth: Image
    seed: int
    step: Callable[[str], None]
    water: Image | None = None
    ground: float = 0.92
    notes: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def height(self) -> int:
        """Rows."""
        return int(self.image.shape[0])

    @property
    def width(self) -> int:
        """Columns."""
        return int(self.image.shape[1])

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.height, self.width

    @property
    def unit(self) -> float:
        """A hundredth of the short side, in pixels."""
        return min(self.shape) / 100

    @property
    def horizon(self) -> float:
        """The horizon's row."""
        return self.layout.horizon * self.height

    @property
    def light_at(self) -> tuple[float, float]:
        """The sun's or moon's place in pixels (x, y)."""
        return self.layout.light[0] * self.width, self.layout.light[1] * self.height

    def rng(self, name: str) -> np.random.Generator:
        """A random stream for one layer, independent of the others."""
        return stream(self.seed, name)

    def lay(self, paint: Image | Color, alpha: Image, depth: float, top: int = 0) -> None:
        """Paint a layer at `depth` from row `top` downwards, and note its depth."""
        rows = slice(top, top + alpha.shape[0])
        over(self.image[rows], paint, alpha)
        plane = self.depth[rows]
        plane += (np.float32(depth) - plane) * alpha

    def far(self, color: Color, depth: float) -> Color:
        """`color` seen through `depth` of air."""
        amount = np.float32(min(0.94, depth * depth * 0.62 + depth * 0.26))
        return (color + (self.palette.haze - color) * amount).astype(np.float32)
