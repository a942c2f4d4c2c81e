"""A log at home in a bucket: requests, latency, throughput, ten drivers, what a month costs.

    python -m tests.benchmarks.bench_diskless [--only requests drivers throughput spark cost]

SeaweedFS on loopback, so its milliseconds are not S3's; requests are counted by the store's own
client, and are the same there. Ratios are of turns taken side by side in one run.
"""

import argparse
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

import sparklog
from sparklog.diskless.entries import Entry, NoOpRecord, encode, new_attempt_id
from sparklog.diskless.names import entry_name
from sparklog.diskless.state import DisklessState
from sparklog.log.commit import Identity
from sparklog.log.log import Log, home_of
from sparklog.service import Service
from sparklog.storage.staging import Framing
from sparklog.tiered.object_store.object_store import ObjectStore
from sparklog.tiered.target import open_store
from tests.benchmarks.table import Row, print_rows, sample
from tests.tiered.s3 import S3Server, Unavailable

MIB = 1 << 20
ROUNDS = 9
DRIVERS = 10
COMMITS = 30  # of each driver
MONTH_S = 30 * 86_400
PUT_USD, GET_USD, STORED_USD = 5e-6, 0.4e-6, 0.023  # S3 Standard: a request, a GB and month
KINDS = ("puts", "gets", "lists", "deletes")


def store_of(log: Log) -> ObjectStore:
    """The store of a handle's home, whose requests are counted."""
    store = home_of(log).head.entries.store  # type: ignore[attr-defined]
    assert isinstance(store, ObjectStore)
    return store


def requests(store: ObjectStore, action: Callable[[], object]) -> dict[str, int]:
    """The requests that `action` makes, by kind; those it makes none of are left out."""
    before = store.counts.as_dict()
    action()
    after = store.counts.as_dict()
    return {kind: after[kind] - before[kind] for kind in KINDS if after[kind] > before[kind]}


def said(counted: dict[str, int]) -> str:
    return ", ".join(f"{number} {kind[:-1].upper()}" for kind, number in counted.items()) or "none"


