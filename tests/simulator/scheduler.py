"""Actors as greenlets in one thread: before each store operation, and while one sleeps, a seeded choice says who goes
on.

Time is the scheduler's; every actor has a clock of its own that may be off, frozen, drifting or set back and forth.
Faults are drawn from the same seed. The same seed gives the same history, operation for operation. Knows neither tables
nor what must hold.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from greenlet import getcurrent, greenlet
from shared_store import Died

from hoodoo.timeline.environment import Environment, Together, in_order

START_MS = 1_760_000_000_000
PUTS = ("put_if_absent", "put")
_MORE = 8
_HOURS_2 = 7_200_000
_SKEWS = (0, 0, 0, 40, -40, 5_000, -5_000, _HOURS_2, -_HOURS_2)


@dataclass(eq=False)
class Actor:
    """One process. `token` draws are reported to `on_token`, so that an oracle knows whose nonce a slot carries."""

    name: str
    rng: random.Random
    clock: str = "steady"
    skew: int = 0
    drift: float = 0.0
    dead: bool = False
    sound: bool = False  # no faults happen to it: those who set up and who recover
    wake_at: int = 0
    stalled_until: int = 0
    outage: int = 0
    request_ms: int = 0  # how long its requests are under way, beside the steps of others
    slept_ms: int = 0
    thread: Any = None
    on_token: Callable[[str], None] = lambda token: None


@dataclass
class Faults:
    """Chances, per store operation, of each fault."""

    rng: random.Random
    lost: float = 0.0
    reply_lost: float = 0.0
    late: float = 0.0
    die: float = 0.0
    die_after: float = 0.0
    outage: float = 0.0
    stall: float = 0.0
    hold: float = 0.0  # an actor pauses before it puts a key below `crucial`, where faults are also more frequent
    crucial: tuple[str, ...] = ()
    table: list[tuple[float, str]] = field(init=False)

    def __post_init__(self) -> None:
        total, self.table = 0.0, []
        chances = {
            "lost": self.lost,
            "reply lost": self.reply_lost,
            "late": self.late,
            "die": self.die,
            "die after": self.die_after,
            "outage": self.outage,
        }
        for name, chance in chances.items():
            total += chance
            self.table.append((total, name))

    def choose(self, actor: Actor, operation: str, key: str) -> str:
        if actor.sound:
            return ""
        if actor.outage:
            actor.outage -= 1
            return "lost"
        draw = self.rng.random() / (_MORE if operation in PUTS and key.startswith(self.crucial) else 1)
        if draw >= self.table[-1][0]:
            return ""
        name = next(name for bound, name in self.table if draw < bound)
        if name == "outage":
            actor.outage = self.rng.randint(2, 12)
            return "lost"
        return name


@dataclass
class Message:
    """A request that its sender has given up on and that arrives after all."""

    due: int
    sender: str
    operation: str
    key: str
    effect: Callable[[], None]


class Scheduler:
    def __init__(
        self, rng: random.Random, faults: Faults, burst: float, print_steps: Callable[[str], None] | None = None
    ) -> None:
        self.rng, self.faults, self.burst, self.print_steps = rng, faults, burst, print_steps
        self.now, self.steps = START_MS, 0
        self.actors: list[Actor] = []
        self.messages: list[Message] = []
        self.history: list[tuple[int, str, str, str, str]] = []
        self.digest = hashlib.sha256()
        self.stopped: Callable[[], bool] = lambda: False  # something broke: nobody goes on
        self.after_step: Callable[[], None] = lambda: None
        self.together: Together = in_order
        self._hub = getcurrent()

    # ---- actors
    def start(self, actor: Actor, run: Callable[[], None]) -> None:
        def body() -> None:
            try:
                run()
            except Died:
                actor.dead = True

        actor.thread = greenlet(body, self._hub)
        self.actors.append(actor)

    def environment(self, actor: Actor) -> Environment:
        def token() -> str:
            drawn = f"{actor.rng.getrandbits(128):032x}"
            actor.on_token(drawn)
            return drawn

        return Environment(
            lambda: self.clock(actor),
            token,
            actor.rng.random,
            lambda seconds: self.sleep(actor, seconds),
            lambda: actor.name,
            lambda: (self.now - START_MS) / 1000,
            self.together,
        )

    def clock(self, actor: Actor) -> int:
        if actor.clock == "frozen":
            return START_MS + actor.skew
        if actor.clock == "jumping" and actor.rng.random() < 0.05:
            actor.skew = actor.rng.choice(_SKEWS)
        return self.now + actor.skew + int((self.now - START_MS) * actor.drift)

    def before(self, actor: Actor, operation: str, key: str) -> None:
        """`actor` is about to do this to the store: let the scheduler decide who goes on."""
        if (
            self.faults.hold
            and operation in PUTS
            and key.startswith(self.faults.crucial)
            and self.rng.random() < self.faults.hold
        ):
            actor.stalled_until = self.steps + self.rng.choice((15, 60, 400, 1500))
        actor.wake_at = max(actor.wake_at, self.now + actor.request_ms // 2)
        self.switch(actor)

    def after(self, actor: Actor) -> None:
        """The store did what `actor` asked; the answer is under way."""
        if actor.request_ms and actor.thread is not None:
            actor.wake_at = self.now + actor.request_ms // 2
            self.switch(actor)

    def switch(self, actor: Actor) -> None:
        """Let the scheduler decide who goes on."""
        if actor.dead:
            raise Died
        if actor.thread is None:
            self.tick()
            return
        self._hub.switch()
        if actor.dead:
            raise Died

    def sleep(self, actor: Actor, seconds: float) -> None:
        actor.slept_ms += int(seconds * 1000)
        if actor.thread is None:
            self.now += int(seconds * 1000) + 1
            return
        actor.wake_at = self.now + int(seconds * 1000)
        self.record(actor, "sleep", f"{seconds:.3f} s", "")
        self.switch(actor)

    def leap(self, actor: Actor, hours: float) -> None:
        """Nobody does anything for a long time."""
        self.record(actor, "--", f"{hours:.0f} hours pass", "")
        self.now += int(hours * 3_600_000)

    def send_late(self, actor: Actor, operation: str, key: str, effect: Callable[[], None]) -> None:
        for _ in range(self.rng.choice((1, 1, 2))):
            self.messages.append(Message(self.steps + self.rng.randint(1, 80), actor.name, operation, key, effect))

    # ---- what happened
    def record(self, actor: Actor, operation: str, key: str, fault: str) -> None:
        self._record(actor.name, operation, key, fault)

    def _record(self, name: str, operation: str, key: str, fault: str) -> None:
        entry = self.now - START_MS, name, operation, key, fault
        self.history.append(entry)
        self.digest.update(repr(entry).encode())
        if self.print_steps:
            self.print_steps(line(entry))

    def outcome(self, text: str) -> None:
        """What the store answered to the operation recorded last, if not yes."""
        at, name, operation, key, fault = self.history[-1]
        self.history[-1] = at, name, operation, key, f"{fault} {text}".strip()

    def note(self, actor: Actor, text: str) -> None:
        """Something worth reading in a replay that is no store operation."""
        self._record(actor.name, "--", text, "")

    # ---- the loop
    def tick(self) -> None:
        """One step is over: time passes, what must hold is looked at, late requests arrive."""
        self.steps += 1
        self.now += self.rng.choice((0, 0, 1, 1, 2, 7))
        self.after_step()
        if self.messages:
            self._deliver([message for message in self.messages if message.due <= self.steps])

    def _deliver(self, due: list[Message]) -> None:
        for message in due:
            self.messages.remove(message)
            self._record(message.sender, f"late {message.operation}", message.key, "")
            message.effect()
            self.after_step()

    def deliver_all(self) -> None:
        self._deliver(sorted(self.messages, key=lambda message: message.due))

    def run(self, most_steps: int) -> bool:
        """Run all actors to their ends; False if they do not end in `most_steps`."""
        last: Actor | None = None
        while not self.stopped():
            alive = [actor for actor in self.actors if not actor.thread.dead]
            if not alive:
                return True
            if self.steps > most_steps:
                return False
            last = self._next(alive, last)
            last.thread.switch()
            self.tick()
        return True

    def _next(self, alive: list[Actor], last: Actor | None) -> Actor:
        if (
            last in alive
            and last is not None
            and last.wake_at <= self.now
            and last.stalled_until <= self.steps
            and self.rng.random() < self.burst
        ):
            return last
        if self.faults.stall and self.rng.random() < self.faults.stall:
            self.rng.choice(alive).stalled_until = self.steps + self.rng.randint(10, 200)
        awake = [actor for actor in alive if actor.wake_at <= self.now]
        if not awake:
            self.now = min(actor.wake_at for actor in alive)
            awake = [actor for actor in alive if actor.wake_at <= self.now]
        ready = [actor for actor in awake if actor.stalled_until <= self.steps]
        return self.rng.choice(ready or awake)

    def close(self) -> None:
        """End whoever still waits, so that no greenlet outlives its simulation."""
        for actor in self.actors:
            actor.dead = True
            while not actor.thread.dead:
                actor.thread.switch()


def line(entry: tuple[int, str, str, str, str]) -> str:
    at, name, operation, key, fault = entry
    return f"{at:>9} ms  {name:<14} {operation:<14} {key}{f'   [{fault}]' if fault else ''}"
