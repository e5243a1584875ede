"""Write docs/reference/licences.md: what each installed package says of its licence, and what weights say.

Run it with `.venv/bin/python -m tools.licences` after a change of dependencies; a test in tests/architecture
compares the names. The packages are those that pyproject.toml names, with all that they need, as installed
here.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools import lock

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "licences.md"
FONTS = ROOT / "src" / "sixfold" / "ui" / "static" / "fonts"
_MAX_CHARS = 60

# What packages do not say of themselves, or say of their own code alone.
_SAID_ELSEWHERE = {
    "av": "BSD-3-Clause; its wheels hold FFmpeg with x264 and x265, GPL-2.0-or-later",
    "espeakng-loader": "GPL-3.0-or-later, as eSpeak NG, which it holds",
    "resvg-py": "MIT",
    "opencv-contrib-python-headless": "Apache-2.0; its wheels hold FFmpeg, LGPL-2.1-or-later",
}
_SAME = {
    "Apache 2.0": "Apache-2.0",
    "Apache License": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}


def project() -> Mapping[str, list[str]]:
    """What pyproject.toml asks for, by extra; "" is the server itself."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return {"": table["dependencies"], **table["optional-dependencies"]}


def closure(wanted: Iterable[str], asked: Mapping[str, list[str]]) -> set[str]:
    """The names of installed distributions that these requirements lead to."""
    names: set[str] = set()
    waiting = [Requirement(text) for text in wanted]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        need = waiting.pop()
        name, extras = canonicalize_name(need.name), frozenset(need.extras)
        if (name, extras) in seen or not (need.marker is None or need.marker.evaluate({"extra": ""})):
            continue
        seen.add((name, extras))
        if name == "sixfold":
            waiting += [Requirement(text) for extra in extras for text in asked[extra]]
            continue
        try:
            needs = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        names.add(name)
        waiting += [one for text in needs if _counts(one := Requirement(text), extras)]
    return names


def _counts(need: Requirement, extras: frozenset[str]) -> bool:
    marker = need.marker
    expected = marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))
    need.marker = None
    return expected


def layers() -> Mapping[str, list[str]]:
    """Names by what brings them first, each once."""
    request, seen, result = project(), set[str](), dict[str, list[str]]()
    others = sorted(set(request) - {"", "embedded", "test", "dev"} - lock.UNLOCKED)
    for extra in ("", "embedded", *others, "test", "dev"):
        names = closure(request[extra], request) - seen
        seen |= names
        result[extra] = sorted(names)
    return result


def licence(name: str) -> str:
    """What a distribution says, in as few words as can be."""
    if name in _SAID_ELSEWHERE:
        return _SAID_ELSEWHERE[name]
    response = metadata.metadata(name).json
    if expression := response.get("license_expression"):
        return str(expression)
    classified = [
        line.rpartition(" :: ")[2]
        for line in map(str, response.get("classifier", []))
        if "License ::" in line
    ]
    text = " or ".join(dict.fromkeys(_SAME.get(line, line) for line in classified if line != "OSI Approved"))
    if not text:
        first = str(response.get("license", "")).strip().splitlines()
        text = _SAME.get(first[0], first[0])[:_MAX_CHARS] if first else ""
    return text or _of_file(name) or "in the package"


def _of_file(name: str) -> str:
    """The first line of a licence that lies in the package, where that is its name."""
    for file in metadata.files(name) or []:
        path = Path(str(file.locate()))
        if path.name.upper().startswith("LICEN") and path.is_file():
            first = path.read_text("utf-8").strip().splitlines()[:1]
            return _SAME.get(first[0].strip(), "") if first else ""
    return ""


def documented() -> dict[str, str]:
    """Return the licences on the page by the names of packages."""
    return dict(re.findall(r"^\| `([a-z0-9.-]+)` \| (.+) \|$", PAGE.read_text("utf-8"), re.MULTILINE))


_TITLES = {
    "": ("The server", "What `pip install sixfold` brings."),
    "embedded": ("The embedded engines", "What `make serve` brings besides."),
    "test": ("The tests", "Nothing of it is part of a server."),
    "dev": ("Development", "Nothing of it is part of a server."),
}


def page() -> str:
    """The whole page."""
    parts = [_HEAD]
    for extra, names in layers().items():
        title, text = _TITLES.get(extra, (f"The extra `{extra}`", ""))
        if not names:
            continue
        rows = "\n".join(f"| `{name}` | {licence(name)} |" for name in names)
        parts.append(
            f"## {title}\n\n{text}\n\n| package | licence |\n|---|---|\n{rows}\n".replace("\n\n\n\n", "\n\n")
        )
    faces = "\n".join(f"| {face} | SIL OFL 1.1 | {notice} |" for face, notice in typefaces())
    parts.append(f"{_FONTS}{faces}\n")
    weights = tomllib.loads((ROOT / "src/sixfold/data/weights.toml").read_text("utf-8"))
    parts.append(_WEIGHTS + "\n".join(_weights(weights)) + "\n")
    return "\n".join(parts)


def typefaces() -> Iterable[tuple[str, str]]:
    """Each face that lies in the sources, with the first line of the licence beside it."""
    for text in sorted(FONTS.glob("*.OFL.txt")):
        name = text.name.removesuffix(".OFL.txt").replace("-", " ").title()
        yield name, text.read_text("utf-8").partition("\n")[0]


def _weights(table: Mapping[str, object]) -> Iterable[str]:
    for name, row in table.items():
        if not isinstance(row, dict):
            continue
        if "licence" in row:
            yield f"| {name} | {row.get('repository', '')} | {row['licence']} | {row.get('commercial', '')} |"
        else:
            yield from _weights(row)


_HEAD = """# Licences

Sixfold is under Apache-2.0. It stands on the packages below, none of which is copied into it; each installs
under its own licence, which is what it says of itself. Two [typefaces](#typefaces) are copied. The extras
`weights` and `ray` are not in the lock, and not here. Written by `python -m tools.licences`; a test
compares the names.
"""

_FONTS = """## Typefaces

What the pages and this documentation are set in: files in `src/sixfold/ui/static/fonts`, each face with the
text of its licence beside it.

| face | licence | notice |
|---|---|---|
"""

_WEIGHTS = """## Weights

What `sixfold engines add` fetches when it is asked to; nothing of it comes with Sixfold. *Commercial* is
`yes`, `no`, or `conditions`, which means that the licence is to be read.

| name | from | licence | commercial |
|---|---|---|---|
"""


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