def timed(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


def rows_of(count: int, batch: int = 0) -> pa.Table:
    return sample(count, 100, seed=batch + 1)


def commit_small(log: Log, batch: int, writer: str = "q") -> None:
    """What the sink's driver does with a small micro-batch."""
    stager = log.stager(Framing())
    for rows in rows_of(1000, batch).to_batches():
        stager.add(home_of(log).known_topics()["t"], rows)
    log.commit(stager.finish(), identity=Identity(writer=writer, batch=batch, fingerprint="f"))


@contextmanager
def opened(server: S3Server, *, partitions: int = 1, **config: Any) -> Iterator[tuple[str, Log]]:
    url = f"{server.bucket()}/log"
    with sparklog.open(url, mode="rw", storage_options=server.options()) as log:
        log.create_topic("t", partitions=partitions, config={"retention.ms": -1, **config})
        yield url, log


# --- requests -------------------------------------------------------------------------------------


def request_rows(server: S3Server) -> Iterable[Row]:
    with opened(server) as (url, log):
        commit_small(log, 0)
        store, batches, millis = store_of(log), iter(range(1, 10**6)), []
        counted = requests(store, lambda: commit_small(log, next(batches)))
        yield Row("small micro-batch, driver", said(counted), target="1 PUT")
        for _ in range(30):
            millis.append(timed(lambda: commit_small(log, next(batches))) * 1000)
        put = statistics.median(
            timed(lambda n=n: store.put(f"plain-{n}", bytes(130_000))) * 1000 for n in range(30)
        )
        median = statistics.median(millis)
        yield Row(
            "small micro-batch, 1,000 rows", f"{median:.1f} ms", put / median,
            f"a put of its bytes: {put:.1f} ms", ">= 0.5",
        )  # fmt: skip
        with sparklog.open(url, storage_options=server.options()) as reader:
            reader.offsets("t")
            counted = requests(store_of(reader), lambda: reader.offsets("t"))
            yield Row("polling the head", said(counted), target="1 GET")
        Service(url, storage_options=server.options()).run_once()
        times = iter(range(1_700_000_000_500, 1_700_000_001_000))
        with sparklog.open(url, storage_options=server.options()) as reader:
            reader.offsets("t")
            look = requests(store_of(reader), lambda: reader.offsets_for_times("t", next(times)))
            yield Row("point look-up by time", said(look), target="<= 4 requests")
    yield from large_rows(server)
    yield from million_rows(server)


def large_rows(server: S3Server) -> Iterable[Row]:
    """A large micro-batch of 8 tasks and 12 partitions, as Spark's tasks stage it."""
    with opened(server, partitions=12) as (_, log):
        staging, counts, chunks = home_of(log).staging(), {"puts": 0}, []
        topic = log.topic("t")

        def task(number: int) -> None:
            stager = staging.stager(Framing(), label=f"bench-{number}")
            for rows in sample(20_000, 200, seed=number).to_batches():
                stager.add(topic, rows)
            chunks.extend(stager.finish())

        with counting_puts(counts):
            for number in range(8):
                task(number)
            log.commit(chunks, identity=Identity(writer="q", batch=0, fingerprint="f"))
        yield Row("large micro-batch, 8 tasks", f"{counts['puts']} PUT", target="<= 9 PUT")


@contextmanager
def counting_puts(counts: dict[str, int]) -> Iterator[None]:
    """Count the objects that any store of this process is given meanwhile."""
    from sparklog.tiered.object_store.object_store import Counts

    plain = Counts.add

    def add(self: Counts, kind: str, number: int = 1) -> None:
        if kind in counts:
            counts[kind] += number
        plain(self, kind, number)

    Counts.add = add  # type: ignore[method-assign]
    try:
        yield
    finally:
        Counts.add = plain  # type: ignore[method-assign]


def million_rows(server: S3Server) -> Iterable[Row]:
    """Open a log with a million commits: a state at 999,950, and the entries behind it."""
    from sparklog.diskless.state_objects import write_state

    url, options = f"{server.bucket()}/log", server.options()
    with sparklog.open(url, mode="rw", storage_options=options) as log:
        log.create_topic("t")
        for batch in range(50):
            commit_small(log, batch)
        store = store_of(log)
        state: DisklessState = home_of(log).commits.known.copy()  # type: ignore[attr-defined]
    at = 999_950
    state.number, state.entry_id = at, new_attempt_id()
    last = Entry(id=state.entry_id, prev=new_attempt_id(), record=NoOpRecord())
    store.put(entry_name(state.log_id, at), encode(at, last))
    write_state(store, state)
    prev = state.entry_id
    for number in range(at + 1, at + 51):
        entry = Entry(id=new_attempt_id(), prev=prev, record=NoOpRecord())
        store.put(entry_name(state.log_id, number), encode(number, entry))
        prev = entry.id
    found, seconds = [], []
    for _ in range(3):
        counts = {"gets": 0, "lists": 0}
        with counting_puts(counts):
            begun = time.perf_counter()
            with sparklog.open(url, storage_options=options) as log:
                assert log.offsets("t")[0][1] == 50_000
            seconds.append(time.perf_counter() - begun)
        found.append(counts)
    beside = 50 + 1  # the entries behind the state, and the one that isn't there
    yield Row(
        "open a log of 1,000,000 commits",
        f"{statistics.median(seconds):.2f} s, {found[-1]['gets'] - beside} GET + "
        f"{found[-1]['lists']} LIST, and {beside} entries in parallel",
        target="<= 5 requests and the entries, < 1 s",
    )


# --- ten drivers ----------------------------------------------------------------------------------


def _drive(url: str, options: dict[str, Any], number: int, start: Any, out: Any) -> None:
    with sparklog.open(url, mode="rw", storage_options=options) as log:
        start.wait()
        latencies = []
        for batch in range(COMMITS):
            latencies.append(timed(lambda batch=batch: commit_small(log, batch, f"w{number}")))
        out.put(latencies)


def drive(url: str, options: dict[str, Any], drivers: int) -> tuple[float, list[float]]:
    """Seconds from the first commit to the last, and each commit's latency."""
    context = multiprocessing.get_context("spawn")
    start, out = context.Barrier(drivers + 1), context.Queue()
    processes = [
        context.Process(target=_drive, args=(url, options, number, start, out))
        for number in range(drivers)
    ]
    for process in processes:
        process.start()
    start.wait()
    begun = time.perf_counter()
    latencies = [each for _ in processes for each in out.get()]
    took = time.perf_counter() - begun
    for process in processes:
        process.join()
    return took, latencies


def driver_rows(server: S3Server, directory: Path) -> Iterable[Row]:
    """On files, and on SeaweedFS, which lets creators of one name wait for whole seconds."""
    places = {
        "files": (lambda n: f"file://{directory}/drivers-{n}", {}),
        "SeaweedFS": (lambda n: f"{server.bucket()}/log", server.options()),
    }
    for place, (url_of, options) in places.items():
        yield from drivers_at(place, url_of, options)


def drivers_at(place: str, url_of: Callable[[int], str], options: dict[str, Any]) -> Iterable[Row]:
    rates = {}
    for drivers in (1, DRIVERS):
        url = url_of(drivers)
        with sparklog.open(url, mode="rw", storage_options=options) as log:
            log.create_topic("t", config={"retention.ms": -1})
            took, latencies = drive(url, options, drivers)
            rows = log.offsets("t")[0][1]
            assert rows == drivers * COMMITS * 1000, rows
        rates[drivers] = drivers * COMMITS / took
        latencies.sort()
        p50 = statistics.median(latencies) * 1000
        p99 = latencies[int(len(latencies) * 0.99)] * 1000
        ratio = rates[drivers] / rates[1]
        yield Row(
            f"{drivers} driver{'s' if drivers > 1 else ''} commit at once, {place}",
            f"{rates[drivers]:.0f} commits/s; p50 {p50:.0f} ms, p99 {p99:.0f} ms "
            f"({p99 / p50:.1f}x)",
            ratio if drivers > 1 else None,
            "one driver" if drivers > 1 else "",
            "nothing lost",
        )


# --- throughput -----------------------------------------------------------------------------------


def throughput_rows(server: S3Server) -> Iterable[Row]:
    table = sample(400_000, 160)
    with opened(server) as (url, log):
        staging, topic = home_of(log).staging(), log.topic("t")
        plain = open_store(url, server.options())
        sizes: list[int] = []

        def stage(turn: int) -> None:
            stager = staging.stager(Framing(), label=f"turn-{turn}")
            for rows in table.to_batches(max_chunksize=20_000):
                stager.add(topic, rows)
            chunks = stager.finish()
            sizes.append(sum(chunk.size_bytes for chunk in chunks))
            log.commit(chunks)

        def frame(turn: int) -> None:
            stager = log.stager(Framing())
            for rows in table.to_batches(max_chunksize=20_000):
                stager.add(topic, rows)
            stager.finish()

        stage(0)
        payload = os.urandom(MIB) * (sizes[0] // MIB) + bytes(sizes[0] % MIB)
        pieces = [payload[at : at + MIB] for at in range(0, len(payload), MIB)]
        turns = [
            (
                timed(lambda n=n: stage(n)),
                timed(lambda n=n: plain.put_stream(f"x-{n}", pieces, len(payload))),
                timed(lambda n=n: frame(n)),
            )
            for n in range(1, 6)
        ]
        ours, puts, frames = (statistics.median(side) for side in zip(*turns, strict=True))
        size = sizes[0] / MIB
        yield Row(
            "stage and commit in one task", f"{size / ours:.0f} MiB/s", puts / ours,
            f"put of the same bytes: {size / puts:.0f} MiB/s; framing alone "
            f"{size / frames:.0f} MiB/s",
            ">= 0.8",
        )  # fmt: skip
        with sparklog.open(url, storage_options=server.options()) as reader:
            end = len(table)

            def read() -> None:
                got = sum(b.num_rows for b in reader.read("t", start={0: 0}, end={0: end}))
                assert got == end

            def get() -> None:
                for at in range(0, len(payload), 4 * MIB):
                    plain.get("x-1", at, min(at + 4 * MIB, len(payload)))

            read()
            turns2 = []
            for _ in range(5):
                with sparklog.open(url, storage_options=server.options()) as fresh:
                    reader = fresh
                    turns2.append((timed(read), timed(get)))
            ours, gets = (statistics.median(side) for side in zip(*turns2, strict=True))
            yield Row(
                "read to Arrow, cold", f"{size / ours:.0f} MiB/s", gets / ours,
                f"get of the same bytes, 4 MiB each: {size / gets:.0f} MiB/s", ">= 0.8",
            )  # fmt: skip


# --- what a month costs ---------------------------------------------------------------------------

LOADS = (  # name, seconds between micro-batches, tasks, partitions, bytes a micro-batch
    ("1,000 rows each 10 s", 10, 1, 1, 130_000),
    ("1,000 rows each second", 1, 1, 1, 130_000),
    ("64 MiB each 10 s, 8 tasks, 12 partitions", 10, 8, 12, 64 * MIB),
)


def month_cost(server: S3Server) -> None:
    """Count the requests of some micro-batches of each load, with service and a reader."""
    print("\n## A month on S3 Standard: requests as counted, computed from 60 micro-batches\n")
    print("| load | PUT, LIST | GET | storage | requests | storage, a week kept |")
    print("|---|---|---|---|---|---|")
    for name, every_s, tasks, partitions, size in LOADS:
        counted = one_load(server, tasks, partitions, size)
        each = {kind: number / 60 for kind, number in counted.items()}
        batches = MONTH_S / every_s
        puts = (each["puts"] + each["lists"]) * batches
        gets = each["gets"] * batches + MONTH_S  # and a reader's poll each second
        usd = puts * PUT_USD + gets * GET_USD
        stored = size * 7 * 86_400 / every_s / 1e9
        print(
            f"| {name} | {puts / 1e6:.2f} M | {gets / 1e6:.2f} M | {stored:,.0f} GB | "
            f"${usd:,.2f} | ${stored * STORED_USD:,.2f} |",
            flush=True,
        )


def one_load(server: S3Server, tasks: int, partitions: int, size: int) -> dict[str, int]:
    """The requests of 60 micro-batches, of the merges that they cause, and of one reader."""
    counts = dict.fromkeys(KINDS, 0)
    small = tasks == 1
    rows = 1000 if small else size // tasks // 216 // 20  # a twentieth of the bytes: same requests
    config = {"segment.bytes": max(14 * MIB, size)} if small else {"segment.bytes": 40 * MIB}
    with opened(server, partitions=partitions, **config) as (url, log), counting_puts(counts):
        reader = sparklog.open(url, storage_options=server.options())
        service = Service(url, storage_options=server.options())
        at = dict.fromkeys(range(partitions), 0)
        staging, topic = home_of(log).staging(), log.topic("t")
        for batch in range(60):
            if small:
                commit_small(log, batch)
            else:
                chunks: list[Any] = []
                for number in range(tasks):
                    stager = staging.stager(Framing(), label=f"load-{batch}-{number}")
                    for part in sample(rows, 200, seed=number).to_batches():
                        stager.add(topic, part)
                    chunks.extend(stager.finish())
                log.commit(chunks, identity=Identity(writer="q", batch=batch, fingerprint="f"))
            ends = {p: end for p, (_, end) in reader.offsets("t").items()}
            for _ in reader.read("t", start=at, end=ends):
                pass
            at = ends
            if batch % 30 == 29:
                service.run_once()
        reader.close()
    return counts


# --- Spark ----------------------------------------------------------------------------------------


def spark_rows(server: S3Server, directory: Path) -> Iterable[Row]:
    """A micro-batch of 1,000 rows from source to sink, in a bucket and in a log dir."""
    from sparklog.sink import SegmentSink, close
    from tests.benchmarks.spark_rows import session

    spark = session([])
    homes = {
        "bucket": (f"{server.bucket()}/log", server.options()),
        "log dir": (str(directory / "log"), None),
    }
    medians: dict[str, float] = {}
    batches = 25
    for name, (path, options) in homes.items():
        with sparklog.open(path, mode="rw", storage_options=options) as log:
            log.create_topic("in", partitions=2)
            log.create_topic("out", partitions=2)
            for batch in range(batches):
                log.append("in", rows_of(1000, batch))
        reader = spark.readStream.format("sparklog").option("path", path)
        reader = reader.option("subscribe", "in").option("startingOffsets", "earliest")
        if options:
            import json

            reader = reader.option("storageOptions", json.dumps(options))
        given = {} if options is None else {"storage_options": options}
        query = (
            reader.option("maxOffsetsPerTrigger", 1000).load()
            .writeStream.foreachBatch(SegmentSink(path, "out", **given))
            .option("checkpointLocation", str(directory / f"checkpoint-{name}"))
            .trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        times = [p.durationMs["triggerExecution"] for p in query.recentProgress[5:]]
        medians[name] = statistics.median(times)
        with sparklog.open(path, storage_options=options) as log:
            spans = log.offsets("out").values()
            assert sum(end for _, end in spans) == batches * 1000, spans
        close()
    spark.stop()
    yield Row(
        "micro-batch of 1,000 rows, source to sink", f"{medians['bucket']:.0f} ms",
        medians["log dir"] / medians["bucket"], f"log dir: {medians['log dir']:.0f} ms",
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    names = ["requests", "drivers", "throughput", "spark", "cost"]
    parser.add_argument("--only", nargs="*", default=names, choices=names)
    chosen = parser.parse_args().only
    with tempfile.TemporaryDirectory(prefix="sparklog-bench-") as directory:
        try:
            server = S3Server(Path(directory) / "s3")
        except Unavailable as reason:
            print(f"no S3 server: {reason}")
            return
        server.start()
        try:
            tables: dict[str, tuple[str, Callable[[], Iterable[Row]]]] = {
                "requests": ("Requests", lambda: request_rows(server)),
                "drivers": ("Drivers", lambda: driver_rows(server, Path(directory))),
                "throughput": ("Throughput, one task", lambda: throughput_rows(server)),
                "spark": ("Spark", lambda: spark_rows(server, Path(directory))),
            }
            for name in chosen:
                if name in tables:
                    title, rows = tables[name]
                    print_rows(title, rows())
            if "cost" in chosen:
                month_cost(server)
        finally:
            server.kill()


if __name__ == "__main__":
    main()
