"""The content of client secrets, which no server stores."""

from __future__ import annotations

import pytest

from sixfold import errors
from sixfold.core.gateway.realtime.client_secrets import MAX_CHARS, ClientSecret, ClientSecretCipher

CIPHER = ClientSecretCipher(b"k" * 32)


def test_a_secret_is_read_until_it_expires() -> None:
    value = CIPHER.encrypt("key_1", 1_000, {"instructions": "Be short"})
    assert CIPHER.decrypt(value, 999) == ClientSecret("key_1", 1_000, {"instructions": "Be short"})
    assert set(value) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
    assert CIPHER.encrypt("key_1", 1_000, {}) != CIPHER.encrypt("key_1", 1_000, {})
    with pytest.raises(errors.Unauthenticated, match="expired"):
        CIPHER.decrypt(value, 1_000)


def test_a_changed_secret_is_invalid() -> None:
    value = CIPHER.encrypt("key_1", 1_000, {})
    changed_value = value[:-2] + ("A" if value[-2] != "A" else "B") + value[-1]
    for text in (changed_value, value[:-4], "ek_", "ek_é", value + "A" * MAX_CHARS):
        with pytest.raises(errors.Unauthenticated, match="Invalid client secret"):
            CIPHER.decrypt(text, 0)


def test_a_session_that_no_header_holds_is_refused() -> None:
    CIPHER.encrypt("key_1", 1_000, {"instructions": "word " * 5_000})
    with pytest.raises(errors.TooLarge, match=r"session\.update"):
        CIPHER.encrypt("key_1", 1_000, {"instructions": "".join(map(chr, range(300, 30_000)))})
