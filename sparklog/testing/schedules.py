"""Processes that take turns, by a seed: synchronous code whose every request is a step.

    schedule = Schedule(seed=7, fault_rates=FaultRates(kills=0.01))
    schedule.spawn(writer, disk={"next": 0})     # writer(process): its store, its clock, its sleep
    schedule.run(steps=1000)

Each process is a greenlet. A request is sent in one step, has its effect in a later one, and is
answered in a later one still; between them any other process may have as many as it likes. A
process naps, is killed between any two steps and begins anew with what its `disk` holds, or goes on
later beside its own successor. Time is the number of steps; nothing waits. One seed, one schedule,
as far as the code under test asks `rng`, clock and sleep of its process only.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from greenlet import getcurrent, greenlet

from sparklog.errors import SparklogError
from sparklog.testing.faults import SimulatedKill

T = TypeVar("T")
STEP_MS: Final = 100
BEGAN_MS: Final = 1_700_000_000_000
_NEVER: Final = 10**12


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRates:
    """What happens on its own. Chances, from 0 to 1.

    Attributes:
        writes: a write is lost, unseen (done, without an answer), late, done twice, or comes again.
        reads: a get or a listing has no answer.
        naps: in a step, the process whose turn it is sleeps for `nap_steps` (one of them).
        kills: in a step, the process whose turn it is dies; its successor begins at once.
        zombies: of the processes killed, those that go on after one of `zombie_steps`.
        late_steps: how much later (one of them) a write comes; beyond the end: after everything.
    """

    writes: float = 0
    reads: float = 0
    naps: float = 0
    kills: float = 0
    zombies: float = 0.6
    nap_steps: tuple[int, ...] = (20, 200, 800)
    zombie_steps: tuple[int, ...] = (0, 50, 400)
    late_steps: tuple[int, ...] = (3, 30, 300, _NEVER)


NO_RANDOM_FAULTS: Final = FaultRates()


@dataclass(eq=False, slots=True)
class Process:
    """One life of a role. `disk` outlives it: its successor is given the same."""

    schedule: "Schedule"
    role: "Role"
    disk: Any
    name: str
    skew_ms: int = 0
    restarts: bool = True
    zombies: bool = True
    wakes: int = 0
    dead: bool = False
    main: "Process | None" = None  # of a thread: the process that it belongs to
    threads: "list[Process]" = field(default_factory=list)
    _sent: Callable[[], Any] | None = None
    _answer: tuple[Any, Exception | None] = (None, None)
    _body: greenlet | None = None

    @property
    def rng(self) -> random.Random:
        """The schedule's; as `clock` and `sleep`, to be handed to the code under test."""
        return self.schedule.rng

    @property
    def current(self) -> "Process":
        """The thread of this process that runs; itself where none of them does."""
        running = self.schedule.running
        return running if running is not None and running.main is self else self

    def clock(self) -> int:
        """Milliseconds since the epoch by this process's own clock, which may be wrong."""
        return self.schedule.now_ms() + self.skew_ms

    def monotonic_ms(self) -> float:
        """Milliseconds, for durations."""
        return float(self.schedule.step * STEP_MS)

    def sleep(self, ms: float) -> None:
        """Let `ms` milliseconds pass: at least one step, in which others have their turn."""
        self.idle(max(1, round(ms / STEP_MS)))

    def idle(self, steps: int) -> None:
        """Let others have so many steps."""
        if steps > 0:
            self.current.wakes = self.schedule.step + steps
            self.request(lambda: None)

    def start_thread(self, role: "Role", disk: Any = None) -> "Process":
        """Start one more thread of this process: it shares what it is given, and dies with it."""
        thread = self.schedule.spawn(
            role, disk, name=f"{self.name}.thread", skew_ms=self.skew_ms
        )
        thread.main = self
        self.threads.append(thread)
        return thread

    def request(self, effect: Callable[[], T]) -> T:
        """Send a request; `effect` happens in a later step, this returns in a later one still."""
        if self.current is not self:
            return self.current.request(effect)
        if self.dead:
            raise SimulatedKill(f"{self.name} is dead: it sends nothing")
        if getcurrent() is not self._body:
            raise RuntimeError(f"a request of {self.name} from another thread or process: {effect}")
        self._sent = effect
        self.schedule.switch()
        answer, error = self._answer
        if error is not None:
            raise error
        given: T = answer
        return given

    def take_turn(self) -> bool:
        """Go on by one step; False when the role has ended."""
        if self._sent is not None:
            effect, self._sent = self._sent, None
            try:
                self._answer = effect(), None
            except (SparklogError, OSError) as error:  # an answer of the store
                self._answer = None, error
            return True
        if self._body is None:
            self._body = greenlet(self._live)
        self.schedule.running = self
        try:
            self._body.switch()
        finally:
            self.schedule.running = None
        return not self._body.dead

    def _live(self) -> None:
        try:
            self.role(self)
        except SimulatedKill:
            if not self.dead:
                raise

    def die(self) -> None:
        """End it where it is: no request of its clean-up has an effect."""
        if self._sent is not None and self.schedule.chance(0.5):
            self.take_turn()  # what was sent is done all the same
        self.dead, self._sent = True, None
        if self._body is not None and not self._body.dead:
            self.schedule.running = self
            try:
                self._body.throw(SimulatedKill(f"{self.name} was killed"))
            finally:
                self.schedule.running = None


