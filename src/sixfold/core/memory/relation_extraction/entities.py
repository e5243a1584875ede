"""Names in sentences: the spans that may be the name of a page, and the keys that look up pages.

Before pattern matching, a sentence is *masked*: each name and each date is replaced by one private character,
so that a pattern sees `<name> works at <name>`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from sixfold.core.input_limits.normalization import normalized
from sixfold.core.memory.relation_extraction import dates

# The private characters that replace mentions.
NAME_0, NAME_END = 0xE000, 0xEFFF
DATE_0, DATE_END = 0xF000, 0xF7FF
# Replaces a quotation.
QUOTATION = "\uf8f0"
# Maximum number per sentence.
MAX_MENTIONS = 200


def words(line: str) -> frozenset[str]:
    return frozenset(line.replace(",", " ").split())


_UPPER = "".join(
    chr(code)
    for code in (*range(0x41, 0x250), *range(0x370, 0x530), *range(0x1E00, 0x1F00))
    if chr(code).isupper()
)
_WORD = re.compile(
    rf"(?<![\w'’@#/.-])[{_UPPER}](?:[\w+]|[-./&](?=\w)(?!based\b|born\b)|['’](?!s\b)(?=\w))*"
    rf"(?:(?<=\b[{_UPPER}])\.(?=[ \n]))?"
)
_NUMBER = re.compile(r"\d{1,4}(?:\.\d{1,3})*(?![\w%.,:]*[\w%])")
_GAP = re.compile(
    r"(?:\.?[ \n]+|\s*&\s*"
    r"|[ \n]+(?:de|del|van|von|der|den|la|le|al|bin|da|do|dos|du|di)(?:[ \n]+(?:la|der|den))?[ \n]+)"
)
_OF = re.compile(r"[ \n]+of[ \n]+(?:the[ \n]+)?")
_MARKED = re.compile(
    r"!?\[\[(?P<slug>[^\]|#\n]{1,200})(?:#[^\]|\n]*)?(?:\|(?P<said>[^\]\n]{0,200}))?\]\]"
    r"|!\[[^\]\n]*\]\([^)\n]*\)"
    r"|\[(?P<text>[^\]\n]{1,200})\]\([^)\n]{0,500}\)"
    r"|`(?P<code>[^`\n]{1,100})`"
    r"|(?P<address><?https?://[^\s>)]+>?|<[a-zA-Z/!][^<>\n]{0,300}>)"
    r"|“(?P<curly>[^”\n]{1,400})”|(?<!\w)\"(?P<straight>[^\"\n]{1,400})\"(?!\w)"
    r"|(?P<stress>\*{1,3}|(?<!\w)_{1,3}|_{1,3}(?!\w)|~~[^~\n]{1,300}~~)"
)
_MARKS = frozenset('[*_`"“<~') | {":"}
_IDENTIFIER = re.compile(r"(?<![\w/@.-])[a-z][a-z0-9]{0,40}(?:[-_.][a-z0-9]{1,40}){1,5}(?![\w/@-])")
_OF_HEADS = words(
    "university bank ministry department institute house museum church college school state city"
    " board republic kingdom academy council chamber guild friends order library isle cape bay"
    " hospital court office"
)
_HONORIFICS = frozenset({"dr", "mr", "mrs", "ms", "prof", "sir", "dame", "lord", "lady", "professor"})
_OFFICES = words(
    "CEO CTO CFO COO CMO VP SVP President Director Chairman Chairwoman Founder Co-founder Co-Founder"
    " Professor"
)
_BEFORE_NAMES = _HONORIFICS | {"the", "project"}
_LEGAL = re.compile(
    r"(?:,? (?:inc|ltd|llc|gmbh|corp|corporation|plc|limited|incorporated|sa|ag|bv|oy|ab|as))+$"
)
_SPLIT = re.compile(r"[\s\-_/–]+")
_DROPPED = re.compile(r"[.'’\"“”*`,()]+")
# A longer quotation is speech; a shorter one may be a title.
_LAST_QUOTED_WORDS = 6
_MAY_BE_A_DATE = re.compile(
    r"\d|day\b|(?:last|this|Last|This) [wmy]"
    r"|\b(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)\b"
)


class EntityMention(msgspec.Struct, frozen=True):
    """A span that may be the name of a page; `key` begins with `/` if a link contains the slug itself.

    `sure` means that the author marked it as a name by a link, code or a quoted title. `first` means that it
    begins its sentence, where a capital letter is not evidence of a name.
    """

    text: str
    key: str
    sure: bool = False
    first: bool = False


class MaskedText(msgspec.Struct):
    """A sentence in lower case whose names and dates are single characters."""

    text: str
    mentions: list[EntityMention] = []
    moments: list[str] = []

    def mention(self, character: str) -> EntityMention:
        return self.mentions[ord(character) - NAME_0]

    def add(self, mention: EntityMention) -> str:
        self.mentions.append(mention)
        return chr(NAME_0 + len(self.mentions) - 1)


class Vocabulary(msgspec.Struct, frozen=True):
    """Capitalized words that are not names."""

    not_names: frozenset[str]
    common: frozenset[str]
    roles: frozenset[str]
    verbs: frozenset[str]


@lru_cache(maxsize=8192)
def key(name: str) -> str:
    """Return the key that all spellings of a name share.

    It ignores case, hyphens, honorifics and legal forms.
    """
    text = normalized("NFKC", name).casefold()
    text = _DROPPED.sub(lambda match: "" if match[0].strip(",()") else " ", text)
    words = [word for word in _SPLIT.split(text) if word]
    while len(words) > 1 and words[0] in _BEFORE_NAMES:
        words = words[1:]
    return _LEGAL.sub("", " ".join(words))


def slug_key(slug: str) -> str:
    """Return the key of a page for its complete slug."""
    return "/" + slug.strip().casefold().replace(" ", "-")


def is_mention(character: str) -> bool:
    """Return whether a character of a masked sentence represents a name."""
    return NAME_0 <= ord(character) <= NAME_END


def identifiers(body: str) -> set[str]:
    """Return words in lower case that look like identifiers, such as `billing-service` and `auth_v2`."""
    return set(_IDENTIFIER.findall(body))


def is_plain(sentence: str, words: Vocabulary) -> bool:
    """Return whether a sentence has neither marks nor capitals after its first word, and thus no names."""
    if not sentence[1:].islower() or not _MARKS.isdisjoint(sentence):
        return False
    first = sentence.split(None, 1)[0].lower()
    return first in words.not_names or first in words.common


def mask(sentence: str, words: Vocabulary, known: Iterable[str] = (), base: str | None = "") -> MaskedText:
    """Mask the names in a sentence, and the identifiers in `known`.

    Dates refer to the moment `base`; None skips them.
    """
    masked = MaskedText("")
    text = sentence.replace("\n", " ")
    if not _MARKS.isdisjoint(text):
        text = _MARKED.sub(lambda match: _marked(match, masked), text)
    if base is not None and _MAY_BE_A_DATE.search(text):
        text = _mask_dates(text, base, masked)
    pieces: list[str] = []
    end = 0
    for first, last in _spans(text, words):
        if len(masked.mentions) >= MAX_MENTIONS:
            break
        name = text[first:last]
        pieces += (text[end:first], masked.add(EntityMention(name, key(name), first=_opens(text, first))))
        end = last
    text = "".join((*pieces, text[end:]))
    for name in known:
        if name in text:
            text = re.sub(
                rf"(?<![\w/@.-]){re.escape(name)}(?![\w/@-])",
                masked.add(EntityMention(name, key(name), sure=True)),
                text,
            )
    lowered = text.lower()
    masked.text = lowered if len(lowered) == len(text) else text
    return masked


def _marked(match: re.Match[str], masked: MaskedText) -> str:
    """Return the replacement of a link, code, quotation or emphasis."""
    groups = match.groupdict()
    if len(masked.mentions) >= MAX_MENTIONS:
        return " "
    if groups["slug"]:
        if "::" in groups["slug"]:
            # A typed link is already explicit.
            return " "
        slug = groups["slug"].strip()
        name_key = slug_key(slug) if "/" in slug else key(slug)
        return masked.add(EntityMention(groups["said"] or slug.rpartition("/")[2], name_key, sure=True))
    if groups["code"]:
        return masked.add(EntityMention(groups["code"], key(groups["code"]), sure=True))
    if groups["text"]:
        return str(groups["text"])
    quoted = groups["curly"] or groups["straight"]
    if quoted:
        bare = quoted.rstrip(".,;!?")
        if len(bare.split()) <= _LAST_QUOTED_WORDS and bare[:1].isupper():
            return masked.add(EntityMention(bare, key(bare), sure=True)) + quoted[len(bare) :]
        return QUOTATION
    return "" if groups["stress"] and groups["stress"][0] != "~" else " "


def _mask_dates(text: str, base: str, masked: MaskedText) -> str:
    pieces: list[str] = []
    end = 0
    for date in dates.find(text, base):
        if len(masked.moments) >= MAX_MENTIONS:
            break
        lead = len(text[date.start : date.end]) - len(_without_lead(text[date.start : date.end]))
        pieces += (text[end : date.start + lead], chr(DATE_0 + len(masked.moments)))
        masked.moments.append(date.moment)
        end = date.end
    return "".join((*pieces, text[end:])) if pieces else text


def _without_lead(date: str) -> str:
    word, space, remainder = date.partition(" ")
    return remainder if space and word.lower() in {"in", "since", "during", "by", "until", "on"} else date


def _spans(text: str, words: Vocabulary) -> list[tuple[int, int]]:
    """Return the spans of names: runs of capitalized words without adjacent roles and function words."""
    runs: list[list[re.Match[str]]] = []
    for match in _WORD.finditer(text):
        if runs and match[0] not in _OFFICES and _joined(text, runs[-1][-1], match):
            runs[-1].append(match)
        else:
            runs.append([match])
    spans: list[tuple[int, int]] = []
    for run in runs:
        if run[0][0].lower() in words.verbs and _opens(text, run[0].start()):
            del run[0]
        _trim(run, words)
        if not run:
            continue
        first, last = run[0].start(), run[-1].end()
        number = _NUMBER.match(text, last + 1) if text[last : last + 1] == " " else None
        last = number.end() if number is not None else last
        if len(run) == 1 and number is None and _is_common(text, run[0], words):
            continue
        spans.append((first, last))
    return spans


def _joined(text: str, left: re.Match[str], right: re.Match[str]) -> bool:
    """Return whether two capitalized words belong to the same name."""
    gap = text[left.end() : right.start()]
    if gap == " ":
        return True
    if len(gap) > 12:
        return False
    if gap.startswith("."):
        return left[0].lower() in _HONORIFICS and gap.strip(". ") == ""
    if _OF.fullmatch(gap):
        return left[0].lower() in _OF_HEADS
    return _GAP.fullmatch(gap) is not None


def _trim(run: list[re.Match[str]], words: Vocabulary) -> None:
    """Remove words from both ends of a run that are not part of a name."""
    while run:
        word = run[0][0].lower()
        office = run[0][0] in _OFFICES or (word in words.roles and len(run) != 2)
        if word not in words.not_names and not office:
            break
        del run[0]


def _is_common(text: str, word: re.Match[str], words: Vocabulary) -> bool:
    lower = word[0].lower()
    return len(lower) == 1 or (lower in words.common and _opens(text, word.start()))


def _opens(text: str, start: int) -> bool:
    return not text[:start].strip(" \"'“‘(*_-–—•")
