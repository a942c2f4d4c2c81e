"""Rows of measurements and how they are printed."""

import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Row:
    """One line: what was measured, its figure, and the ratio against what stands beside it."""

    name: str
    figure: str
    ratio: float | None = None
    beside: str = ""
    target: str = ""


def print_rows(title: str, rows: Iterable[Row]) -> None:
    print(f"\n## {title}\n")
    print("| what | measured | ratio | beside | target |")
    print("|---|---|---|---|---|")
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        print(f"| {row.name} | {row.figure} | {ratio} | {row.beside} | {row.target} |", flush=True)


def median_seconds(action: Callable[[], object], *, rounds: int = 5) -> float:
    """The median time of `action`, after one run that doesn't count."""
    action()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def sample(records: int, value_bytes: int, *, seed: int = 1) -> pa.Table:
    """16-byte keys and values that compress about as JSON does (ratio 2 to 4)."""
    rng = np.random.default_rng(seed)
    words = rng.integers(97, 105, size=(4096, 8), dtype=np.uint8)
    picks = rng.integers(0, 4096, size=(records, -(-value_bytes // 8)))
    values = np.ascontiguousarray(words[picks].reshape(records, -1)[:, :value_bytes])
    keys = rng.integers(48, 58, size=(records, 16), dtype=np.uint8)
    stamps = 1_700_000_000_000 + np.arange(records)
    return pa.table(
        {
            "key": _fixed(keys, 16),
            "value": _fixed(values, value_bytes),
            "timestamp": pa.array(stamps, pa.timestamp("ms", "UTC")),
        }
    )


def _fixed(data: np.ndarray, width: int) -> pa.Array:
    offsets = np.arange(len(data) + 1, dtype=np.int32) * width
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(data), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
