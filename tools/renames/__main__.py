"""Apply the tables of renames, one commit for each: `python -m tools.renames`."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tools.renames import __doc__ as description
from tools.renames import attributes, modules, replacements, symbols

TABLES = Path(__file__).with_name("tables")
STEPS: dict[str, Callable[[Path, Path], list[str]]] = {
    ".modules": modules.apply,
    ".symbols": symbols.apply,
    ".attributes": attributes.apply,
    ".toml": replacements.apply,
}
FOLDERS = ("src", "tests", "bench", "tools")


def title(table: Path) -> str:
    """Return the title of a table's commit, which is its first line."""
    return table.read_text(encoding="utf-8").partition("\n")[0].removeprefix("#").strip()


def tidy(root: Path) -> None:
    """Sort the imports, drop those without a use, and format what has changed."""
    ruff = str(Path(sys.executable).with_name("ruff"))
    folders = [folder for folder in FOLDERS if (root / folder).is_dir()]
    subprocess.run(
        [ruff, "check", "--select", "I,F401", "--fix", "--quiet", "--exit-zero", *folders],
        cwd=root,
        check=True,
    )
    subprocess.run([ruff, "format", "--quiet", *folders], cwd=root, check=True)


def remove_empty_folders(root: Path) -> None:
    """Remove folders that moves have left with nothing but byte code in them."""
    for folder in sorted((root / "src").rglob("*"), reverse=True):
        if folder.is_dir() and folder.name != "__pycache__":
            files = [path for path in folder.rglob("*") if path.is_file()]
            if all("__pycache__" in path.parts for path in files):
                for path in files:
                    path.unlink()
                for empty in sorted(folder.rglob("*"), reverse=True):
                    empty.rmdir()
                folder.rmdir()


def apply(root: Path, table: Path) -> list[str]:
    """Apply one table, and commit what it changed."""
    report = STEPS[table.suffix](root, table)
    remove_empty_folders(root)
    tidy(root)
    modules.git(root, "add", "--all")
    if modules.git(root, "status", "--porcelain"):
        modules.git(root, "commit", "--quiet", "--message", title(table))
    return report


def main() -> None:
    """Apply the tables that the command names, or all."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.renames",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("tables", nargs="*", metavar="TABLE", type=Path, help="apply these tables only")
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="the checkout; default: this folder")
    arguments = parser.parse_args()
    root = arguments.root.resolve()
    if modules.git(root, "status", "--porcelain"):
        parser.error(f"{root} has changes; commit or remove them first")
    for table in arguments.tables or sorted(path for path in TABLES.iterdir() if path.suffix in STEPS):
        print(f"{table.name}: {title(table)}", flush=True)
        for line in apply(root, table.resolve()):
            print(f"  {line}", flush=True)


if __name__ == "__main__":
    main()
