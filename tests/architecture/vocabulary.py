"""Counts of the words that break the laws on names, by package, and the file that lists how many are left.

`python -m tests.architecture.vocabulary` (`make vocabulary`) writes lower numbers into `vocabulary.toml`
only. A package that has moved takes its number along: a new place is listed while the law's total does not
grow.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path, PurePath

from tests.architecture import source

LIST = Path(__file__).with_name("vocabulary.toml")
HEADER = """\
# Breaches of the laws on names that are left, by law and package; tests/architecture/vocabulary.py counts
# them. The numbers may only become smaller: `make vocabulary` writes the lower ones.
"""
Counts = dict[str, dict[str, int]]

ROLES = frozenset({"Client", "Engine", "Server"})  # names of a role that several modules may use
API_TYPES = "src/sixfold/client/types/"  # generated; its classes have the names of the API's documents
STEMS = frozenset(
    {"asked", "desk", "door", "heard", "house", "kept", "room", "said", "seat", "shelf", "shown", "slip"}
    | {"taken", "till", "told", "wanted", "wish"}
)
PRONOUNS = re.compile(r"\b(he|him|his|himself|she|hers|herself)\b", re.IGNORECASE)
RETIRED = re.compile(
    r"\b(relay|relays|relayed|catalogue|catalogues|upstreams|areas|films?|supervisor|shelf|shelves|till)\b"
)
FOLDER_MODULES = 20
MODULE_LINES = 30
TEST_NAME_CHARACTERS = 60
NESTED = frozenset({"core", "engines"})  # folders whose packages are counted one by one
WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")


def words(name: str) -> list[str]:
    """Split `CamelCase` and `snake_case` into lower-case words."""
    return [word.lower() for word in WORD.findall(name)]


def package(name: str) -> str:
    """Return the folder by which breaches are counted, such as `src/sixfold/core/memory`."""
    parts = PurePath(name).parts
    return "/".join(parts[: 4 if parts[2] in NESTED and len(parts) > 4 else 3])


def modules() -> list[str]:
    """Return the Python files of the package without those that only mark a folder."""
    return [name for name in source.python("src") if PurePath(name).name != "__init__.py"]


def shared_classes() -> Counter[str]:
    """Count the definitions of public classes whose name another module uses too."""
    files: defaultdict[str, list[str]] = defaultdict(list)
    for name in source.python("src"):
        for each in () if name.startswith(API_TYPES) else source.outline(name).classes:
            if each.outermost and not each.name.startswith("_"):
                files[each.name].append(name)
    shared = [result for name, result in files.items() if len(result) > 1 and name not in ROLES]
    return Counter(package(name) for result in shared for name in result)


def stems() -> Counter[str]:
    """Count the names of modules and classes with a banned stem."""
    result: Counter[str] = Counter()
    for name in source.python("src"):
        names = [PurePath(name).stem]
        names += [each.name for each in source.outline(name).classes]
        result[package(name)] += sum(not STEMS.isdisjoint(words(each)) for each in names)
    return result


def matches(pattern: re.Pattern[str]) -> Counter[str]:
    """Count what a pattern finds in the source files."""
    result: Counter[str] = Counter()
    for name in source.python("src"):
        result[package(name)] += len(pattern.findall(source.text(name)))
    return result


def large_folders() -> Counter[str]:
    """Return the number of modules of each folder that has too many."""
    sizes = Counter(str(PurePath(name).parent) for name in modules())
    return Counter({folder: size for folder, size in sizes.items() if size > FOLDER_MODULES})


def small_modules() -> Counter[str]:
    """Count the modules that are too short for a separate file."""
    written = (name for name in modules() if not name.startswith(API_TYPES))
    return Counter(package(name) for name in written if source.text(name).count("\n") < MODULE_LINES)


def long_test_names() -> Counter[str]:
    """Count the test functions whose name is too long for `test_<unit>_<condition>_<result>`."""
    result: Counter[str] = Counter()
    for name in source.python("tests"):
        result[str(PurePath(name).parent)] += sum(
            function.name.startswith("test_") and len(function.name) > TEST_NAME_CHARACTERS
            for function in source.functions(name)
        )
    return result


LAWS: dict[str, Callable[[], Counter[str]]] = {
    "shared-classes": shared_classes,
    "stems": stems,
    "pronouns": lambda: matches(PRONOUNS),
    "retired": lambda: matches(RETIRED),
    "folders": large_folders,
    "small-modules": small_modules,
    "long-test-names": long_test_names,
}
# What to do about a new breach; all others are names to change.
REMEDIES = {
    "shared-classes": "give each new class a name that no other class has",
    "folders": f"move modules into a package, so that each folder has at most {FOLDER_MODULES}",
    "small-modules": f"move the code into a module of at least {MODULE_LINES} lines",
    "long-test-names": f"shorten names of tests to {TEST_NAME_CHARACTERS} characters",
}


def counted() -> Counts:
    """Return the present number of breaches, by law and place."""
    return {
        law: {package_name: number for package_name, number in count().items() if number}
        for law, count in LAWS.items()
    }


def listed() -> Counts:
    """Return the numbers of `vocabulary.toml`."""
    return tomllib.loads(LIST.read_text(encoding="utf-8"))


def higher(law: str, before: dict[str, int], now: dict[str, int]) -> list[str]:
    """Return which numbers of a law have grown: of a listed place, or in total where a place is new."""
    faults = [
        f"{law}: {scope} has {now.get(scope, 0)} breaches, {number} are listed; rename the new ones"
        for scope, number in sorted(before.items())
        if now.get(scope, 0) > number
    ]
    total, limit = sum(now.values()), sum(before.values())
    if not faults and total > limit:
        faults.append(f"{law}: {total} breaches in all, {limit} are listed; rename the new ones")
    return faults


def render(counts: Counts) -> str:
    """Return the text of `vocabulary.toml`, sorted by place."""
    tables = [
        "\n".join(
            [
                f"[{law}]",
                *(f'"{package_name}" = {number}' for package_name, number in sorted(numbers.items())),
            ]
        )
        for law, numbers in counts.items()
    ]
    return HEADER + "\n" + "\n\n".join(tables) + "\n"


def main() -> None:
    """Write the list again, unless a number would rise."""
    parser = argparse.ArgumentParser(prog="python -m tests.architecture.vocabulary", description=__doc__)
    parser.add_argument(
        "--raise", dest="rise", action="store_true", help="after a merge: also write higher numbers"
    )
    arguments = parser.parse_args()
    before = listed() if LIST.exists() else {}
    now = counted()
    faults = [fault for law, numbers in now.items() for fault in higher(law, before.get(law, {}), numbers)]
    if faults and not arguments.rise:
        sys.exit("\n".join([*faults, "vocabulary.toml is unchanged."]))
    LIST.write_text(render(now), encoding="utf-8")


if __name__ == "__main__":
    main()
