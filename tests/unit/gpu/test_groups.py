"""The setting that names the programs of each GPU."""

from __future__ import annotations

import pytest

from sixfold.core.gpu import groups


def test_programs_of_this_machine_share_a_gpu_by_default() -> None:
    (group,) = groups.parse(())
    assert all(
        group.has_server(url)
        for url in (
            "http://127.0.0.1:11434/v1",
            "http://localhost:8188",
            "http://[::1]:1",
            "http://127.0.0.2:1",
        )
    )
    assert not group.has_server("http://gpu-box:11434/v1")
    assert groups.parse(("off",)) == ()


def test_groups_name_programs_by_host_and_port() -> None:
    card, box = groups.parse(("card0=127.0.0.1:11434+weights@24", "box=gpu-box"))
    assert (card.has_server("http://127.0.0.1:11434/v1"), card.has_server("http://127.0.0.1:8188")) == (
        True,
        False,
    )
    assert (card.memory_bytes, card.is_local, "weights" in card.members) == (24 * 2**30, True, True)
    assert (box.has_server("http://gpu-box:8188"), box.is_local, box.memory_bytes) == (True, False, 0)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (("card0",), "must be entries such as"),
        (("a=127.0.0.1@x",), "must be a number of GiB"),
        (("a=127.0.0.1", "b=localhost"), "share a member"),
        ([f"g{n}=h{n}" for n in range(17)], "at most 16 entries"),
    ],
)
def test_wrong_groups_are_refused_in_a_sentence(entries: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        groups.parse(entries)
