from __future__ import annotations

import contextlib
import ipaddress
import socket
from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sixfold.errors import FetchRefused
from sixfold.net import urls


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://Example.COM", "http://example.com/"),
        ("HTTPS://example.com:443/a?b=c#d", "https://example.com/a?b=c"),
        ("http://example.com:443/", "http://example.com:443/"),
        ("http://example.com?x=1", "http://example.com/?x=1"),
        (
            "http://example.com/a@b:c/%2F%20?u=http://x/&v=[1]",
            "http://example.com/a@b:c/%2F%20?u=http://x/&v=[1]",
        ),
        ("http://example.com/ü/日本.png", "http://example.com/%C3%BC/%E6%97%A5%E6%9C%AC.png"),
        ('http://example.com/{a}|"b"', "http://example.com/%7Ba%7D%7C%22b%22"),
        ("http://bücher.example/", "http://xn--bcher-kva.example/"),
        ("http://例え。テスト/", "http://xn--r8jz45g.xn--zckzah/"),
        ("http://a_b.example/", "http://a_b.example/"),
        ("http://3com.example/", "http://3com.example/"),
        ("http://0x7f.example/", "http://0x7f.example/"),
        ("http://8.8.8.8/", "http://8.8.8.8/"),
        ("http://[2606:4700:0::1111]:80/", "http://[2606:4700::1111]/"),
    ],
)
def test_valid_url_is_normalized(text: str, url: str) -> None:
    assert urls.parse(text).url == url
    assert urls.parse(url).url == url


def test_too_long_url_or_lone_surrogate_is_refused() -> None:
    for text in ("http://example.com/" + "a" * urls.MAX_CHARACTERS, "http://example.com/\ud800"):
        with pytest.raises(FetchRefused):
            urls.parse(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("http://user:secret@example.com/", "a user name or a password"),
        ("http://example.com/a\\b", "a space, a backslash or a control character"),
        ("http://example.com/a b", "a space, a backslash or a control character"),
        ("ftp://example.com/", "must begin with http:// or https://"),
        ("http://127.1/", "its host is not a valid IP address"),
        ("http://example..com/", "its host is not a valid name"),
        ("http://example.com:70000/", "its port must be from 1 to 65535"),
    ],
)
def test_refusal_names_the_reason_and_no_part_of_the_url(text: str, reason: str) -> None:
    with pytest.raises(FetchRefused, match=reason) as excinfo:
        urls.parse(text)
    assert "secret" not in excinfo.value.message


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("/b?c", "https://example.com/b?c"),
        ("b", "https://example.com/a/b"),
        ("?q", "https://example.com/a/x?q"),
        ("//other.example/b", "https://other.example/b"),
        ("https://other.example:443/b", "https://other.example/b"),
    ],
)
def test_redirect_is_resolved_against_its_url(location: str, url: str) -> None:
    assert urls.follow(urls.parse("https://example.com/a/x"), location).url == url


@pytest.mark.parametrize(
    "location",
    [
        "http://example.com/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "//a@b/",
        "/\\b",
        "/a b",
        "//[",
        "\t//x/",
    ],
)
def test_redirect_to_http_or_an_invalid_url_is_refused(location: str) -> None:
    with pytest.raises(FetchRefused):
        urls.follow(urls.parse("https://example.com/a"), location)


@given(st.text(alphabet="0123456789abcdefxX.", min_size=1, max_size=24))
@example("127.1")
@example("0x7f.1")
@example("1.0x")
def test_accepted_names_are_not_addresses_for_the_c_library(host: str) -> None:
    with contextlib.suppress(FetchRefused):
        target = urls.parse(f"http://{host}/")
        if urls.literal(target.host) is None:
            with pytest.raises(OSError, match="illegal IP"):
                socket.inet_aton(target.host)
        else:
            assert socket.inet_aton(target.host) == ipaddress.IPv4Address(target.host).packed


@given(st.text(max_size=40), st.text(max_size=20), st.sampled_from(["http://", "https://", "HTTP:/", ""]))
@example("a@b", "/c", "http://")
@example("[::1]", ":80", "http://")
def test_other_parsers_agree_on_the_host_of_accepted_urls(first: str, second: str, scheme: str) -> None:
    with contextlib.suppress(FetchRefused):
        target = urls.parse(scheme + first + second)
        httpx_url, split_url = httpx.URL(target.url), urlsplit(target.url)
        assert httpx_url.raw_host.decode() == target.host == (split_url.hostname or "")
        assert (httpx_url.port or urls.DEFAULT_PORTS[target.scheme]) == target.port
        assert split_url.username is None
        assert split_url.scheme == target.scheme
        assert target.url.isascii()
        assert target.path.isprintable()
