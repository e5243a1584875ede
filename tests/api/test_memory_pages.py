"""The memory's pages over HTTP: access, forms without scripts, merging, files."""

from __future__ import annotations

import html
import io
import re
import zipfile
from typing import Any

import httpx
import pytest

from sixfold.core.accounts.keys import KeyLimits
from sixfold.web import sessions
from tests.api.app_fixture import AppFixture, bearer
from tests.api.test_pages import signed_in

ANN = "# Ann\n\nAnn works at Acme.\n\n- leads [[projects/zeppelin]]\n- knows [[nobody]]\n"


async def put(app: AppFixture, slug: str, body: str, **fields: Any) -> int:
    """Write a page over REST; return its version."""
    response = await app.client.put(f"/api/pages/{slug}", json={"body": body, **fields}, headers=app.bearer)
    assert response.status_code in {200, 201}, response.text
    return response.json()["version"]


async def read(app: AppFixture, slug: str) -> dict[str, Any]:
    return (await app.client.get(f"/api/pages/{slug}", headers=app.bearer)).json()


async def open_page(app: AppFixture, path: str, key: str = "") -> httpx.Response:
    """Open a page with a key, by default the first account's."""
    return await app.visitor().get(path, headers=bearer(key or app.key))


async def post_form(app: AppFixture, path: str, **form: str) -> httpx.Response:
    return await app.client.post(path, data=form, headers=app.bearer)


def editor_text(text: str) -> str:
    """Return the content of a page's text area."""
    result = re.search(r"<textarea[^>]*>\n(.*?)</textarea>", text, re.DOTALL)
    assert result is not None
    return html.unescape(result[1])


async def test_page_shows_links_and_is_listed_by_folder_type_and_tag(any_database_app: AppFixture) -> None:
    app = any_database_app
    await put(app, "projects/zeppelin", "# Zeppelin\n\nSee [[people/ann]].\n")
    await put(app, "companies/acme", "# Acme\n")
    await put(app, "people/ann", ANN, type="person", tags=["team"], collections=["hangar"])
    page = (await open_page(app, "/memory/people/ann")).text
    assert page.count("<h1>Ann</h1>") == 1
    # A heading that repeats the title is omitted.
    assert ">Ann</h2>" not in page
    assert '<a class="wiki" href="/memory/projects/zeppelin">Zeppelin</a>' in page
    assert 'href="/memory/~new?slug=nobody"' in page
    assert "no page yet" in page
    assert "works at" in page
    assert "Ann works at Acme." in page
    folder = (await open_page(app, "/memory?prefix=people")).text
    assert 'href="/memory/people/ann"' in folder
    browse = (await open_page(app, "/memory")).text
    for name in ("people/", "companies/", "projects/", "person", "team", "hangar"):
        assert f">{name}</a> <span>1</span>" in browse


async def test_pages_need_a_login_and_are_404_for_other_accounts(app: AppFixture) -> None:
    await put(app, "people/ann", ANN)
    response = await app.visitor().get("/memory/people/ann")
    assert (response.status_code, response.headers["Location"]) == (
        303,
        "/signin?next=%2Fmemory%2Fpeople%2Fann",
    )
    form = (await app.visitor().get(response.headers["Location"])).text
    assert '<input type="hidden" name="next" value="/memory/people/ann">' in form
    assert (await app.visitor().post("/memory/people/ann/~delete")).status_code == 401
    edit = await open_page(app, "/memory/people/ann/~edit", app.other)
    assert (edit.status_code, edit.headers["Location"]) == (303, "/memory/people/ann")
    for path in ("/memory/people/ann", "/memory/people/ann/~history"):
        response = await open_page(app, path, app.other)
        assert response.status_code == 404
        assert "Acme" not in response.text
    assert "Ann" not in (await open_page(app, "/memory?q=ann", app.other)).text
    assert (await open_page(app, "/memory", "sf_wrong")).status_code == 401


