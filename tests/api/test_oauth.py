"""OAuth 2.1: client registration, consent, and tokens that expire."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import secrets
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from sixfold.core.accounts.authentication import oauth
from sixfold.core.clock import DAY_US
from sixfold.core.database import Query
from tests.api.app_fixture import ORIGIN, AppFixture, bearer
from tests.api.test_pages import link, signed_in

BACK = "https://assistant.example/callback"
TOKEN, AUTHORIZE = "/oauth/token", "/oauth/authorize"


class OAuthClient:
    """A client in the authorization flow: its verifier, and its tokens."""

    def __init__(self, app: AppFixture, client_id: str) -> None:
        self.app = app
        self.id = client_id
        self.verifier = secrets.token_urlsafe(48)
        digest = hashlib.sha256(self.verifier.encode()).digest()
        self.challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()

    @classmethod
    async def registered(cls, app: AppFixture, *uris: str) -> OAuthClient:
        body = {"client_name": "A helpful  assistant", "redirect_uris": list(uris or (BACK,))}
        response = await app.client.post("/oauth/register", json=body)
        assert response.status_code == 201, response.text
        assert response.json()["token_endpoint_auth_method"] == "none"
        return cls(app, response.json()["client_id"])

    def asks(self, **changes: str) -> dict[str, str]:
        return {
            "response_type": "code",
            "client_id": self.id,
            "redirect_uri": BACK,
            "code_challenge": self.challenge,
            "code_challenge_method": "S256",
            "state": "a state",
            **changes,
        }

    async def let_in(self, decision: str = "allow", **changes: str) -> dict[str, str]:
        """Return the parameters that the client receives after the user's decision."""
        csrf = await signed_in(self.app)
        form = {**self.asks(**changes), "csrf": csrf, "decision": decision}
        return token_error(await self.app.client.post(AUTHORIZE, data=form, headers={"Origin": ORIGIN}))

    async def token(self, **form: str) -> httpx.Response:
        return await self.app.client.post(TOKEN, data={"client_id": self.id, **form})

    async def change(self, code: str, **changes: str) -> httpx.Response:
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": BACK}
        return await self.token(**{**form, "code_verifier": self.verifier, **changes})

    async def refresh(self, token: str) -> httpx.Response:
        return await self.token(grant_type="refresh_token", refresh_token=token)

    async def tokens(self, **changes: str) -> dict[str, Any]:
        response = await self.change((await self.let_in(**changes))["code"])
        assert response.status_code == 200, response.text
        return response.json()


def token_error(answer: httpx.Response) -> dict[str, str]:
    assert answer.status_code == 303, answer.text
    target = urlsplit(answer.headers["location"])
    return {name: values[0] for name, values in parse_qs(target.query).items()}


async def tools(app: AppFixture, token: str) -> httpx.Response:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    return await app.visitor().post("/mcp", json=body, headers=bearer(token))


async def test_401_of_mcp_links_to_the_oauth_metadata(app: AppFixture) -> None:
    response = await app.client.post("/mcp", json={})
    assert response.status_code == 401
    result = re.search(r'resource_metadata="([^"]+)"', response.headers["www-authenticate"])
    assert result is not None
    resource = (await app.client.get(result[1])).json()
    assert resource["resource"] == f"{ORIGIN}/mcp"
    metadata_url = f"{resource['authorization_servers'][0]}/.well-known/oauth-authorization-server"
    server = (await app.client.get(metadata_url)).json()
    assert server["code_challenge_methods_supported"] == ["S256"]
    assert server["registration_endpoint"] == f"{ORIGIN}/oauth/register"