Role = Callable[[Process], None]


@dataclass(slots=True)
class Schedule:
    """Who has the next step, and what befalls them. `stats` counts what happened."""

    seed: int
    fault_rates: FaultRates = NO_RANDOM_FAULTS
    processes_max: int = 14
    step: int = 0
    stats: Counter[str] = field(default_factory=Counter)
    rng: random.Random = field(init=False)
    processes: list[Process] = field(default_factory=list)
    before_step: list[Callable[[], None]] = field(default_factory=list)
    running: Process | None = None  # whose turn it is
    _main: greenlet = field(default_factory=getcurrent)
    _born: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    def now_ms(self) -> int:
        """The true time: the store's."""
        return BEGAN_MS + self.step * STEP_MS

    def chance(self, p: float) -> bool:
        """Tell whether what has chance `p` happens."""
        return p > 0 and self.rng.random() < p

    def switch(self) -> None:
        """Give the turn back; for `Process.request`."""
        self._main.switch()

    def spawn(
        self,
        role: Role,
        disk: Any = None,
        *,
        name: str = "",
        skew_ms: int = 0,
        restarts: bool = True,
        zombies: bool = True,
    ) -> Process:
        """Start a process. Killed, it has a successor (`restarts`), or also goes on (`zombies`).

        Without `restarts` nobody kills it.
        """
        self._born += 1
        readable = f"{name or getattr(role, '__name__', 'process')}#{self._born}"
        process = Process(self, role, disk, readable, skew_ms, restarts, zombies)
        self.processes.append(process)
        return process

    def run(self, steps: int) -> None:
        """Let `steps` more steps pass, or fewer if all processes end. Raises what a role raises."""
        end = self.step + steps
        try:
            self._run(end)
        except BaseException:
            self.clear()
            raise

    def _run(self, end: int) -> None:
        while self.step < end and self.processes:
            for each in self.before_step:
                each()
            ready = [p for p in self.processes if p.wakes <= self.step]
            if not ready:
                self.step = min(end, *(p.wakes for p in self.processes))
                continue
            self._turn(self.rng.choice(ready))
            self.step += 1

    def run_alone(self, role: Role, *, name: str = "", steps: int = 100_000_000) -> None:
        """Run one process to its end, with no other beside it."""
        others, self.processes = self.processes, []
        process = self.spawn(role, name=name, restarts=False)
        self.run(steps)
        if self.processes:
            raise AssertionError(f"{process.name} didn't end within {steps} steps")
        self.processes = others

    def clear(self) -> None:
        """Kill all that is left."""
        for process in self.processes:
            process.die()
        self.processes = []

    def wake_all(self) -> None:
        """End all naps and sleeps."""
        for process in self.processes:
            process.wakes = min(process.wakes, self.step)

    def _turn(self, process: Process) -> None:
        if self.chance(self.fault_rates.naps):
            process.wakes = self.step + self.rng.choice(self.fault_rates.nap_steps)
        elif process.restarts and self.chance(self.fault_rates.kills):
            self._kill(process)
        elif not process.take_turn():
            self.processes.remove(process)

    def _kill(self, process: Process) -> None:
        """A zombie isn't dead: its successor was started because it stood still."""
        process = process.main or process
        all_threads = [p for p in (process, *process.threads) if p in self.processes]
        crowded = len(self.processes) >= self.processes_max
        if process.zombies and not crowded and self.chance(self.fault_rates.zombies):
            wakes = self.step + self.rng.choice(self.fault_rates.zombie_steps)
            for each in all_threads:
                each.wakes = max(each.wakes, wakes)
            self.stats["zombies"] += 1
        else:
            for each in all_threads:
                self.processes.remove(each)
                each.die()
            self.stats["kills"] += 1
        name = process.name.partition("#")[0]
        self.spawn(
            process.role, process.disk, name=name, skew_ms=process.skew_ms, zombies=process.zombies
        )
