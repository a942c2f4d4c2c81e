"""Reads a log in the JVM by a plan, as Spark would, and in Python: the rows of both."""

import struct
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from sparklog.jvm.plans import PLAN_VERSION
from sparklog.source.batch import BatchReader
from sparklog.source.jvm_plan import pieces_of, task_of
from sparklog.source.options import parse
from sparklog.source.schema import COLUMNS
from tests.jvm.probe import Probe, pack

ALL: Sequence[str] = COLUMNS.names
Row = tuple[Any, ...]
Meanwhile = tuple[int, Callable[[], None]]


class AnswerFile(NamedTuple):
    """Python reads piece number `piece` of the plan, from offset `at` on."""

    piece: int
    at: int


_EPOCH = datetime.fromtimestamp(0, UTC)


class Read:
    """One batch query over a log dir's topic, planned for the JVM; its first task."""

    def __init__(self, path: object, columns: Sequence[str] = ALL, **options: Any) -> None:
        given = {"path": str(path), "subscribe": "t", "sparklog.jvm.plan": str(PLAN_VERSION)}
        given |= {name.replace("_", "."): str(value) for name, value in options.items()}
        self.columns, self.path = columns, str(path)
        schema = StructType([COLUMNS[name] for name in columns])
        self.reader = BatchReader(parse(given, streaming=False), schema)
        self.partitions = self.reader.partitions()

    def python(self, value: Any) -> Iterator[Row]:
        """What Python reads of a partition's value."""
        for rows in self.reader.read(InputPartition(value)):
            columns = [rows.column(name) for name in self.columns]
            found = zip(*map(_values, self.columns, columns), strict=True)
            yield from found if columns else [()] * rows.num_rows

    def in_python(self) -> tuple[list[Row], Exception | None]:
        """All rows as Python reads them by itself, and the error that it ends with."""
        rows: list[Row] = []
        try:
            for partition in self.partitions:
                task = task_of(partition.value)
                for row in self.python(pieces_of(task)):
                    rows.append(row)
        except Exception as error:
            return rows, error
        return rows, None

    def in_jvm(
        self, probe: Probe, meanwhile: Meanwhile | None = None
    ) -> tuple[list[Row], Exception | None, list[AnswerFile]]:
        """All rows as the JVM reads them, Python where it hands over; and where it does.

        `meanwhile`: (after so many rows of the JVM's, what happens then).
        """
        rows: list[Row] = []
        handovers: list[AnswerFile] = []
        try:
            for partition in self.partitions:
                for event in self._events(probe, *partition.value, meanwhile):
                    if isinstance(event, AnswerFile):
                        handovers.append(event)
                        for row in self.python((*partition.value, *event)):
                            rows.append(row)
                    else:
                        rows.append(event)
        except Exception as error:
            return rows, error, handovers
        return rows, None, handovers

    def open(self, probe: Probe) -> None:
        """Open the first partition in the JVM."""
        plan, _ = self.partitions[0].value
        probe.call("open", pack([plan, ",".join(self.columns).encode()]))

    def take(self, probe: Probe, rows: int = 2**31 - 1) -> "list[Row | AnswerFile]":
        """The next rows of what is open, and where Python reads."""
        return list(events(probe.call("take", struct.pack(">i", rows)), self.columns))

    def _events(
        self, probe: Probe, plan: bytes, task: bytes, meanwhile: Meanwhile | None
    ) -> "Iterator[Row | AnswerFile]":
        probe.call("open", pack([plan, ",".join(self.columns).encode()]))
        try:
            if meanwhile is not None:
                yield from self.take(probe, meanwhile[0])
                meanwhile[1]()
            yield from self.take(probe)
        finally:
            opened = probe.call("close").decode()
            assert self.path not in opened


def check_same(read: Read, probe: Probe) -> list[AnswerFile]:
    """Assert that rows and errors of both are the same; return where Python had to go on."""
    expected, error = read.in_python()
    rows, other, handovers = read.in_jvm(probe)
    assert rows == expected, (len(rows), len(expected), handovers)
    assert (type(other), str(other)) == (type(error), str(error))
    return handovers


def _values(name: str, column: Any) -> list[Any]:
    if name == "timestamp":
        return column.cast("int64").to_pylist()
    if name == "headers":
        return [[(h["key"], h["value"]) for h in row] for row in column.to_pylist()]
    return column.to_pylist()


def events(data: bytes, columns: Sequence[str]) -> Iterator[Row | AnswerFile]:
    """What the operation `take` answers."""
    at = 0

    def number(code: str) -> int:
        nonlocal at
        (found,) = struct.unpack_from(">" + code, data, at)
        at += struct.calcsize(code)
        return int(found)

    def content() -> bytes | None:
        nonlocal at
        size = number("i")
        if size < 0:
            return None
        at += size
        return data[at - size : at]

    def value(name: str) -> Any:
        if name in ("key", "value"):
            return content()
        if name == "topic":
            return (content() or b"").decode()
        if name == "headers":
            return [((content() or b"").decode(), content()) for _ in range(number("i"))]
        return number("i" if name in ("partition", "timestampType") else "q")

    while at < len(data):
        if number("B") == 1:
            yield tuple(value(name) for name in columns)
        else:
            yield AnswerFile(number("i"), number("q"))
