"""Named styles and their synonyms, in a module without imports of image libraries."""

from __future__ import annotations

import difflib
import itertools
import re

# Maps canonical names to synonyms.
SYNONYMS: dict[str, tuple[str, ...]] = {
    "oil painting": (
        "oil",
        "oils",
        "oil paint",
        "oil on canvas",
        "classical painting",
        "renaissance painting",
    ),
    "impressionism": ("impressionist", "impressionistic", "monet", "claude monet", "impressionist painting"),
    "pointillism": ("pointillist", "seurat", "dots of paint", "divisionism"),
    "van gogh": ("vincent van gogh", "starry night", "the starry night", "swirling", "post impressionism"),
    "palette knife": ("impasto", "knife painting", "thick paint"),
    "gouache": ("tempera", "poster paint", "acrylic", "acrylic painting", "storybook", "matte painting"),
    "watercolor": ("watercolour", "water color", "water colour", "aquarelle", "watercolor painting"),
    "ink wash": ("sumi e", "sumie", "ink painting", "chinese ink", "brush ink", "wash drawing"),
    "pastel": ("pastels", "soft pastel", "chalk pastel", "pastel drawing", "degas"),
    "embroidery": ("embroidered", "needlepoint", "thread painting", "satin stitch"),
    "pencil sketch": ("pencil", "sketch", "pencil drawing", "graphite", "drawing", "line drawing"),
    "colored pencil": ("coloured pencil", "color pencil", "crayon", "crayons", "colored pencils"),
    "charcoal": ("charcoal drawing", "charcoal sketch"),
    "chalkboard": ("chalk", "chalk drawing", "blackboard"),
    "engraving": ("etching", "banknote", "engraved", "crosshatch", "cross hatching", "crosshatching"),
    "comic book": ("comic", "comics", "comic art", "graphic novel", "cartoon", "marvel"),
    "manga": ("screentone", "black and white manga"),
    "anime": ("cel", "cel shading", "cel shaded", "ghibli", "studio ghibli", "japanese animation"),
    "blueprint": ("technical drawing", "cyanotype", "schematic"),
    "pop art": ("warhol", "andy warhol", "lichtenstein", "halftone", "silkscreen", "screen print"),
    "risograph": ("riso", "riso print", "misprint"),
    "ukiyo-e": ("ukiyoe", "woodblock", "japanese woodblock", "woodblock print", "hokusai"),
    "linocut": ("lino", "lino print", "woodcut", "block print", "linoleum"),
    "paper cut": ("papercut", "paper cutout", "cut paper", "papercraft", "layered paper", "paper craft"),
    "mosaic": ("roman mosaic", "tiles", "tesserae", "byzantine"),
    "stained glass": ("stained glass window", "leaded glass", "cathedral window", "tiffany"),
    "low poly": ("lowpoly", "polygonal", "low polygon", "triangles", "geometric"),
    "pixel art": ("pixel", "pixels", "8 bit", "8bit", "16 bit", "retro game", "pixelated", "sprite"),
    "cross-stitch": ("crossstitch", "counted cross stitch"),
    "cubism": ("cubist", "picasso", "braque", "analytic cubism"),
    "noir": ("film noir", "black and white", "monochrome", "black and white film", "b w"),
    "vintage": (
        "sepia",
        "vintage film",
        "old photo",
        "old photograph",
        "antique",
        "daguerreotype",
        "retro photo",
    ),
    "cyberpunk": ("neon", "neon lights", "blade runner", "synthpunk", "neon noir"),
    "vaporwave": ("synthwave", "retrowave", "outrun", "80s", "eighties"),
    "hdr": ("dramatic", "high dynamic range", "hyperreal", "cinematic"),
    "dreamy": ("dream", "soft focus", "ethereal", "golden hour glow", "film glow", "romantic"),
    "infrared": ("infrared film", "aerochrome", "infra red"),
}
NAMED_STYLES: tuple[str, ...] = tuple(SYNONYMS)
# Styles and artists without a renderer, by the most similar named style.
RELATED: dict[str, tuple[str, ...]] = {
    "oil painting": (
        *("baroque", "rococo", "renaissance", "neoclassical", "romanticism", "realism", "surrealism"),
        *("surrealist", "surreal", "dali", "rembrandt", "caravaggio", "vermeer", "leonardo", "da vinci"),
    ),
    "impressionism": ("renoir", "manet", "plein air"),
    "van gogh": ("expressionism", "expressionist", "post impressionist", "munch"),
    "palette knife": ("abstract expressionism", "pollock"),
    "ink wash": ("ink", "calligraphy"),
    "gouache": ("fauvism", "fauvist", "folk art", "naive art", "childrens book"),
    "pencil sketch": ("line art", "lineart", "doodle", "sketchy"),
    "engraving": ("durer", "dürer", "medieval", "gustave dore"),
    "comic book": ("caricature", "superhero", "tintin", "ligne claire"),
    "anime": ("chibi", "shonen"),
    "blueprint": ("wireframe", "cad"),
    "pop art": ("graffiti", "street art", "banksy", "basquiat", "keith haring"),
    "risograph": ("art deco", "poster", "screenprint"),
    "ukiyo-e": ("hiroshige", "japanese print"),
    "paper cut": ("collage", "origami", "quilling", "flat design", "matisse"),
    "embroidery": ("knitted", "crochet", "tapestry", "quilt", "textile"),
    "mosaic": ("klimt", "gaudi"),
    "stained glass": ("art nouveau", "mucha"),
    "pixel art": ("minecraft", "lego", "voxel"),
    "cubism": ("futurism", "constructivism", "suprematism", "bauhaus", "kandinsky", "abstract"),
    "vintage": ("steampunk", "victorian", "polaroid", "retro", "nostalgic"),
    "cyberpunk": ("sci fi", "futuristic", "tron"),
    "hdr": ("photorealistic", "photorealism", "hyperrealistic", "realistic"),
}

