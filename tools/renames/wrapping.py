"""Break lines of docstrings and comments that longer names have made too long."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

WIDTH = 110
FOLDERS = ("src", "tests", "bench", "tools")
SENTENCE = re.compile(r"(?:; |\. )(?=`?\w)")
QUOTES = '"""'


def long_lines(root: Path) -> dict[Path, list[int]]:
    """Return the lines that are too long, by file; lines count from 1."""
    ruff = str(Path(sys.executable).with_name("ruff"))
    folders = [folder for folder in FOLDERS if (root / folder).is_dir()]
    options = ["check", "--select", "E501", "--output-format", "json", "--exit-zero"]
    done = subprocess.run([ruff, *options, *folders], cwd=root, check=True, capture_output=True, text=True)
    found: defaultdict[Path, list[int]] = defaultdict(list)
    for each in json.loads(done.stdout):
        found[Path(each["filename"])].append(each["location"]["row"])
    return found


def break_first_line(line: str) -> list[str] | None:
    """Break the first line of a docstring after a sentence or clause; the rest becomes a paragraph."""
    indent = line[: len(line) - len(line.lstrip())]
    closed = line.endswith(QUOTES)
    text = line.removesuffix(QUOTES) if closed else line
    places = [found for found in SENTENCE.finditer(text) if found.start() < WIDTH]
    if not places:
        return None
    head, tail = text[: places[-1].start()], text[places[-1].end() :]
    tail = tail[:1].upper() + tail[1:]
    return [head + ".", "", indent + tail, *([indent + QUOTES] if closed else [])]


def break_line(lines: list[str], index: int) -> None:
    """Move the words beyond the width to the next line, which is broken in turn."""
    line = lines[index]
    stripped = line.lstrip()
    indent = line[: len(line) - len(stripped)] + ("# " if stripped.startswith("# ") else "")
    cut = line.rfind(" ", len(indent) + 1, WIDTH + 1)
    if cut < 0:
        return
    rest = line[cut + 1 :]
    lines[index] = line[:cut]
    if rest.endswith(QUOTES):
        lines[index + 1 : index + 1] = [indent + rest.removesuffix(QUOTES), indent + QUOTES]
        return
    following = lines[index + 1] if index + 1 < len(lines) else ""
    text = following.removeprefix(indent)
    joins = following.startswith(indent) and text[:1] not in ("", " ", "-", "#", '"', "`")
    if joins:
        lines[index + 1] = f"{indent}{rest} {text}"
    else:
        lines.insert(index + 1, indent + rest)
    if len(lines[index + 1]) > WIDTH:
        break_line(lines, index + 1)


def wrap(root: Path) -> list[str]:
    """Break the long lines of a checkout, and return those that are code."""
    report = []
    for path, numbers in long_lines(root).items():
        lines = path.read_text(encoding="utf-8").split("\n")
        for number in sorted(numbers, reverse=True):
            line = lines[number - 1]
            broken = break_first_line(line) if line.lstrip().startswith(QUOTES) else None
            if broken:
                lines[number - 1 : number] = broken
            elif re.match(r"\s*([#`\w]|\"\"\")", line) and not re.search(r"[({\[,]$|^\s*\w+ = ", line):
                break_line(lines, number - 1)
            else:
                report.append(f"too long: {path.relative_to(root)}:{number}")
        path.write_text("\n".join(lines), encoding="utf-8")
    return report
