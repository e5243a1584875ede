"""Laws on words: class names, banned stems, pronouns, retired terms, sizes of folders, commit titles."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.architecture import source, vocabulary

# Commits after this one must follow the law on titles.
BASE = "1a4596c10fd98022fd8b4b1319534c2e0f9e7749"
TITLE_CHARACTERS = 72
TITLE = re.compile(r"[\w./-]+(, [\w./-]+)*: (?P<verb>[a-z][a-z-]*)\b.*[^.]")
NOT_A_VERB = re.compile(r".*(ing|ed|[^s]s)")  # `adding`, `added` and `adds`, but not `pass`
VERBS = frozenset({"bring", "embed", "feed", "focus", "need", "seed", "shed", "speed", "string", "swing"})


def title_fault(title: str) -> str | None:
    if len(title) > TITLE_CHARACTERS:
        return f"{len(title)} characters, at most {TITLE_CHARACTERS}"
    result = TITLE.fullmatch(title)
    if not result:
        return "write `scope: imperative`, in lower case and without a full stop"
    if NOT_A_VERB.fullmatch(result["verb"]) and result["verb"] not in VERBS:
        return f"begin with the imperative, not with `{result['verb']}`"
    return None


def git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *arguments], cwd=source.ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("law", vocabulary.LAWS)
def test_breaches_of_a_package_equal_the_listed_number(law: str) -> None:
    result, allowed_counts = vocabulary.LAWS[law](), vocabulary.listed().get(law, {})
    faults = [
        f"{package}: {result[package]} breaches of `{law}`, {allowed_counts.get(package, 0)} listed: "
        + (
            vocabulary.REMEDIES.get(law, "rename the new ones")
            if result[package] > allowed_counts.get(package, 0)
            else "lower the number in vocabulary.toml"
        )
        for package in sorted({*result, *allowed_counts})
        if result[package] != allowed_counts.get(package, 0)
    ]
    assert not faults, "\n" + "\n".join([*faults, "`make vocabulary` lowers the numbers."])


def test_the_list_is_sorted_and_names_only_laws() -> None:
    counts = vocabulary.listed()
    assert vocabulary.LIST.read_text(encoding="utf-8") == vocabulary.render(counts)
    assert list(counts) == list(vocabulary.LAWS)


def test_every_retired_word_is_in_the_glossary() -> None:
    page = source.text("docs/reference/glossary.md")
    assert "tests/architecture/vocabulary.py" in page
    missing = [
        word
        for word in ("relay", "catalogue", "upstream", "area", "film", "supervisor", "shelf", "till")
        if not re.search(rf"\b{word}\b", page)
    ]
    assert not missing, f"name the word to use instead in docs/reference/glossary.md: {missing}"


def test_a_commit_title_has_a_scope_and_an_imperative() -> None:
    if git("merge-base", "--is-ancestor", BASE, "HEAD").returncode:
        pytest.skip("the history of the repository is not here: an archive or a shallow clone")
    titles = git("log", "--no-merges", "--format=%h %s", f"{BASE}..HEAD").stdout.splitlines()
    faults = [
        f"{line}: {fault}" for line in titles if (fault := title_fault(line.partition(" ")[2])) is not None
    ]
    assert not faults, "\n" + "\n".join(faults)


@pytest.mark.parametrize(
    ("title", "good"),
    [
        ("store: keep blobs by their hash", True),
        ("web, ui: pass the principal on", True),
        ("engines: embed the record in PNG files", True),
        ("store: added a table", False),
        ("store: adds a table", False),
        ("store: adding a table", False),
        ("Store the blobs", False),
        ("store: Keep blobs", False),
        ("store: keep blobs.", False),
        ("store: " + "x" * 66, False),
    ],
)
def test_a_title_is_short_and_imperative(title: str, good: bool) -> None:
    assert (title_fault(title) is None) is good


def test_a_listed_number_does_not_rise() -> None:
    assert vocabulary.higher("stems", {"a": 2, "b": 1}, {"a": 3}) != []
    assert vocabulary.higher("stems", {"a": 2, "b": 1}, {"a": 1, "b": 1}) == []


def test_moved_package_keeps_its_listed_number() -> None:
    assert vocabulary.higher("stems", {"old": 3}, {"new": 2, "newer": 1}) == []
    assert vocabulary.higher("stems", {"old": 3}, {"new": 4}) != []


def test_the_command_refuses_to_raise_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "vocabulary.toml"
    path.write_text('[stems]\n"src/sixfold/web" = 0\n', encoding="utf-8")
    monkeypatch.setattr(vocabulary, "LIST", path)
    monkeypatch.setattr(vocabulary, "LAWS", {"stems": lambda: vocabulary.Counter({"src/sixfold/web": 2})})
    monkeypatch.setattr("sys.argv", ["vocabulary"])
    with pytest.raises(SystemExit, match="has 2 breaches, 0 are listed"):
        vocabulary.main()
    assert vocabulary.listed() == {"stems": {"src/sixfold/web": 0}}
    monkeypatch.setattr("sys.argv", ["vocabulary", "--raise"])
    vocabulary.main()
    assert vocabulary.listed() == {"stems": {"src/sixfold/web": 2}}
