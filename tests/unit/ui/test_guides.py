"""Guides: every page of docs/ renders completely, and its links resolve."""

from __future__ import annotations

import functools
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from sixfold.ui.docs import renderer
from sixfold.ui.docs import repository as docs_repository
from sixfold.ui.docs.repository import DocsRepository, DocsSnapshot

EDITION = DocsRepository().snapshot()
UNREAD = re.compile(r"\{\w+\}\s*[`/.\w]|^:{3}|\]\(|```|\*\*\w|^\||&lt;\w", re.MULTILINE)


class Page(HTMLParser):
    """Links, text outside of code, and anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str | None] = []
        self.anchors: set[str | None] = set()
        self.styles = 0
        self.texts: list[str] = []
        self._code = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        result = dict(attrs)
        self._code += tag in {"code", "pre"}
        self.styles += "style" in result
        self.anchors.add(result.get("id"))
        if tag == "a":
            self.links.append(result.get("href"))

    def handle_endtag(self, tag: str) -> None:
        self._code -= tag in {"code", "pre"}

    def handle_data(self, data: str) -> None:
        if not self._code:
            self.texts.append(data)


@functools.cache
def page_of(name: str) -> Page:
    return Page(EDITION.rendered(name).html)


def test_every_page_of_the_documentation_is_a_guide() -> None:
    files = {path.relative_to(docs_repository.FOLDER) for path in docs_repository.FOLDER.rglob("*/*.md")}
    assert {f"{name}.md" for name in EDITION.guides} == {
        str(path) for path in files if path.parts[0] != "_build"
    }


def test_guides_are_in_the_groups_of_the_index() -> None:
    groups = {title: [guide.name for guide in guides] for title, guides in EDITION.groups().items()}
    assert list(groups) == [
        *("Main paths", "Start", "Media", "Gateway", "Memory", "Hosting", "Workflows", "Operate"),
        *("Reference", "Architecture", "HTTP"),
    ]
    assert groups["Main paths"][0] == "howto/gpu-box"
    assert EDITION.neighbors("howto/gpu-box")[1] == EDITION.guides["howto/team"]
    assert sorted(name for names in groups.values() for name in names) == sorted(EDITION.guides)
    assert EDITION.group_of("howto/deploy") == "Operate"
    index = (docs_repository.FOLDER / "index.md").read_text("utf-8")
    links = set(re.findall(r"\]\(([\w/-]+)\.md\)", index))
    assert links <= EDITION.guides.keys()


@pytest.mark.parametrize("name", EDITION.guides)
def test_every_guide_renders_completely(name: str) -> None:
    page, guide = page_of(name), EDITION.guides[name]
    assert guide.title
    assert guide.line.strip()
    assert page.styles == 0
    assert UNREAD.search("\n".join(page.texts)) is None
    for link in page.links:
        assert link, "a link leads nowhere"
        if link.startswith("/docs/pictures/"):
            image = link.removeprefix("/docs/pictures/").partition("?")[0]
            assert EDITION.bytes_of(image) is not None
        elif link.startswith(("/docs/", "#")):
            target, _, anchor = link.partition("#")
            linked = target.removeprefix("/docs/") or name
            assert linked in EDITION.guides, link
            assert not anchor or anchor in page_of(linked).anchors, link
        else:
            assert link.startswith(("https://", "http://")), link


def test_code_is_read_from_files_and_lists_from_folders() -> None:
    script = (docs_repository.FOLDER / "howto" / "agents_day.py").read_text("utf-8")
    assert renderer._code(script, "python") in EDITION.rendered("howto/agents").html
    states = EDITION.rendered("architecture/30-jobs").html
    assert "TRANSITIONS" in states
    assert "class IllegalTransition" not in states
    html = EDITION.rendered("reference/http").html
    assert all(f'<a href="/docs/{guide.name}">' in html for guide in EDITION.of("reference/http"))


def test_console_block_separates_prompt_command_and_output(tmp_path: Path) -> None:
    text = "# A\n\nOne. Two.\n\n```console\n$ curl a \\\n  -d b |\n  jq\n{}\n```\n"
    html = renderer.render(text, _around(tmp_path)).html
    assert '<span class="prompt">$ </span>curl a \\\n  -d b |\n  jq\n<span class="answer">{}</span>' in html


def test_dead_links_and_unknown_markup_are_shown_as_text(tmp_path: Path) -> None:
    text = "# A\n\n[one](gone.md) ![two](gone.webp)\n\n```{margin} three\nfour\n```\n\n<b>five</b>\n"
    html = renderer.render(text, _around(tmp_path)).html
    assert "<a>one</a>" in html
    assert "<em>two</em>" in html
    assert "{margin} three\nfour" in html
    assert "&lt;b&gt;five" in html


def test_new_guide_appears_at_the_next_request(tmp_path: Path) -> None:
    folder = tmp_path / "howto"
    folder.mkdir()
    remaining = DocsRepository(tmp_path)
    first = remaining.snapshot()
    assert remaining.snapshot() is first
    (folder / "sleep.md").write_text("# Sleep *well*\n\nLie `down`. Then:\n\n## How\n\n## How\n", "utf-8")
    second = remaining.snapshot()
    assert second.guides["howto/sleep"] == renderer.GuidePage("howto/sleep", "Sleep well", "Lie `down`.")
    assert [heading.anchor for heading in second.rendered("howto/sleep").headings] == ["how", "how-1"]
    assert second.neighbors("howto/sleep") == (None, None)


def test_headings_for_the_search_are_those_of_the_rendered_pages() -> None:
    found = EDITION.headings()
    assert {name: found[name] for name in EDITION.guides} == {
        name: EDITION.rendered(name).headings for name in EDITION.guides
    }


@pytest.mark.parametrize("name", ["../conf.py", "../../pyproject.toml", "none.webp", ".webp", ""])
def test_only_images_of_guides_are_served(name: str) -> None:
    assert EDITION.bytes_of(name) is None


def _around(folder: Path) -> renderer.LinkResolver:
    return docs_repository._SectionLinks(DocsSnapshot(folder), "howto")
