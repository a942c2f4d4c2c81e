"""Numbers that a process counts while it works: no library, no thread, no file.

An instrument belongs to a `Metric`, which is its name and meaning; `meters(home)` gives a log's
instruments, the same ones to all that have the log open in this process. They count from the
process's start, as Prometheus wants it. What the log's files tell of all its writers is read
there instead: sparklog.service.metrics.

Cost: 0.5 us for a count, 1 us for an observation. Threads may share all of it.
"""

import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from sparklog.lru_cache import LruCache

Labels = tuple[str, ...]


class Kind(StrEnum):
    """What a metric is to Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    SUMMARY = "summary"


@dataclass(frozen=True, slots=True)
class Metric:
    """What a number means. `kafka`: the MBean that it is in Kafka, "" for one of our own.

    A name with Kafka's is what the JMX exporter makes of it by its usual rules. `process`: counted
    in this process only; else it is read from the log's files and so is about all its writers.
    `buckets`: upper bounds of a histogram, ascending, without infinity.
    """

    name: str
    kind: Kind
    help: str
    labels: Labels = ()
    kafka: str = ""
    process: bool = True
    buckets: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram's or summary's state: `at` is {upper bound: how many up to it} or {quantile: q}.

    `count` and `sum` are of all observations.
    """

    at: dict[float, float]
    count: int
    sum: float


class Sample(NamedTuple):
    """One number: `labels` are in the order of the metric's."""

    metric: Metric
    labels: Labels
    value: float | Distribution


class Counter:
    """Only rises."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self._values: dict[Labels, float] = {} if metric.labels else {(): 0.0}
        self._mutex = threading.Lock()

    def add(self, amount: float = 1, *labels: str) -> None:
        """Count `amount` more."""
        with self._mutex:
            self._values[labels] = self._values.get(labels, 0.0) + amount

    def samples(self) -> list[Sample]:
        """Return the values as of now."""
        with self._mutex:
            return [Sample(self.metric, labels, v) for labels, v in self._values.items()]


class Gauge:
    """Goes up and down; without a sample until it is first set."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self._values: dict[Labels, float] = {}
        self._mutex = threading.Lock()

    def set(self, value: float, *labels: str) -> None:
        """Replace the value."""
        with self._mutex:
            self._values[labels] = value

    def add(self, amount: float, *labels: str) -> None:
        """Change the value by `amount`."""
        with self._mutex:
            self._values[labels] = self._values.get(labels, 0.0) + amount

    def clear(self, *first: str) -> None:
        """Forget the values whose labels begin with these; all without any."""
        with self._mutex:
            for labels in [known for known in self._values if known[: len(first)] == first]:
                del self._values[labels]

    def value(self, *labels: str) -> float | None:
        """Return one value, None if it isn't set."""
        with self._mutex:
            return self._values.get(labels)

    def samples(self) -> list[Sample]:
        """Return the values as of now."""
        with self._mutex:
            return [Sample(self.metric, labels, v) for labels, v in self._values.items()]


class Histogram:
    """Counts observations by buckets, all the time."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}
        self._mutex = threading.Lock()
        if not metric.labels:
            self._counts[()], self._sums[()] = [0] * (len(metric.buckets) + 1), 0.0

    def observe(self, value: float, *labels: str) -> None:
        """Take one observation in."""
        bounds = self.metric.buckets
        with self._mutex:
            counts = self._counts.get(labels)
            if counts is None:
                counts = self._counts[labels] = [0] * (len(bounds) + 1)
            counts[bisect_left(bounds, value)] += 1
            self._sums[labels] = self._sums.get(labels, 0.0) + value

    def samples(self) -> list[Sample]:
        """Return the values as of now."""
        with self._mutex:
            return [Sample(self.metric, k, self._state(k)) for k in self._counts]

    def _state(self, labels: Labels) -> Distribution:
        at: dict[float, float] = {}
        total = 0
        for bound, count in zip(self.metric.buckets, self._counts[labels], strict=False):
            total += count
            at[bound] = total
        return Distribution(at, sum(self._counts[labels]), self._sums[labels])


class Summary:
    """Quantiles of the latest observations, as many as Kafka's reservoir holds."""

    QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self._latest: deque[float] = deque(maxlen=1028)
        self._count, self._sum = 0, 0.0
        self._mutex = threading.Lock()

    def observe(self, value: float) -> None:
        """Take one observation in."""
        with self._mutex:
            self._latest.append(value)
            self._count += 1
            self._sum += value

    def samples(self) -> list[Sample]:
        """Return the values as of now."""
        with self._mutex:
            ordered = sorted(self._latest)
            last = len(ordered) - 1
            at = {q: ordered[round(q * last)] for q in self.QUANTILES} if ordered else {}
            return [Sample(self.metric, (), Distribution(at, self._count, self._sum))]


Instrument = Counter | Gauge | Histogram | Summary

SECONDS: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800,
)  # fmt: skip
BYTES: Final = tuple(float(1 << n) for n in range(10, 33, 2))

T = TypeVar("T", bound="Instrument")


class Meters:
    """Instruments by their metric; each is made when it is first asked for."""

    def __init__(self) -> None:
        self._made: dict[str, Instrument] = {}
        self._mutex = threading.Lock()

    def counter(self, metric: Metric) -> Counter:
        """Return the metric's counter."""
        return self._get(metric, Counter)

    def gauge(self, metric: Metric) -> Gauge:
        """Return the metric's gauge."""
        return self._get(metric, Gauge)

    def histogram(self, metric: Metric) -> Histogram:
        """Return the metric's histogram."""
        return self._get(metric, Histogram)

    def summary(self, metric: Metric) -> Summary:
        """Return the metric's summary."""
        return self._get(metric, Summary)

    def _get(self, metric: Metric, make: Callable[[Metric], T]) -> T:
        found = self._made.get(metric.name)
        if found is None:
            with self._mutex:
                found = self._made.setdefault(metric.name, make(metric))
        return found  # type: ignore[return-value]  # a metric has one kind

    def samples(self) -> Iterator[Sample]:
        """Yield all values, instrument after instrument."""
        for instrument in list(self._made.values()):
            yield from instrument.samples()


QUERIES: Final = "spark:queries"
"""Where this process's streaming queries are counted: `meters(QUERIES)`, see sparklog.sink."""

_IDLE_MAX: Final = 256
_meters: WeakValueDictionary[str, Meters] = WeakValueDictionary()  # all that somebody holds
_latest: LruCache[str, Meters] = LruCache(_IDLE_MAX)
_mutex = threading.Lock()


def meters(home: str) -> Meters:
    """Return what this process counts of one thing: a log by its first log dir, a store by its URL.

    They stay while somebody has them, and those of the last 256 things after that, so that a log
    that is opened again counts on.
    """
    found = _latest.get(home)
    if found is None:
        with _mutex:
            found = _meters.get(home)
            if found is None:
                found = _meters[home] = Meters()
            _latest.put(home, found)
    return found
