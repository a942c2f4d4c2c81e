"""A reader for the soak: follows `events`, checks each record, says at the end what it saw."""

import json
import signal
import sys

import sparklog
from sparklog.errors import OffsetOutOfRangeError
from tests.service.soak_driver import PARTITIONS, ROWS


def main(path: str) -> None:
    stop = False

    def on_term(*_: object) -> None:
        nonlocal stop
        stop = True

    signal.signal(signal.SIGTERM, on_term)
    at = dict.fromkeys(range(PARTITIONS), 0)
    last: dict[int, tuple[int, int]] = {}
    records = overtaken = 0
    log = sparklog.open(path)
    while not stop:
        try:
            for p, (_, end) in log.offsets("events").items():
                for batch in log.read("events", [p], start={p: at[p]}, end={p: end}):
                    for offset, value in zip(
                        batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True
                    ):
                        assert offset == at[p], f"{p}: offset {offset}, expected {at[p]}"
                        n, i = map(int, value.split(b":"))
                        if p in last:  # the very next record that was sent to this partition
                            m, j = last[p]
                            wanted = (m, j + PARTITIONS) if j + PARTITIONS < ROWS else (m + 1, p)
                            assert (n, i) == wanted, f"{p}@{offset}: {(n, i)} after {(m, j)}"
                        last[p], at[p] = (n, i), offset + 1
                        records += 1
        except OffsetOutOfRangeError as error:  # retention was quicker: the documented way on
            overtaken += 1
            for p in at:
                if at[p] < error.start:
                    at[p] = log.offsets("events")[p][0]
                    last.pop(p, None)
    print(json.dumps({"records": records, "overtaken": overtaken}))


if __name__ == "__main__":
    main(sys.argv[1])