@pytest.mark.parametrize(
    "path",
    ["//evil.example", "/\\evil.example", "https://evil.example", "/a//b", "/a\n/b", "a", "/", "/" * 9],
)
async def test_sign_in_redirects_to_this_host_only(app: AppFixture, path: str) -> None:
    assert sessions.own_path(path) == ""
    assert 'name="next"' not in (await app.client.get("/signin", params={"next": path})).text
    assert sessions.own_path("/memory/people/ann?version=2") == "/memory/people/ann?version=2"


async def test_read_only_key_reads_and_sees_no_edit_controls(app: AppFixture) -> None:
    await put(app, "a", "# A\n\nA secret [[b]].\n", collections=["open"])
    await put(app, "b", "# Hidden title\n", collections=["closed"])
    key = await app.limited_key(KeyLimits(collections=("open",), read_only=True))
    page = (await open_page(app, "/memory/a", key)).text
    assert "~edit" not in page
    assert "Hidden title" not in page
    assert (await open_page(app, "/memory/b", key)).status_code == 404
    assert (await open_page(app, "/memory/~new", key)).status_code == 403
    response = await app.client.post(
        "/memory/a/~edit", data={"version": "1", "body": "x"}, headers=bearer(key)
    )
    assert response.status_code == 403
    services = await app.limited_key(KeyLimits(services=("media",)))
    assert (await open_page(app, "/memory", services)).status_code == 200


async def test_changes_need_the_csrf_token_of_the_session(app: AppFixture) -> None:
    await put(app, "a", "text")
    token = await signed_in(app)
    for path in (
        "/memory/a/~edit",
        "/memory/a/~delete",
        "/memory/a/~move",
        "/memory/a/~restore",
        "/memory/~new",
    ):
        assert (await app.client.post(path, data={"body": "x", "version": "1"})).status_code == 403
    form = {"csrf": token, "body": "better", "version": "1", "title": "A", "type": "note"}
    assert (await app.client.post("/memory/a/~edit", data=form)).headers["Location"] == "/memory/a"
    stored = await read(app, "a")
    assert (stored["body"], stored["title"], stored["version"]) == ("better", "A", 2)


async def test_saved_form_keeps_unchanged_fields_and_line_endings(app: AppFixture) -> None:
    await put(app, "a", "one\r\ntwo\r\n", tags=["with, comma", "x"])
    page = (await open_page(app, "/memory/a/~edit")).text
    body = editor_text(page).replace("\r\n", "\n")
    await post_form(
        app, "/memory/a/~edit", version="1", body=body + "three\r\n", title="A", tags="with, comma, x"
    )
    stored = await read(app, "a")
    assert stored["body"] == "one\r\ntwo\r\nthree\r\n"
    assert stored["tags"] == ["with, comma", "x"]


@pytest.mark.parametrize("body", ["\n\nstarts empty", "</textarea><script>1</script>", "&amp; &lt;", "a\n"])
async def test_the_editor_shows_exactly_the_text(app: AppFixture, body: str) -> None:
    await put(app, "a", body)
    assert editor_text((await open_page(app, "/memory/a/~edit")).text) == body


async def test_concurrent_edit_is_merged_without_loss(app: AppFixture) -> None:
    await put(app, "a", "# T\n\nfirst\n\nmiddle\n\nlast\n", title="T", tags=["x"])
    await put(app, "a", "# T\n\nfirst of the agent\n\nmiddle\n\nlast\n", tags=["x", "agent"])
    mine = "# T\n\nfirst\n\nmiddle\n\nlast of mine\n"
    response = await post_form(
        app, "/memory/a/~edit", version="1", body=mine, title="T", tags="x, mine", type="note"
    )
    assert response.status_code == 409
    merged = editor_text(response.text)
    assert merged == "# T\n\nfirst of the agent\n\nmiddle\n\nlast of mine\n"
    assert 'value="x, agent, mine"' in response.text
    assert 'name="version" value="2"' in response.text
    assert (await read(app, "a"))["version"] == 2
    form = {"version": "2", "merging": "1", "body": merged, "title": "T", "tags": "x, agent, mine"}
    assert (await post_form(app, "/memory/a/~edit", **form)).status_code == 303
    assert (await read(app, "a"))["body"] == merged


