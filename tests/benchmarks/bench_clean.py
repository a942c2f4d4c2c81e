"""Compaction against Kafka's cleaner, on the same files, one core; and its memory."""

import contextlib
import multiprocessing
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from sparklog.config import TopicConfig
from sparklog.fs import LOCAL
from sparklog.log.cleaner_options import CleanerOptions
from sparklog.log.dirty_ratio import CompactedLog
from sparklog.logdir.cleaning.plan import CleanJob, find_dirt, list_segments
from sparklog.logdir.cleaning.rewrite import rewrite, swap_of
from sparklog.logdir.partition.segment_swap import perform
from tests.benchmarks.table import Row, print_rows
from tests.jars import Unavailable
from tests.oracle import Oracle

RECORDS, KEYS, VALUE_BYTES = 3_000_000, 200_000, 100
CONFIG = {"cleanup.policy": "compact", "internal.segment.bytes": 32 << 20}
PACKED = {**CONFIG, "internal.segment.bytes": 1 << 20}
CODECS = ("none", "lz4", "zstd")


def job(directory: Path, options: CleanerOptions) -> CleanJob:
    """What the cleaner would plan for a partition that it has never cleaned."""
    config = TopicConfig.parse(CONFIG)
    segments = list_segments(LOCAL, str(directory))
    end = segments[-1].base
    log = CompactedLog(
        config=config, segments=segments, checkpoint=None, log_start=0, end=end, stable=end
    )
    dirt = find_dirt(LOCAL, str(directory), log, now_ms=0)
    return CleanJob(
        topic="t", partition=0, topic_id="", directory=str(directory), config=config,
        options=options, segments=tuple(segments[:-1]), bases=tuple(s.base for s in segments),
        log_start=0, end=end, dirt=dirt, now_ms=0,
    )  # fmt: skip


def clean(directory: Path, options: CleanerOptions) -> tuple[int, int]:
    """Rewrite and swap all groups; return bytes before and after."""
    before = after = 0
    for made in rewrite(LOCAL, job(directory, options)):
        perform(LOCAL, str(directory), swap_of(made))
        before += sum(s.size for s in made.sources)
        after += made.size
    return before, after


def timed(source: Path, scratch: Path, options: CleanerOptions) -> tuple[float, float, int, int]:
    """The best of three cleanings of fresh copies: wall and CPU seconds, bytes before and after."""
    best = (float("inf"), float("inf"), 0, 0)
    for _ in range(3):
        copy = scratch / "copy" / "t-0"
        shutil.copytree(source, copy)
        cpu, wall = time.process_time(), time.perf_counter()
        sizes = clean(copy, options)
        best = min(best, (time.perf_counter() - wall, time.process_time() - cpu, *sizes))
        shutil.rmtree(copy.parent)
    return best


def _peak(source: str, memory: int, answer: "multiprocessing.Queue[int]") -> None:
    options = CleanerOptions(dedupe_buffer_bytes=memory)
    list(rewrite(LOCAL, job(Path(source), CleanerOptions(dedupe_buffer_bytes=1 << 16))))
    before = _high_water()
    list(rewrite(LOCAL, job(Path(source), options)))
    answer.put(_high_water() - before)


def _high_water() -> int:
    """This process's largest resident size so far. Source: proc(5)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024


def memory_rows(source: Path) -> Iterator[Row]:
    """How much more a process takes at its peak than with a map of 64 KiB."""
    context = multiprocessing.get_context("spawn")
    for memory in (4 << 20, 32 << 20):
        answer = context.Queue()
        child = context.Process(target=_peak, args=(str(source), memory, answer))
        child.start()
        peak = answer.get()
        child.join()
        figure = f"{peak / 2**20:.1f} MiB more at the peak"
        yield Row(f"dedupe buffer {memory >> 20} MiB", figure, peak / memory, "its size", "<= 1.1")


def speed_rows(oracle: Oracle, scratch: Path) -> Iterator[Row]:
    for codec in CODECS:
        source, config = scratch / codec / "t-0", CONFIG if codec == "none" else PACKED
        oracle.call(
            "fill", dir=str(source), records=RECORDS, keys=KEYS, value_bytes=VALUE_BYTES,
            codec=codec, config=config,
        )  # fmt: skip
        runs = [oracle.call("bench_clean", dir=str(source), config=config) for _ in range(3)]
        kafka = max(run["bytes"] / run["seconds"] for run in runs) / 1e6
        wall, cpu, before, after = timed(source, scratch, CleanerOptions())
        rate = before / wall / 1e6
        yield Row(
            f"compaction, {RECORDS // 10**6} M records, {KEYS // 1000} k keys, {codec}",
            f"{rate:.0f} MB/s ({before / cpu / 1e6:.0f} a core second), "
            f"{before >> 20} -> {after >> 20} MiB",
            rate / kafka,
            f"Kafka 4.1: {kafka:.0f} MB/s",
            ">= 4",
        )
    yield from memory_rows(scratch / "none" / "t-0")


def main() -> None:
    scratch = Path(tempfile.mkdtemp(prefix="sparklog-bench-", dir=os.environ.get("BENCH_DIR")))
    try:
        with contextlib.closing(Oracle()) as oracle:
            print_rows("Compaction, one core", speed_rows(oracle, scratch))
    except Unavailable as error:
        print(f"(Kafka's own code can't be run here: {error})")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