_FRAME = re.compile(
    r"^(?:please )?(?:(?:re)?(?:draw|paint|render|make|turn|convert)(?: (?:it|this))?(?: (?:as|into|to|in))?"
    r"(?: an?| the)? |as an? |as |an? |in (?:the |an? )?)?(?:style of |styled? (?:like|as) )?(?:the |an? )?"
)
_TAIL = re.compile(r" (?:art|artwork|style|effect|look|filter|version)$")


def normalize(text: str) -> str:
    """Return `text` in lower case, with each run of characters other than letters and digits as one space."""
    return " ".join(re.findall(r"\w+", text.casefold()))


LOOKUP: dict[str, str] = {
    normalize(alias): name for name, aliases in SYNONYMS.items() for alias in (name, *aliases)
}
# The shortest word whose misspelling is recognized, and the longest prompt in words.
_MIN_LETTERS, _MAX_WORDS = 5, 8
_SIMILAR = 0.8
# Names that differ by one letter from common words.
_AMBIGUOUS = frozenset({"marvel", "tiles", "degas", "sepia"})


def nearest(text: str) -> tuple[str, str] | None:
    """Return the style to use for a normalized prompt without a named style, and the words for it, or None.

    The words name a related style or misspell a style; misspellings are recognized in prompts of at most
    eight words.
    """
    for style, words in RELATED.items():
        match = re.search(rf"\b(?:{'|'.join(words)})\b", text)
        if match:
            return style, match[0]
    words = text.split()
    if len(words) > _MAX_WORDS:
        return None
    pairs = [*map(" ".join, itertools.pairwise(words)), *words]
    for candidate in pairs:
        aliases = [alias for alias in LOOKUP if alias[0] == candidate[0] and alias not in _AMBIGUOUS]
        aliases = [alias for alias in aliases if alias.count(" ") == candidate.count(" ")]
        similar = difflib.get_close_matches(candidate, aliases, 1, _SIMILAR)
        if len(candidate) >= _MIN_LETTERS and similar:
            return LOOKUP[similar[0]], candidate
    return None


def find_style(prompt: str) -> str | None:
    """Return the canonical name of the style if the prompt only names a style, else None."""
    text = normalize(prompt)
    while text:
        for candidate in (text, _FRAME.sub("", text)):
            if candidate in LOOKUP:
                return LOOKUP[candidate]
        # Only one suffix is removed at a time: "pop art style" must become "pop art", not "pop".
        shorter = _TAIL.sub("", text)
        if shorter == text:
            break
        text = shorter
    return None
