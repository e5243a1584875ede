"""Keys of a hostile sign-in provider are read in bounded time."""

from __future__ import annotations

import base64
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from sixfold.clients import oidc
from tests import loop_time


def number(bits: int) -> str:
    """Return an odd number of a length in bits, as a member of a key."""
    raw = (2**bits - 1).to_bytes(bits // 8, "big")
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


@pytest.mark.parametrize("bits", [16_000, 4_000_000])
def test_private_keys_are_not_factorized(bits: int) -> None:
    row = {"kty": "RSA", "kid": "k", "n": number(bits), "e": "AQAB", "d": number(bits)}

    def read() -> None:
        if bits > 32_768:
            with pytest.raises(jwt.PyJWKSetError):
                oidc.key_set({"keys": [row]})
        else:
            oidc.key_set({"keys": [row]})

    assert loop_time.cpu_seconds(read, 0.05) < 0.05


def test_a_private_key_is_read_as_its_public_key() -> None:
    private = rsa.generate_private_key(65537, 2048)
    row: dict[str, Any] = RSAAlgorithm.to_jwk(private, as_dict=True)
    (key,) = oidc.key_set({"keys": [{**row, "kid": "k"}, None, [], {"kty": []}]}).keys
    assert isinstance(key.key, rsa.RSAPublicKey)
    assert key.key.public_numbers() == private.public_key().public_numbers()


def test_only_the_first_keys_are_read() -> None:
    row = {"kty": "RSA", "n": number(2048), "e": "AQAB"}
    assert len(oidc.key_set({"keys": [row] * 1_000}).keys) == 100
