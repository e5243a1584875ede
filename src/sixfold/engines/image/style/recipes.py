"""Which painter makes which named style."""

from __future__ import annotations

from collections.abc import Callable

from sixfold.engines.image.style import drawn, graded, painted, printed, tiled
from sixfold.engines.image.style.canvas import Canvas
from sixfold.engines.image.style.fields import Array

RECIPES: dict[str, Callable[[Canvas], Array]] = {
    "oil painting": painted.brushed("oil"),
    "impressionism": painted.brushed("impressionist"),
    "pointillism": painted.brushed("pointillism"),
    "van gogh": painted.brushed("van gogh"),
    "palette knife": painted.brushed("palette knife"),
    "gouache": painted.brushed("gouache"),
    "watercolor": painted.watercolour,
    "ink wash": painted.ink_wash,
    "pastel": painted.pastel,
    "embroidery": painted.embroidery,
    "pencil sketch": drawn.pencil,
    "colored pencil": drawn.coloured_pencil,
    "charcoal": drawn.charcoal,
    "chalkboard": drawn.chalkboard,
    "engraving": drawn.engraving,
    "comic book": drawn.comic,
    "manga": drawn.manga,
    "anime": drawn.anime,
    "blueprint": drawn.blueprint,
    "pop art": printed.pop_art,
    "risograph": printed.risograph,
    "ukiyo-e": printed.ukiyo_e,
    "linocut": printed.linocut,
    "paper cut": printed.paper_cut,
    "mosaic": tiled.mosaic,
    "stained glass": tiled.stained_glass,
    "low poly": tiled.low_poly,
    "pixel art": tiled.pixel_art,
    "cross-stitch": tiled.cross_stitch,
    "cubism": tiled.cubism,
    "noir": graded.noir,
    "vintage": graded.vintage,
    "cyberpunk": graded.cyberpunk,
    "vaporwave": graded.vaporwave,
    "hdr": graded.hdr,
    "dreamy": graded.dream,
    "infrared": graded.infrared,
}