async def test_user_signs_in_reads_the_consent_and_approves(app: AppFixture) -> None:
    program = await OAuthClient.registered(app)
    first = await app.client.get(AUTHORIZE, params=program.asks())
    assert first.status_code == 303
    await app.client.get("/signin", params={"token": await link(app)})
    page = await app.client.get(parse_qs(urlsplit(first.headers["location"]).query)["next"][0])
    assert page.status_code == 200
    for words in ("A helpful assistant", "assistant.example", "Read and write the memory", app.account.email):
        assert words in page.text
    assert "form-action 'self' https://assistant.example" in page.headers["Content-Security-Policy"]
    back = await program.let_in()
    assert (back["state"], back["iss"]) == ("a state", ORIGIN)
    tokens = (await program.change(back["code"])).json()
    assert tokens["token_type"] == "Bearer"
    names = [tool["name"] for tool in (await tools(app, tokens["access_token"])).json()["result"]["tools"]]
    assert "write" in names
    assert "run" not in names, "it was let into the memory alone"
    runs = {"model": "ra1", "input": {"prompt": "x"}}
    forbidden = await app.visitor().post(
        "/api/containers/run", json=runs, headers=bearer(tokens["access_token"])
    )
    assert forbidden.status_code == 403


async def test_token_has_only_the_rights_of_its_scope(app: AppFixture) -> None:
    tokens = await (await OAuthClient.registered(app)).tokens(scope="memory.read")
    page = {"slug": "a", "body": "b"}
    written = await app.visitor().post("/api/pages", json=page, headers=bearer(tokens["access_token"]))
    assert written.status_code == 403
    assert tokens["scope"] == "memory.read"


async def test_denied_consent_returns_access_denied(app: AppFixture) -> None:
    back = await (await OAuthClient.registered(app)).let_in(decision="deny")
    assert back["error"] == "access_denied"
    assert "code" not in back


async def test_code_is_valid_once_for_its_client_and_verifier(app: AppFixture) -> None:
    program, other = await OAuthClient.registered(app), await OAuthClient.registered(app)
    code = (await program.let_in())["code"]
    for wrong in ({"code_verifier": "x" * 43}, {"redirect_uri": BACK + "x"}, {"client_id": other.id}):
        response = await program.change(code, **wrong)
        assert (response.status_code, response.json()["error"]) == (400, "invalid_grant"), wrong
    tokens = (await program.change(code)).json()
    assert (await tools(app, tokens["access_token"])).status_code == 200
    assert (await program.change(code)).json()["error"] == "invalid_grant"
    assert (await tools(app, tokens["access_token"])).status_code == 401, "a code that comes twice was stolen"


async def test_reused_refresh_token_ends_the_grant(app: AppFixture) -> None:
    program = await OAuthClient.registered(app)
    first = await program.tokens()
    second = (await program.refresh(first["refresh_token"])).json()
    assert (await tools(app, first["access_token"])).status_code == 401
    assert (await tools(app, second["access_token"])).status_code == 200
    assert (await program.refresh(first["refresh_token"])).json()["error"] == "invalid_grant"
    assert (await tools(app, second["access_token"])).status_code == 401
    assert (await program.refresh(second["refresh_token"])).json()["error"] == "invalid_grant"


async def test_concurrent_refreshes_leave_at_most_one_valid_token(app: AppFixture) -> None:
    program = await OAuthClient.registered(app)
    first = await program.tokens()
    responses = await asyncio.gather(*(program.refresh(first["refresh_token"]) for _ in range(4)))
    won = [response.json() for response in responses if response.status_code == 200]
    assert {response.json()["error"] for response in responses if response.status_code != 200} == {
        "invalid_grant"
    }
    living = [(await tools(app, tokens["access_token"])).status_code == 200 for tokens in won]
    assert sum(living) <= 1


