"""Write docs/reference/licenses.md: the licenses of the installed packages, the typefaces and the weights.

Run it with `.venv/bin/python -m tools.licenses` after a change of dependencies; a test in tests/architecture
compares the names. The packages are the dependencies in pyproject.toml and their dependencies, as
installed here.
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
PAGE = ROOT / "docs" / "reference" / "licenses.md"
FONTS = ROOT / "src" / "sixfold" / "ui" / "static" / "fonts"
_MAX_CHARS = 60

# Licenses that are missing in the metadata of a package, or that differ for the libraries it bundles.
_OVERRIDES = {
    "av": "BSD-3-Clause; its wheels hold FFmpeg with x264 and x265, GPL-2.0-or-later",
    "espeakng-loader": "GPL-3.0-or-later, as eSpeak NG, which it holds",
    "resvg-py": "MIT",
    "opencv-contrib-python-headless": "Apache-2.0; its wheels hold FFmpeg, LGPL-2.1-or-later",
}
_SPDX_NAMES = {
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
    """Return the dependencies in pyproject.toml by extra; those of the server are under ""."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return {"": table["dependencies"], **table["optional-dependencies"]}


def closure(requirements: Iterable[str], project_requirements: Mapping[str, list[str]]) -> set[str]:
    """Return the names of the installed distributions that `requirements` need, directly or indirectly."""
    names: set[str] = set()
    pending = [Requirement(text) for text in requirements]
    seen: set[tuple[str, frozenset[str]]] = set()
    while pending:
        need = pending.pop()
        name, extras = canonicalize_name(need.name), frozenset(need.extras)
        if (name, extras) in seen or not (need.marker is None or need.marker.evaluate({"extra": ""})):
            continue
        seen.add((name, extras))
        if name == "sixfold":
            pending += [Requirement(text) for extra in extras for text in project_requirements[extra]]
            continue
        try:
            needs = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        names.add(name)
        pending += [one for text in needs if _applies(one := Requirement(text), extras)]
    return names


def _applies(need: Requirement, extras: frozenset[str]) -> bool:
    marker = need.marker
    expected = marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))
    need.marker = None
    return expected


def layers() -> Mapping[str, list[str]]:
    """Return the names of distributions by the first extra that installs them."""
    dependencies, seen, result = project(), set[str](), dict[str, list[str]]()
    others = sorted(set(dependencies) - {"", "embedded", "test", "dev"} - lock.UNLOCKED)
    for extra in ("", "embedded", *others, "test", "dev"):
        names = closure(dependencies[extra], dependencies) - seen
        seen |= names
        result[extra] = sorted(names)
    return result


def license_of(name: str) -> str:
    """Return the license of a distribution as a short string."""
    if name in _OVERRIDES:
        return _OVERRIDES[name]
    fields = metadata.metadata(name).json
    if expression := fields.get("license_expression"):
        return str(expression)
    classified = [
        line.rpartition(" :: ")[2] for line in map(str, fields.get("classifier", [])) if "License ::" in line
    ]
    text = " or ".join(
        dict.fromkeys(_SPDX_NAMES.get(line, line) for line in classified if line != "OSI Approved")
    )
    if not text:
        first = str(fields.get("license", "")).strip().splitlines()
        text = _SPDX_NAMES.get(first[0], first[0])[:_MAX_CHARS] if first else ""
    return text or _license_in_files(name) or "in the package"


def _license_in_files(name: str) -> str:
    """Return the license that the first line of the package's license file names, or ""."""
    for file in metadata.files(name) or []:
        path = Path(str(file.locate()))
        if path.name.upper().startswith("LICEN") and path.is_file():
            first = path.read_text("utf-8").strip().splitlines()[:1]
            return _SPDX_NAMES.get(first[0].strip(), "") if first else ""
    return ""


def documented() -> dict[str, str]:
    """Return the licenses on the page by the names of packages."""
    return dict(re.findall(r"^\| `([a-z0-9.-]+)` \| (.+) \|$", PAGE.read_text("utf-8"), re.MULTILINE))


_TITLES = {
    "": ("The server", "`pip install sixfold` installs these packages."),
    "embedded": ("The embedded engines", "`make serve` also installs these packages."),
    "test": ("The tests", "Only the tests use these packages."),
    "dev": ("Development", "Only developers of Sixfold use these packages."),
}


def page() -> str:
    """Return the content of docs/reference/licenses.md."""
    parts = [_HEAD]
    for extra, names in layers().items():
        title, text = _TITLES.get(extra, (f"The extra `{extra}`", ""))
        if not names:
            continue
        rows = "\n".join(f"| `{name}` | {license_of(name)} |" for name in names)
        parts.append(
            f"## {title}\n\n{text}\n\n| package | license |\n|---|---|\n{rows}\n".replace("\n\n\n\n", "\n\n")
        )
    faces = "\n".join(f"| {face} | SIL OFL 1.1 | {notice} |" for face, notice in typefaces())
    parts.append(f"{_FONTS}{faces}\n")
    parts.append(_NETWORK + "\n".join(_photographs()) + "\n")
    weights = tomllib.loads((ROOT / "src/sixfold/data/weights.toml").read_text("utf-8"))
    parts.append(_WEIGHTS + "\n".join(_weights(weights)) + "\n")
    return "\n".join(parts)


def typefaces() -> Iterable[tuple[str, str]]:
    """Yield each typeface in the sources with the first line of its license."""
    for text in sorted(FONTS.glob("*.OFL.txt")):
        name = text.name.removesuffix(".OFL.txt").replace("-", " ").title()
        yield name, text.read_text("utf-8").partition("\n")[0]


def _photographs() -> Iterable[str]:
    for group in tomllib.loads((ROOT / "tools/train_upscaler.toml").read_text("utf-8")).values():
        for name, credit in group["photographs"].items():
            yield f"| {name} | {credit} | {group['package']} |"


def _weights(table: Mapping[str, object]) -> Iterable[str]:
    for name, row in table.items():
        if not isinstance(row, dict):
            continue
        if "licence" in row:
            yield f"| {name} | {row.get('repository', '')} | {row['licence']} | {row.get('commercial', '')} |"
        else:
            yield from _weights(row)


_HEAD = """# Licenses

Sixfold is licensed under Apache-2.0. It depends on the packages below, which are installed separately. The
tables list the license that the metadata of each package declares. Sixfold contains copies of two
[typefaces](#typefaces), and of data from OpenCC in `src/sixfold/data/chinese.toml` (Apache-2.0, Carbo Kuo and
contributors). The packages of the extras `weights` and `ray` are not listed.
`python -m tools.licenses` writes this page, and a test compares the names of the packages.
"""

_FONTS = """## Typefaces

The web pages and this documentation use the fonts in `src/sixfold/ui/static/fonts`. The same folder contains
the text of each license.

| face | license | notice |
|---|---|---|
"""

_NETWORK = """## Photographs of the upscaling network

The network in `src/sixfold/engines/image/upscale/network.npz` is licensed under Apache-2.0, like Sixfold.
It was trained on these photographs, which are not part of Sixfold, and on drawings that
`tools/train_upscaler.py` generates. Photographs whose license requires the same license for derived works
were not used.

| photograph | author and license | package |
|---|---|---|
"""

_WEIGHTS = """## Weights

`sixfold engines add` downloads these weights on request; they are not part of Sixfold. The column
*commercial* states whether the license allows commercial use: `yes`, `no`, or `conditions` if you have to
read the license.

| name | from | license | commercial |
|---|---|---|---|
"""


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
