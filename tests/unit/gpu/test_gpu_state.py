"""The rule that grants uses of a GPU, run through many random histories."""

from __future__ import annotations

import random

import pytest

from sixfold.core.gpu import state as gpu_state
from sixfold.core.gpu.state import GpuState, Residency, Ticket

TURN = 20.0
MODELS = [("ollama", f"m{n}", 3 * n) for n in range(5)] + [("comfyui", f"c{n}", 4 + 3 * n) for n in range(3)]


class Machine:
    """A GPU of 16 units with a clock that the test sets."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)  # noqa: S311 - reproducible histories
        # Whether the holders make room among their own models.
        self.self_managed = seed % 2 == 1
        self.state = GpuState(total=17, others=1)
        self.now = 0.0
        self.ticket_count = 0
        self.granted: dict[str, float] = {}

    def ask(self) -> None:
        holder, model, size = self.draw.choice(MODELS)
        self.ticket_count += 1
        known = None if self.draw.random() < 0.1 else size
        ticket = Ticket(
            f"t{self.ticket_count}", "p", holder, model, known, self.now, self_managed=self.self_managed
        )
        self.state.tickets.append(ticket)

    def end(self) -> None:
        started_tickets = [ticket for ticket in self.state.tickets if ticket.state != "waiting"]
        if started_tickets:
            gpu_state.withdraw(self.state, self.draw.choice(started_tickets).id, self.now)

    def give_up(self) -> None:
        waiting_tickets = [ticket for ticket in self.state.tickets if ticket.state == "waiting"]
        if waiting_tickets:
            gpu_state.withdraw(self.state, self.draw.choice(waiting_tickets).id, self.now)

    def finish_switch(self) -> None:
        for ticket in self.state.tickets:
            if ticket.state == "switching":
                for victim in ticket.victims:
                    gpu_state.remove_resident(self.state, victim)
                ticket.state, ticket.victims = "running", []

    def step(self) -> None:
        gpu_state.advance(self.state, TURN, self.now)
        self.check()

    def check(self) -> None:
        state, used = self.state, gpu_state.active(self.state)
        sizes = [size for size in used.values() if size]
        assert sum(sizes) <= state.capacity or len(sizes) == 1, used
        assert sum(ticket.state == "switching" for ticket in state.tickets) <= 1
        for ticket in state.tickets:
            assert not set(ticket.victims) & used.keys()
            if ticket.state != "waiting":
                self.granted.setdefault(ticket.id, self.now)
        if not self.self_managed and all(ticket.state != "switching" for ticket in state.tickets):
            idle = sum(each.size for each in state.residents if each.key not in used)
            assert sum(sizes) + idle <= state.capacity or len(sizes) <= 1


@pytest.mark.parametrize("seed", range(40))
def test_random_uses_never_exceed_memory_and_all_end(seed: int) -> None:
    machine = Machine(seed)
    for _ in range(250):
        machine.now += machine.draw.random() * 5
        machine.draw.choices(
            (machine.ask, machine.end, machine.finish_switch, machine.give_up), (5, 4, 4, 1)
        )[0]()
        machine.step()
    # Without further requests, every one that still waits is served.
    for _ in range(3 * len(machine.state.tickets) + 3):
        machine.finish_switch()
        machine.end()
        machine.now += 1
        machine.step()
    assert not machine.state.tickets


@pytest.mark.parametrize("seed", range(8))
def test_a_steady_stream_of_others_starves_no_use(seed: int) -> None:
    machine = Machine(seed)
    stream = [Ticket(f"s{n}", "p", "ollama", "chat", 10, 0.0) for n in range(2000)]
    machine.state.tickets.append(stream.pop())
    machine.step()
    machine.state.tickets.append(Ticket("image", "p", "comfyui", "sd", 10, machine.now))
    waited_from = machine.now
    for _ in range(500):
        machine.state.tickets.append(stream.pop())
        machine.now += 1
        machine.finish_switch()
        # Each chat takes three seconds.
        running_tickets = [ticket for ticket in machine.state.tickets if ticket.state == "running"]
        if running_tickets and machine.now % 3 < 1 and running_tickets[0].holder == "ollama":
            gpu_state.withdraw(machine.state, running_tickets[0].id, machine.now)
        machine.step()
        if "image" in machine.granted:
            break
    ahead = sum(ticket.holder == "ollama" for ticket in machine.state.tickets if ticket.state == "running")
    assert ahead == 0
    # A turn, and the ends of the calls that were in progress then.
    assert TURN <= machine.granted["image"] - waited_from <= TURN + 3 * (TURN + 1)


def test_calls_of_the_model_in_use_pass_until_the_turn_ends() -> None:
    state = GpuState(total=10)
    for number, holder in enumerate(("ollama", "comfyui", "ollama")):
        state.tickets.append(Ticket(f"{number}", "p", holder, "m", 8, 0.0))
    gpu_state.advance(state, TURN, 0.0)
    assert [ticket.state for ticket in state.tickets] == ["running", "waiting", "running"]
    state.tickets.append(Ticket("3", "p", "ollama", "m", 8, 0.0))
    gpu_state.advance(state, TURN, TURN)
    assert [ticket.state for ticket in state.tickets] == ["running", "waiting", "running", "waiting"]
    for number in "02":
        gpu_state.withdraw(state, number, TURN)
    gpu_state.advance(state, TURN, TURN + 1)
    assert [(ticket.id, ticket.state) for ticket in state.tickets] == [("1", "switching"), ("3", "waiting")]
    assert state.tickets[0].victims == [("ollama", "m", "")]


def test_model_that_fits_runs_without_unloading_others() -> None:
    state = GpuState(total=24, residents=[Residency("comfyui", "sd", 7)])
    state.tickets += [Ticket("a", "p", "ollama", "m", 8, 0.0), Ticket("b", "p", "comfyui", "sd", 7, 0.0)]
    gpu_state.advance(state, TURN, 0.0)
    assert [(ticket.state, ticket.loads) for ticket in state.tickets] == [
        ("running", True),
        ("running", False),
    ]


def test_ended_process_frees_its_memory_and_tickets() -> None:
    state = GpuState(total=10, residents=[Residency("weights", "sdxl", 6, private="dead")])
    state.tickets += [Ticket("a", "dead", "ollama", "m", 8, 0.0), Ticket("b", "p", "comfyui", "sd", 7, 0.0)]
    gpu_state.advance(state, TURN, 0.0)
    assert state.tickets[1].state == "waiting"
    assert gpu_state.drop_owners(state, {"dead"})
    gpu_state.advance(state, TURN, 0.0)
    assert [ticket.id for ticket in state.tickets] == ["b"]
    assert [each.private for each in state.residents] == [""] * len(state.residents)
