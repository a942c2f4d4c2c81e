"""Instruments: what they count, from several threads, and what a count costs."""

import threading
import time
import timeit

from sparklog.metrics import (
    Counter,
    Distribution,
    Gauge,
    Histogram,
    Kind,
    Meters,
    Metric,
    Summary,
    meters,
)

COUNT = Metric("c_total", Kind.COUNTER, "", ("topic",))
PLAIN = Metric("p_total", Kind.COUNTER, "")
LEVEL = Metric("g", Kind.GAUGE, "", ("topic", "partition"))
TIMES = Metric("h", Kind.HISTOGRAM, "", buckets=(1, 10))
QUANTILES = Metric("s", Kind.SUMMARY, "")


def test_a_counter_without_labels_begins_with_nought() -> None:
    assert [s.value for s in Counter(PLAIN).samples()] == [0]
    assert Counter(COUNT).samples() == []


def test_a_gauge_forgets_by_its_first_labels() -> None:
    gauge = Gauge(LEVEL)
    for topic, partition in (("t", "0"), ("t", "1"), ("u", "0")):
        gauge.set(7, topic, partition)
    gauge.add(-2, "u", "0")
    gauge.clear("t")
    assert [(s.labels, s.value) for s in gauge.samples()] == [(("u", "0"), 5)]
    assert gauge.value("t", "0") is None
    gauge.clear()
    assert gauge.samples() == []


def test_a_histogram_counts_up_to_each_bound() -> None:
    histogram = Histogram(TIMES)
    for value in (0.5, 1, 1.5, 10, 11):
        histogram.observe(value)
    (sample,) = histogram.samples()
    assert sample.value == Distribution({1: 2, 10: 4}, 5, 24.0)


def test_a_summary_gives_quantiles_of_the_latest() -> None:
    summary = Summary(QUANTILES)
    assert summary.samples()[0].value == Distribution({}, 0, 0.0)
    for value in range(3000):
        summary.observe(value)
    (sample,) = summary.samples()
    assert isinstance(sample.value, Distribution)
    assert (sample.value.count, sample.value.sum) == (3000, sum(range(3000)))
    assert 1972 <= sample.value.at[0.5] <= 2999
    assert sample.value.at[0.999] >= 2990


def test_threads_lose_no_count() -> None:
    made = Meters()

    def work() -> None:
        for _ in range(5000):
            made.counter(COUNT).add(1, "t")
            made.histogram(TIMES).observe(2)
            made.gauge(LEVEL).add(1, "t", "0")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = {s.metric.name: s.value for s in made.samples()}
    assert found["c_total"] == found["g"] == 20_000
    assert found["h"] == Distribution({1: 0, 10: 20_000}, 20_000, 40_000.0)


def test_a_log_has_the_same_instruments_as_long_as_the_process_lives() -> None:
    assert meters("/a/log").counter(COUNT) is meters("/a/log").counter(COUNT)
    assert meters("/a/log").counter(COUNT) is not meters("/another/log").counter(COUNT)


def test_a_count_costs_next_to_nothing() -> None:
    """A commit takes milliseconds, and makes some six of these."""
    counter, histogram = Counter(COUNT), Histogram(TIMES)

    def once() -> None:
        counter.add(1, "t")
        histogram.observe(2)

    assert min(timeit.repeat(once, timer=time.thread_time, number=1000, repeat=5)) / 1000 < 50e-6


def test_what_nobody_holds_is_forgotten_after_many_others() -> None:
    held = meters("/held")
    held.counter(PLAIN).add()
    meters("/idle").counter(PLAIN).add()
    assert [s.value for s in meters("/idle").samples()] == [1], "opened again soon"
    for number in range(1000):
        meters(f"/other-{number}")
    assert meters("/held") is held
    assert list(meters("/idle").samples()) == []