async def test_conflicting_lines_are_marked_and_not_saved(app: AppFixture) -> None:
    await put(app, "a", "old\n", title="T")
    await put(app, "a", "theirs\n", title="Their title")
    answer = await post_form(app, "/memory/a/~edit", version="1", body="mine\n", title="My title")
    marked = editor_text(answer.text)
    assert marked == "<<<<<<< yours\nmine\n=======\ntheirs\n>>>>>>> theirs\n"
    assert "yours is <b>My title</b>, theirs is <b>Their title</b>" in answer.text
    form = {"version": "2", "merging": "1", "body": marked, "title": "T"}
    response = await post_form(app, "/memory/a/~edit", **form)
    assert response.status_code == 409
    assert editor_text(response.text) == marked
    assert (await read(app, "a"))["body"] == "theirs\n"
    assert (await post_form(app, "/memory/a/~edit", **form, action="anyway")).status_code == 303


async def test_editor_shows_the_first_200_conflicts(app: AppFixture) -> None:
    """A page of 600 KB with 50,000 conflicts held the event loop while its HTML was built."""
    texts = ["".join(f"{n}{side}\n\nkept {n}\n\n" for n in range(300)) for side in ("", " theirs", " mine")]
    await put(app, "a", texts[0], title="T")
    await put(app, "a", texts[1], title="T")
    answer = await post_form(app, "/memory/a/~edit", version="1", body=texts[2], title="T")
    assert answer.text.count('<section class="conflict"') == 200
    assert "The first 200 of 300 conflicts are shown" in answer.text
    assert editor_text(answer.text).count("<<<<<<< yours") == 300


async def test_edit_of_a_moved_or_deleted_page_is_kept(app: AppFixture) -> None:
    await put(app, "a", "one\n\ntwo\n", title="T")
    move = {"operation": "rename", "slug": "b"}
    await app.client.patch("/api/pages/a", json=move, headers=app.bearer)
    response = await post_form(app, "/memory/a/~edit", version="1", body="one\n\nmine\n", title="T")
    assert 'action="/memory/b/~edit"' in response.text
    assert editor_text(response.text) == "one\n\nmine\n"
    await app.client.delete("/api/pages/b", headers=app.bearer)
    response = await post_form(app, "/memory/b/~edit", version="2", body="one\n\nmine\n", title="T")
    assert "was deleted while you were editing" in response.text
    assert (
        await post_form(app, "/memory/b/~edit", body=editor_text(response.text), title="T")
    ).status_code == 303
    assert (await read(app, "b"))["body"] == "one\n\nmine\n"


async def test_page_is_created_moved_deleted_and_restored(app: AppFixture) -> None:
    answer = await post_form(app, "/memory/~new", title="Quiet engines", body="Text", type="idea")
    assert answer.headers["Location"] == "/memory/quiet-engines"
    response = await post_form(app, "/memory/~new", slug="quiet-engines", body="typed before")
    assert response.status_code == 409
    assert "choose another slug" in response.text
    assert editor_text(response.text) == "typed before"
    bad = await post_form(app, "/memory/quiet-engines/~move", to="a?b")
    assert bad.status_code == 400
    assert "slug must not contain" in bad.text
    moved = await post_form(app, "/memory/quiet-engines/~move", to="ideas/engines")
    assert moved.headers["Location"] == "/memory/ideas/engines"
    old = await open_page(app, "/memory/quiet-engines")
    assert (old.status_code, old.headers["Location"]) == (308, "/memory/ideas/engines")
    await post_form(app, "/memory/ideas/engines/~delete")
    deleted_page = await open_page(app, "/memory/ideas/engines")
    assert (deleted_page.status_code, ">Restore</button>" in deleted_page.text) == (404, True)
    await post_form(app, "/memory/ideas/engines/~restore", version="1")
    assert (await open_page(app, "/memory/ideas/engines")).status_code == 200


