"""Memory for responses that clients have not read: which connections are closed above the limit."""

from __future__ import annotations

from sixfold.web.connections.send_memory import SendMemory


class Transport:
    """A transport with unread bytes."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.is_aborted = False

    def get_write_buffer_size(self) -> int:
        return self.size

    def abort(self) -> None:
        self.is_aborted = True
        self.size = 0


def test_the_address_with_the_most_loses_its_largest_connections() -> None:
    memory = SendMemory(100)
    one = Transport(60)
    many = [Transport(size) for size in (10, 15, 20, 5)]
    memory.pause(one, "ada")
    for transport in many:
        memory.pause(transport, "eve")
    assert [one.is_aborted, *(each.is_aborted for each in many)] == [True, False, False, False, False]
    small = Transport(55)
    memory.pause(small, "ada")
    assert [small.is_aborted, *(each.is_aborted for each in many)] == [True, False, False, False, False]
    memory.pause(Transport(30), "eve")
    more = Transport(30)
    memory.pause(more, "ada")
    assert (more.is_aborted, sum(each.size for each in many)) == (False, 50)


def test_bytes_that_were_read_meanwhile_do_not_count() -> None:
    memory = SendMemory(100)
    first, second = Transport(80), Transport(80)
    memory.pause(first, "ada")
    first.size = 10
    memory.pause(second, "ada")
    assert (first.is_aborted, second.is_aborted) == (False, False)
    memory.resume(second)
    third = Transport(85)
    memory.pause(third, "ada")
    assert third.is_aborted is False


def test_bytes_that_were_added_count_at_the_next_check() -> None:
    memory = SendMemory(100)
    first = Transport(80)
    memory.pause(first, "ada")
    first.size = 200
    memory.check()
    assert first.is_aborted


def test_without_a_limit_nothing_is_closed() -> None:
    memory = SendMemory()
    transport = Transport(2**40)
    memory.pause(transport, "ada")
    memory.check()
    assert not transport.is_aborted
