"""Masking of secrets, e-mail addresses and card numbers in a text that may arrive in chunks.

A mask is not reversible: the original is not stored. The time is linear in the length of the text: candidates
are found by fixed strings (`sk-`, `@`) or digits, and each is checked within a bounded length. At most `HOLD`
characters at the end of a text are undecided, and only if they may belong to a match.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from sixfold.core.gateway.guardrails.models import KINDS
from sixfold.core.input_limits import byte_search
from sixfold.core.input_limits.budget import InputBudget, Limit

SECRETS, EMAILS, CARDS = KINDS
# More than the length of an e-mail address, a card number, or the identifying part of a secret.
HOLD = 512
# Decided characters that are kept to check the context before a candidate.
_CONTEXT = 80
# Long texts are masked in slices, between which other threads can run.
SLICE = 16 * 1024
# Masking a document takes up to this many times as long as parsing it.
COST = 8
_LONGEST_CARD, _LONGEST_KEY_START = 40, 130
_MAX_KEY_CHARS = 16 * 1024
_ASCII_WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
_LOCAL_CHARS = frozenset("._%+-")
_RUN_CHARS = frozenset("._%+-@/=")
_DIGIT_CHARS = frozenset("0123456789 -")


class Span(NamedTuple):
    """A part of a text, by its offsets in the whole text, and its replacement."""

    start: int
    end: int
    text: str


class _SecretForm(NamedTuple):
    """A kind of secret: its prefix, the pattern that it must match, and the characters that continue it.

    If `apart` is set, `-` or `_` must not precede the secret.
    """

    prefix: str
    pattern: re.Pattern[str]
    rest: re.Pattern[str]
    apart: bool = False


_WORD_REST = re.compile(r"[A-Za-z0-9_-]*")
_BASE64_REST = re.compile(r"[A-Za-z0-9_+/=-]*")
_KEY_PREFIX = "-----BEGIN "
_KEY_START = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY-----(?:\s|\\[nr]){0,8}(?:[A-Za-z0-9+/=]{16}|Proc-Type:)"
)
_KEY_REST = re.compile(r"[A-Za-z0-9+/=\s\\:,-]*?-----END [A-Z0-9 ]{0,30}PRIVATE KEY-----")
_KEY_BODY = re.compile(r"[A-Za-z0-9+/=\s\\:,-]*")


def _word(prefix: str, least: int, characters: str = "A-Za-z0-9_-") -> _SecretForm:
    return _SecretForm(prefix, re.compile(f"{re.escape(prefix)}[{characters}]{{{least},}}"), _WORD_REST)


_FORMS = (
    _word("sk-", 20),
    _word("sf_", 40),
    *(_word(f"gh{kind}_", 30) for kind in "pousr"),
    _word("github_pat_", 22),
    _word("glpat-", 20),
    _word("AKIA", 16, "A-Z0-9"),
    _word("ASIA", 16, "A-Z0-9"),
    _word("AIza", 35),
    _word("ya29.", 20),
    *(_word(f"xox{kind}-", 10) for kind in "abeoprs"),
    *(_word(f"{kind}_{mode}_", 16) for kind in ("sk", "rk", "pk") for mode in ("live", "test")),
    _SecretForm("whsec_", re.compile(r"whsec_[A-Za-z0-9_+/=-]{16,}"), _BASE64_REST),
    _word("hf_", 30),
    _word("r8_", 30),
    _word("gsk_", 40),
    _word("xai-", 40),
    _word("npm_", 36),
    _word("pypi-", 50),
    _word("dop_v1_", 60),
    _SecretForm("SG.", re.compile(r"SG\.[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{16,}"), _WORD_REST, apart=True),
    _SecretForm(
        "eyJ",
        re.compile(r"eyJ[A-Za-z0-9_-]{10,300}\.[A-Za-z0-9_-]{10,}(?:\.[A-Za-z0-9_-]*)?"),
        re.compile(r"[A-Za-z0-9_.-]*"),
        apart=True,
    ),
    _SecretForm(_KEY_PREFIX, _KEY_START, _KEY_REST),
)
_PREFIXES = tuple(form.prefix for form in _FORMS)
_LONGEST_PREFIX = max(map(len, _PREFIXES))
# The `@` between a local part and a domain, and the domain.
_DOMAIN = re.compile(r"(?<=[\w.%+-])@([\w-]{1,63}(?:\.[\w-]{1,63}){0,4}\.[^\W\d_]{2,24})")
_MAX_LOCAL = 64
# Groups of digits. The lookahead requires 13 digits, because shorter runs are frequent.
_DIGITS = re.compile(r"(?<![0-9])(?=[0-9](?:[ -]?[0-9]){12})[0-9]{3,19}(?:[ -][0-9]{3,6})*(?![0-9])")
_GROUP = re.compile(r"[0-9]+")
_SEPARATORS = re.compile(r"[ -]")
# The value of a digit in the checksum, doubled at every other position.
_SINGLE = bytes.maketrans(b"0123456789", bytes(range(10)))
_DOUBLED = bytes.maketrans(b"0123456789", bytes((0, 2, 4, 6, 8, 1, 3, 5, 7, 9)))
_CARD_START = re.compile(r"4|5|6|3[04-9]|2[2-7]")
_CARD_LENGTHS = range(13, 20)
_LIKELY = re.compile("|".join((r"@|\\u|[0-9](?:[ -]?[0-9]){12}", *map(re.escape, _PREFIXES))).encode())
_CPU_TIME = Limit(
    5_000,
    "The guardrail needs more than {:,} ms to search this text for data to mask: send less text, or "
    "fewer numbers and addresses",
)


class _Match(NamedTuple):
    """A candidate; if it begins in masked text, it may begin later, but before `latest`."""

    start: int
    end: int
    text: str
    latest: int
    form: _SecretForm | None = None


class TextMasker:
    """Finds the parts to mask in one text: `feed` it the chunks in order, then call `end`."""

    def __init__(self, kinds: Collection[str]) -> None:
        self._kinds = frozenset(kinds)
        self._buffer = ""
        # The position of the buffer in the text, and that of the first undecided character in the buffer.
        self._offset = self._next = 0
        # The secret that continues at the first undecided character, and the maximum length of its rest.
        self._open: _SecretForm | None = None
        self._left = 0

    @property
    def decided(self) -> int:
        """The number of characters at the beginning of the text that later chunks cannot change."""
        return self._offset + self._next

    def feed(self, piece: str) -> list[Span]:
        """Add a chunk; return the parts to mask that are now decided."""
        self._append(piece)
        return self._scan(final=False)

    def end(self, piece: str = "") -> list[Span]:
        """Add the last chunk; return the remaining parts to mask."""
        self._append(piece)
        return self._scan(final=True)

    def _append(self, piece: str) -> None:
        cut = max(0, self._next - _CONTEXT)
        self._buffer = self._buffer[cut:] + piece
        self._offset += cut
        self._next -= cut

    def _scan(self, *, final: bool) -> list[Span]:
        spans: list[Span] = []
        if self._continue_secret(spans, final=final):
            return spans
        limit = len(self._buffer) if final else self._undecided()
        for match in sorted(self._matches()):
            start = max(match.start, self._next)
            if start >= limit:
                break
            if start > match.latest:
                continue
            self._add(spans, start, match.end, match.text)
            if match.form is not None and (match.form.rest is _KEY_REST or match.end == len(self._buffer)):
                self._open, self._left = match.form, _MAX_KEY_CHARS
                if self._continue_secret(spans, final=final):
                    return spans
        self._next = max(self._next, limit)
        return spans

    def _add(self, spans: list[Span], start: int, end: int, text: str) -> None:
        spans.append(Span(self._offset + start, self._offset + end, text))
        self._next = end

    def _continue_secret(self, spans: list[Span], *, final: bool) -> bool:
        """Mask the rest of a secret whose beginning is masked; return whether it may continue."""
        form = self._open
        if form is None:
            return False
        end = self._key_end() if form.rest is _KEY_REST else self._word_end(form)
        if end > self._next:
            self._left -= end - self._next
            self._add(spans, self._next, end, "")
        if final:
            self._open = None
        return self._open is not None

    def _word_end(self, form: _SecretForm) -> int:
        match = form.rest.match(self._buffer, self._next)
        end = self._next if match is None else match.end()
        if end < len(self._buffer):
            self._open = None
        return end

    def _key_end(self) -> int:
        """Return the end of a key block: its last line, or the first character that is not part of a key."""
        closed = _KEY_REST.match(self._buffer, self._next)
        if closed is not None:
            self._open = None
            return min(closed.end(), self._next + self._left)
        body = _KEY_BODY.match(self._buffer, self._next)
        end = self._next if body is None else body.end()
        if end < len(self._buffer) or end - self._next >= self._left:
            self._open = None
            return min(end, self._next + self._left)
        # The last line may be incomplete.
        return max(self._next, end - _LONGEST_KEY_START)

    def _matches(self) -> Iterator[_Match]:
        if SECRETS in self._kinds:
            yield from _secrets(self._buffer, self._next)
        if EMAILS in self._kinds and "@" in self._buffer:
            yield from _emails(self._buffer, self._next)
        if CARDS in self._kinds:
            yield from _cards(self._buffer, self._next)

    def _undecided(self) -> int:
        """Return the first position at which a later chunk may complete or extend a match."""
        buffer, size = self._buffer, len(self._buffer)
        least = max(self._next, size - HOLD)
        hold = size
        if EMAILS in self._kinds or SECRETS in self._kinds:
            start = size
            while start > least and (buffer[start - 1].isalnum() or buffer[start - 1] in _RUN_CHARS | {"_"}):
                start -= 1
            hold = start if EMAILS in self._kinds else _first_secret(buffer, start)
        if SECRETS in self._kinds:
            hold = min(hold, _key_start(buffer, max(self._next, size - _LONGEST_KEY_START)))
        if CARDS in self._kinds:
            hold = min(hold, _digits_start(buffer, max(self._next, size - _LONGEST_CARD)))
        return hold


def _secrets(buffer: str, start: int) -> Iterator[_Match]:
    for form in _FORMS:
        at = buffer.find(form.prefix, start)
        while at >= 0:
            after = at + 1
            if _is_apart(buffer, at, form):
                match = form.pattern.match(buffer, at)
                if match is not None:
                    yield _Match(at, match.end(), "[SECRET]", at, form)
                    after = match.end()
            at = buffer.find(form.prefix, after)


def _is_apart(buffer: str, at: int, form: _SecretForm) -> bool:
    if not at or form.prefix == _KEY_PREFIX:
        return True
    before = buffer[at - 1]
    return before not in _ASCII_WORD and not (form.apart and before in "_-")


def _first_secret(buffer: str, start: int) -> int:
    """Return the start of a secret, or of a partial prefix, in the run at the end of a text."""
    size = len(buffer)
    for at in range(start, size):
        if at and buffer[at - 1] in _ASCII_WORD:
            continue
        if buffer.startswith(_PREFIXES, at):
            return at
        if size - at < _LONGEST_PREFIX:
            end = buffer[at:]
            if any(prefix.startswith(end) for prefix in _PREFIXES):
                return at
    return size


def _key_start(buffer: str, least: int) -> int:
    """Return the start of a private key, or of a partial first line, at the end of a text."""
    at = buffer.find(_KEY_PREFIX, least)
    if at >= 0:
        return at
    for length in range(min(len(_KEY_PREFIX) - 1, len(buffer) - least), 0, -1):
        if buffer.endswith(_KEY_PREFIX[:length]):
            return len(buffer) - length
    return len(buffer)


def _digits_start(buffer: str, least: int) -> int:
    """Return the first position at the end of a text at which a card number may start."""
    start = size = len(buffer)
    while start > least and buffer[start - 1] in _DIGIT_CHARS:
        start -= 1
    while start < size and buffer[start] in " -":
        start += 1
    return start


def _emails(buffer: str, start: int) -> Iterator[_Match]:
    for domain in _DOMAIN.finditer(buffer, start):
        at = domain.start()
        begin, least = at, max(start, at - _MAX_LOCAL)
        while begin > least and (buffer[begin - 1].isalnum() or buffer[begin - 1] in _LOCAL_CHARS):
            begin -= 1
        if begin < at:
            yield _Match(begin, domain.end(), "[EMAIL]", at - 1)


def _cards(buffer: str, start: int) -> Iterator[_Match]:
    for run in _DIGITS.finditer(buffer, start):
        groups = [group.span() for group in _GROUP.finditer(buffer, run.start(), run.end())]
        index = 0
        while index < len(groups):
            begin, count = groups[index][0], 0
            index += 1
            if _CARD_START.match(buffer, begin) is None:
                continue
            for last in range(index - 1, min(index + 5, len(groups))):
                start, end = groups[last]
                count += end - start
                if count in _CARD_LENGTHS and is_card_number(_SEPARATORS.sub("", buffer[begin:end])):
                    yield _Match(begin, end, "[CARD]", begin)
                    index = last + 1
                    break


def is_card_number(digits: str) -> bool:
    """Return whether digits have the prefix, the length and the check digit (Luhn) of a card number."""
    if len(digits) not in _CARD_LENGTHS or _CARD_START.match(digits) is None:
        return False
    codes = digits.encode("ascii")
    return (sum(codes[::-2].translate(_SINGLE)) + sum(codes[-2::-2].translate(_DOUBLED))) % 10 == 0


def apply(text: str, spans: Collection[Span], offset: int = 0) -> str:
    """Return a text that begins at `offset`, with the parts replaced that begin in it.

    The part of a span inside the text is removed even if the span begins before the text.
    """
    pieces: list[str] = []
    at, end = offset, offset + len(text)
    for span in spans:
        if span.end <= at or span.start >= end:
            continue
        pieces.append(text[at - offset : max(at, span.start) - offset])
        if span.start >= offset:
            pieces.append(span.text)
        at = min(end, span.end)
    pieces.append(text[at - offset :])
    return "".join(pieces)


def budget() -> InputBudget:
    """Return the CPU time that may be spent on the texts of one document."""
    return InputBudget(cpu_ms=_CPU_TIME)


def mask(text: str, kinds: Collection[str], budget: InputBudget | None = None) -> str:
    """Return a text with all data of these kinds masked; raises `InputTooLarge` above the budget."""
    masker = TextMasker(kinds)
    spans: list[Span] = []
    last = max(0, len(text) - SLICE)
    for at in range(0, last, SLICE):
        if budget is not None:
            budget.check_time()
        spans += masker.feed(text[at : min(last, at + SLICE)])
    spans += masker.end(text[last:])
    return apply(text, spans) if spans else text


def may_mask(body: bytes) -> bool:
    """Return whether a JSON document may contain data to mask; False means that decoding is unnecessary."""
    return byte_search.has_match(_LIKELY, body)