async def test_history_shows_what_changed_and_restores(app: AppFixture) -> None:
    await put(app, "a", "one\ntwo words\n", title="T")
    await put(app, "a", "one\ntwo names\n", tags=["new"])
    page = (await open_page(app, "/memory/a/~history?from=1&to=2")).text
    assert "two <b>words</b>" in page
    assert "two <b>names</b>" in page
    assert "<ins>new</ins>" in page
    old = (await open_page(app, "/memory/a?version=1")).text
    assert "two words" in old
    assert "~edit" not in old
    await post_form(app, "/memory/a/~restore", version="1")
    assert (await read(app, "a"))["body"] == "one\ntwo words\n"
    for query in ("from=x&to=1", "from=1&to=99", "cursor=x"):
        assert (await open_page(app, f"/memory/a/~history?{query}")).status_code in {400, 404}


async def test_inferred_links_are_confirmed_and_dismissed(app: AppFixture) -> None:
    await put(app, "companies/acme", "# Acme\n")
    await put(app, "people/ann", "# Ann\n\nAnn works at Acme.\n", type="person")
    assert 'id="inferred"' in (await open_page(app, "/memory/people/ann")).text
    form = {"to": "companies/acme", "type": "works_at"}

    async def origins() -> list[tuple[str, bool]]:
        return [(link["origin"], link["inferred"]) for link in (await read(app, "people/ann"))["links"]]

    assert await origins() == [("inferred", True)]
    assert (await post_form(app, "/memory/people/ann/~link", **form, action="add")).status_code == 400
    await post_form(app, "/memory/people/ann/~link", **form, action="confirm")
    assert await origins() == [("confirmed", False)]


async def test_tags_in_the_text_are_indexed(any_database_app: AppFixture) -> None:
    app = any_database_app
    await put(app, "a", "For #hangar and `#code`, %%#secret%%.\n", tags=["team"])
    assert ">hangar</a> <span>1</span>" in (await open_page(app, "/memory")).text
    assert 'href="/memory/a"' in (await open_page(app, "/memory?tag=hangar")).text
    page = (await open_page(app, "/memory/a")).text
    assert '<a class="tag" href="/memory?tag=hangar">#hangar</a>' in page
    assert "secret" not in page
    query = {"query": "for", "tags": ["hangar"]}
    response = await app.client.post("/api/search", json={**query, "query": "hangar"}, headers=app.bearer)
    assert [hit["slug"] for hit in response.json()["results"]] == ["a"]
    assert (await read(app, "a"))["tags"] == ["team"]
    await put(app, "a", "For nobody.\n")
    listed_response = await app.client.get("/api/tags", headers=app.bearer)
    assert [row["name"] for row in listed_response.json()["tags"]] == ["team"]


async def test_task_is_checked_in_the_current_version(app: AppFixture) -> None:
    await put(app, "a", "# A\n\n- [ ] one\n- [x] two\n")
    page = (await open_page(app, "/memory/a")).text
    assert page.count('form="tasks"') == 2
    assert (await post_form(app, "/memory/a/~task", version="1", task="2")).status_code == 303
    assert (await read(app, "a"))["body"] == "# A\n\n- [x] one\n- [x] two\n"
    await put(app, "a", "# A\n\nAn agent's line.\n\n- [x] one\n- [x] two\n")
    assert (await post_form(app, "/memory/a/~task", version="2", task="3")).status_code == 303
    assert (await read(app, "a"))["body"] == "# A\n\nAn agent's line.\n\n- [x] one\n- [ ] two\n"
    assert (await post_form(app, "/memory/a/~task", version="2", task="3")).status_code == 409
    assert (await post_form(app, "/memory/a/~task", version="2", task="0")).status_code == 400
    assert (await post_form(app, "/memory/a/~task", version="2", task="x")).status_code == 400


async def test_a_graph_shows_only_visible_pages(any_database_app: AppFixture) -> None:
    app = any_database_app
    await put(app, "open", "# Open\n\n- part_of [[hidden]]\n- near [[other]]\n", collections=["c"])
    await put(app, "hidden", "# Hidden\n")
    await put(app, "other", "# Other\n", collections=["c"])
    page = (await open_page(app, "/memory/open")).text
    graph = page[page.index('id="graph"') :]
    assert graph.count('href="/memory/hidden"') == graph.count('href="/memory/other"') == 2
    assert "part of" in graph
    key = await app.limited_key(KeyLimits(collections=("c",)))
    page = (await open_page(app, "/memory/open", key)).text
    assert "/memory/hidden" not in page
    assert 'id="graph"' not in (await open_page(app, "/memory/open?version=1")).text


