"""Processes that take turns, by a seed: every request of synchronous code is a step.

    schedule = Schedule(seed=7, fault_rates=FaultRates(kills=0.01))
    schedule.spawn(writer, disk={"next": 0})     # writer(process) uses its store, clock and sleep
    schedule.run(steps=1000)

Each process is a greenlet. A request is sent in a step, takes effect in a later step, and is
answered in a still later step; other processes may have any number of steps in between. A process
may nap. A process may also be killed between any two steps and start again with its `disk`, or
continue later beside its own successor. Time is the number of steps, without real waiting. The same
seed gives the same schedule if the code under test only uses its process's `rng`, clock and sleep.
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
    """Probabilities, from 0 to 1, of random faults.

    Attributes:
        writes: a write is lost, unseen (done, without a response), late, done twice, or repeated.
        reads: a get or a listing has no response.
        naps: per step, the process that has its turn sleeps for one of `nap_steps`.
        kills: per step, the process that has its turn dies; its successor starts at once.
        zombies: share of killed processes that continue after one of `zombie_steps`.
        late_steps: a late write is done by one of these numbers of steps later; beyond the end:
            after everything.
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
    """A process that runs a role. A successor gets the same `disk`."""

    schedule: "Schedule"
    role: "Role"
    disk: Any
    name: str
    skew_ms: int = 0
    restarts: bool = True
    zombies: bool = True
    wakes: int = 0
    dead: bool = False
    main: "Process | None" = None  # the process of a thread
    threads: "list[Process]" = field(default_factory=list)
    _sent: Callable[[], Any] | None = None
    _answer: tuple[Any, Exception | None] = (None, None)
    _body: greenlet | None = None

    @property
    def rng(self) -> random.Random:
        """The schedule's random numbers, for the code under test, like `clock` and `sleep`."""
        return self.schedule.rng

    @property
    def current(self) -> "Process":
        """The running thread of the process, or the process itself without such a thread."""
        running = self.schedule.running
        return running if running is not None and running.main is self else self

    def clock(self) -> int:
        """Return ms since the epoch by this process's own clock, which may be wrong."""
        return self.schedule.now_ms() + self.skew_ms

    def monotonic_ms(self) -> float:
        """Return ms, for durations."""
        return float(self.schedule.step * STEP_MS)

    def sleep(self, ms: float) -> None:
        """Sleep for `ms` ms: at least a step, in which others run."""
        self.idle(max(1, round(ms / STEP_MS)))

    def idle(self, steps: int) -> None:
        """Let others run for so many steps."""
        if steps > 0:
            self.current.wakes = self.schedule.step + steps
            self.request(lambda: None)

    def start_thread(self, role: "Role", disk: Any = None) -> "Process":
        """Start another thread, which dies together with this process."""
        thread = self.schedule.spawn(
            role, disk, name=f"{self.name}.thread", skew_ms=self.skew_ms
        )
        thread.main = self
        self.threads.append(thread)
        return thread

    def request(self, effect: Callable[[], T]) -> T:
        """Send a request.

        `effect` happens in a later step, and this returns even later.
        """
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
        """Continue by a step. Return False when the role has ended."""
        if self._sent is not None:
            effect, self._sent = self._sent, None
            try:
                self._answer = effect(), None
            except (SparklogError, OSError) as error:  # a response of the store
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
        """End the process at the current step. Requests of clean-up code have no effect."""
        if self._sent is not None and self.schedule.chance(0.5):
            self.take_turn()  # a request that was sent still takes effect
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
    """Chooses by a random seed which process runs in each step, and which faults it meets.

    `stats` counts kills, zombies, and the requests to the store by verb.
    """

    seed: int
    fault_rates: FaultRates = NO_RANDOM_FAULTS
    processes_max: int = 14
    step: int = 0
    stats: Counter[str] = field(default_factory=Counter)
    rng: random.Random = field(init=False)
    processes: list[Process] = field(default_factory=list)
    before_step: list[Callable[[], None]] = field(default_factory=list)
    running: Process | None = None  # the process of this step
    _main: greenlet = field(default_factory=getcurrent)
    _born: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    def now_ms(self) -> int:
        """Return the true time, which is the store's."""
        return BEGAN_MS + self.step * STEP_MS

    def chance(self, p: float) -> bool:
        """Return True with probability `p`."""
        return p > 0 and self.rng.random() < p

    def switch(self) -> None:
        """End the current process's turn; for `Process.request`."""
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
        """Start a process.

        After a kill, a successor starts (`restarts`) and it may continue (`zombies`). Without
        `restarts` it is never killed.
        """
        self._born += 1
        readable = f"{name or getattr(role, '__name__', 'process')}#{self._born}"
        process = Process(self, role, disk, readable, skew_ms, restarts, zombies)
        self.processes.append(process)
        return process

    def run(self, steps: int) -> None:
        """Run `steps` more steps, fewer if all processes end. Raises the errors of roles."""
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
        """Run a process to the end, while no other process runs."""
        others, self.processes = self.processes, []
        process = self.spawn(role, name=name, restarts=False)
        self.run(steps)
        if self.processes:
            raise AssertionError(f"{process.name} didn't end within {steps} steps")
        self.processes = others

    def clear(self) -> None:
        """Kill all processes."""
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
        """Kill a process, or block the process while a successor runs (a zombie)."""
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
