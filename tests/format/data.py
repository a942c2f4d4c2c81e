"""Golden bytes (made by Kafka 4.1's jars), tables to write, and rows of any kind."""

import pyarrow as pa
from hypothesis import strategies as st

from sparklog.testing import strategies
from sparklog.testing.strategies import to_table

BATCH_A = bytes.fromhex(
    "00000000000000640000004e00000003024763d9c80000000000020000018bcfe568000000018bcfe5680500000000"
    "0000000700010000002a0000000312000000026b0476310012000a0201010202680110001304046b320000"
)
"""100..102, epoch 3, pid 7/1, sequence 42; (+0 k v1) (+5 null null {h: null}) (-10 k2 "")."""

BATCH_B = bytes.fromhex(
    "0000000000000067000000420000000302dbeddea80030000000000000018bcfe568640000018bcfe5686400000000"
    "000000070001ffffffff000000012000000008000000000c00000000000500"
)
"""ABORT at 103, +100 ms, coordinator epoch 5."""

SNAPSHOT_EMPTY = bytes.fromhex("000148674bc700000000")
SNAPSHOT_ONE = bytes.fromhex(
    "0001f8cffebc00000001000000000000000700010000002c0000000000000066000000020000018bcfe56805000000"
    "050000000000000064"
)

BATCH_D = bytes.fromhex(
    "00000000000000640000005a0000000302f59de8d9004000000003000001a3185c53e80000018bcfe5680900000000"
    "0000000700010000002a000000031800c5afb787e90502026201001a00bdafb787e9050402610232001a00c9afb787"
    "e905060263023300"
)
"""100..103 with 100 compacted away and a delete horizon: (b null +5) (a 2 +9) (c 3 +3)."""

BATCH_E = bytes.fromhex(
    "0000000000000064000000310000000302205524bc000000000003ffffffffffffffff0000018bcfe5680900000000"
    "0000000700010000002a00000000"
)
"""The same batch emptied."""

NOW = strategies.NOW_MS


def rows(*made: tuple, with_headers: bool = True) -> pa.Table:
    """(timestamp ms or None, key, value[, headers]) -> a table for `encode`."""
    return to_table(made, with_headers=with_headers)


# Wider than what a log takes: the format keeps any time.
times = st.one_of(st.none(), st.integers(-(2**53), 2**53), st.integers(NOW - 10**6, NOW + 10**6))
record = strategies.records(times)
records = st.lists(record, min_size=1, max_size=60)