async def test_files_are_imported_and_exported(app: AppFixture) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as result:
        result.writestr("people/ann.md", ANN)
    token = await signed_in(app)
    path = "/memory/~import"
    files = {"file": ("notes.zip", archive.getvalue())}
    assert (await app.client.post(path, files=files)).status_code == 403
    response = await app.client.post(path, files=files, data={"csrf": token})
    assert "<b>1</b> created" in response.text
    upload = {"file": ("Weekly Report.md", b"# Report\n")}
    response = await app.client.post(path, files=upload, data={"csrf": token})
    assert response.headers["Location"] == "/memory/weekly-report"
    # Editors on Windows may save a file in UTF-16.
    upload = {"file": ("Wide.md", "# Wide\n".encode("utf-16"))}
    response = await app.client.post(path, files=upload, data={"csrf": token})
    assert response.headers["Location"] == "/memory/wide"
    wrong = {"file": ("notes.zip", b"no archive")}
    assert (await app.client.post(path, files=wrong, data={"csrf": token})).status_code == 400
    out = await app.client.get("/memory/~export")
    with zipfile.ZipFile(io.BytesIO(out.content)) as result:
        assert sorted(result.namelist()) == ["Weekly Report.md", "Wide.md", "people/ann.md"]
        assert result.read("Wide.md") == b"# Wide\n"


async def test_search_results_show_matches_and_link_to_pages(app: AppFixture) -> None:
    await put(app, "projects/zeppelin", "# Zeppelin\n\nQuiet <b>engines</b> for an airship.\n")
    page = (await open_page(app, "/memory/~results?q=quiet+engines")).text
    assert "<mark>Quiet</mark> &lt;b&gt;<mark>engines</mark>&lt;/b&gt;" in page
    assert "<meter" in page
    response = await app.client.post("/api/search", json={"query": "airship"}, headers=app.bearer)
    url = response.json()["results"][0]["url"]
    assert (await open_page(app, url.removeprefix("http://127.0.0.1:8600"))).status_code == 200
    nothing = (await open_page(app, "/memory?q=unheardofword")).text
    assert "No pages match" in nothing
    assert (await open_page(app, f"/memory?q={'x' * 9000}&offset=99999")).status_code == 200


async def test_every_page_has_a_csp_and_no_inline_scripts(app: AppFixture) -> None:
    await put(app, "a/b", ANN)
    paths = ["/memory", "/memory?q=ann", "/memory/a/b", "/memory/a/b/~edit", "/memory/a/b/~history"]
    paths += ["/memory/a/b/~move", "/memory/~new", "/memory/~import", "/memory/none", "/memory/~x"]
    for path in paths:
        page = await open_page(app, path)
        assert page.status_code in {200, 404, 400}, path
        assert "script-src 'self'" in page.headers["Content-Security-Policy"]
        assert not re.search(r"<script(?![^>]*src=)|\son\w+=|style=|javascript:", page.text), path
        assert page.text.count("<h1") == 1, path


async def test_a_preview_keeps_the_links_of_a_moved_page(app: AppFixture) -> None:
    await put(app, "people/ann", "# Ann\n")
    await put(app, "acme", "# Acme\n\n[[Ann]]\n")
    moved = {"to": "team/ann-of-acme"}
    response = await app.client.post("/memory/people/ann/~move", data=moved, headers=app.bearer)
    assert response.status_code == 303, response.text
    form = {"slug": "acme", "body": "# Acme\n\n[[Ann]] and [[Nobody]]\n"}
    page = await app.client.post("/memory/~preview", data=form, headers=app.bearer)
    assert '<a class="wiki" href="/memory/team/ann-of-acme">Ann</a>' in page.text
    assert page.text.count("missing-page") == 1
