"""Which painter makes which named style."""

from __future__ import annotations

from collections.abc import Callable

from sixfold.engines.image.styles import drawing, grading, mosaic, painting, print_styles
from sixfold.engines.image.styles.canvas import Canvas
from sixfold.engines.image.styles.textures import Array

RECIPES: dict[str, Callable[[Canvas], Array]] = {
    "oil painting": painting.brushed("oil"),
    "impressionism": painting.brushed("impressionist"),
    "pointillism": painting.brushed("pointillism"),
    "van gogh": painting.brushed("van gogh"),
    "palette knife": painting.brushed("palette knife"),
    "gouache": painting.brushed("gouache"),
    "watercolor": painting.watercolor,
    "ink wash": painting.ink_wash,
    "pastel": painting.pastel,
    "embroidery": painting.embroidery,
    "pencil sketch": drawing.pencil,
    "colored pencil": drawing.colored_pencil,
    "charcoal": drawing.charcoal,
    "chalkboard": drawing.chalkboard,
    "engraving": drawing.engraving,
    "comic book": drawing.comic,
    "manga": drawing.manga,
    "anime": drawing.anime,
    "blueprint": drawing.blueprint,
    "pop art": print_styles.pop_art,
    "risograph": print_styles.risograph,
    "ukiyo-e": print_styles.ukiyo_e,
    "linocut": print_styles.linocut,
    "paper cut": print_styles.paper_cut,
    "mosaic": mosaic.mosaic,
    "stained glass": mosaic.stained_glass,
    "low poly": mosaic.low_poly,
    "pixel art": mosaic.pixel_art,
    "cross-stitch": mosaic.cross_stitch,
    "cubism": mosaic.cubism,
    "noir": grading.noir,
    "vintage": grading.vintage,
    "cyberpunk": grading.cyberpunk,
    "vaporwave": grading.vaporwave,
    "hdr": grading.hdr,
    "dreamy": grading.dream,
    "infrared": grading.infrared,
}