@pytest.mark.parametrize("kind", ["access_token", "refresh_token"])
async def test_a_grant_is_ended_by_either_of_its_tokens(app: AppFixture, kind: str) -> None:
    program = await OAuthClient.registered(app)
    tokens = await program.tokens()
    assert (await app.client.post("/oauth/revoke", data={"token": tokens[kind]})).status_code == 200
    assert (await tools(app, tokens["access_token"])).status_code == 401
    assert (await program.refresh(tokens["refresh_token"])).status_code == 400
    assert (await app.client.post("/oauth/revoke", data={"token": "unknown"})).status_code == 200


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"code_challenge": ""}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"scope": "everything"}, "invalid_scope"),
        ({"resource": "https://elsewhere.example/mcp"}, "invalid_target"),
    ],
)
async def test_invalid_request_is_reported_to_the_client(
    app: AppFixture, changes: dict[str, str], code: str
) -> None:
    program = await OAuthClient.registered(app)
    unknown = await app.visitor().get(AUTHORIZE, params=program.asks(**changes))
    assert (unknown.status_code, "location" in unknown.headers) == (400, False)
    assert code in unknown.text
    await app.client.get("/signin", params={"token": await link(app)})
    back = token_error(await app.client.get(AUTHORIZE, params=program.asks(**changes)))
    assert (back["error"], back["state"]) == (code, "a state")


async def test_unregistered_redirect_uris_get_no_redirect(app: AppFixture) -> None:
    program = await OAuthClient.registered(app)
    for changes in (
        {"redirect_uri": "https://thief.example/"},
        {"client_id": "client_x"},
        {"redirect_uri": ""},
    ):
        response = await app.client.get(AUTHORIZE, params=program.asks(**changes))
        # An empty URI selects the registered one.
        if changes.get("redirect_uri") == "":
            assert response.status_code == 303
        else:
            assert response.status_code == 400
            assert "location" not in response.headers


async def test_loopback_redirect_uri_may_have_any_port(app: AppFixture) -> None:
    program = await OAuthClient.registered(app, "http://127.0.0.1/callback")
    good = await app.client.get(AUTHORIZE, params=program.asks(redirect_uri="http://127.0.0.1:5577/callback"))
    assert good.status_code == 303
    bad = await app.client.get(AUTHORIZE, params=program.asks(redirect_uri="http://127.0.0.1:5577/other"))
    assert bad.status_code == 400


@pytest.mark.parametrize(
    "form", [b"token=%FF", b"token=\xff", "&".join(f"f{i}=1" for i in range(21)).encode()]
)
async def test_a_form_that_cannot_be_parsed_is_refused(app: AppFixture, form: bytes) -> None:
    content_type = {"Content-Type": "application/x-www-form-urlencoded"}
    response = await app.client.post(TOKEN, content=form, headers=content_type)
    assert (response.status_code, response.json()["error"]) == (400, "invalid_request")
    assert response.json()["error_description"] == "The form must be URL-encoded UTF-8 with at most 20 fields"


@pytest.mark.parametrize(
    "uri",
    [
        "javascript:alert(1)",
        "http://assistant.example/x",
        "https://a.example/#x",
        "data:text/html,x",
        "",
        7,
        "*",
    ],
)
async def test_invalid_redirect_uri_cannot_be_registered(app: AppFixture, uri: Any) -> None:
    response = await app.client.post("/oauth/register", json={"redirect_uris": [uri]})
    assert (response.status_code, response.json()["error"]) == (400, "invalid_redirect_uri")


async def test_cross_site_or_forged_consent_is_403(app: AppFixture) -> None:
    program = await OAuthClient.registered(app)
    csrf = await signed_in(app)
    form = {**program.asks(), "decision": "allow", "csrf": csrf}
    foreign = await app.client.post(AUTHORIZE, data=form, headers={"Origin": "https://thief.example"})
    forged = await app.client.post(AUTHORIZE, data={**form, "csrf": "x"}, headers={"Origin": ORIGIN})
    assert (foreign.status_code, forged.status_code) == (403, 403)


async def test_expired_grants_and_unused_clients_are_deleted(app: AppFixture) -> None:
    program, idle = await OAuthClient.registered(app), await OAuthClient.registered(app)
    await program.tokens()
    database = app.database
    later = (await database.read(oauth.client(program.id))).created_at + 2 * DAY_US
    rows = await database.write(_forget_before(later))
    assert rows == [idle.id]
    await database.write(oauth.sweep())
    assert (await database.read(oauth.client(program.id))).name == "A helpful assistant"


def _forget_before(moment: int) -> Any:
    rows = yield Query("oauth_sweep_clients", {"before": moment})
    return [row["id"] for row in rows]
