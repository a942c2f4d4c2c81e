"""Contract tests of invalid arguments of `Log`'s methods: all homes raise the same errors.

    class TestMine(ArgumentsContract):
        @pytest.fixture
        def open_log(self) -> Callable[[str], Log]: ...
            # opens the same new log again, in mode "r" or "rw"

`READS` and `WRITES` are the tables: the call, the error, and the start of the error's message.
"""

import datetime as dt
from collections.abc import Callable
from typing import Any, Final, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pytest

from sparklog.errors import (
    InvalidRequestError,
    OffsetOutOfRangeError,
    SparklogError,
    UnknownTopicError,
)
from sparklog.log.log import Log, view_of

Case: TypeAlias = tuple[Callable[[Any], object], type[SparklogError], str]

REFUSED: Final = InvalidRequestError
UNKNOWN: Final = UnknownTopicError
OUT_OF_RANGE: Final = OffsetOutOfRangeError
NO_TOPIC: Final = "topic none is not in LOG; its topics: t"
NO_PARTITION: Final = "t-9 is not in LOG; the topic's partitions here: [0, 1]"
POSITION: Final = "'earliest', 'latest', a datetime with a time zone, or {partition: offset}"
NUMBERS: Final = "a list of partition numbers such as [0, 1], or None for all partitions"
OFFSETS: Final = "{partition: offset}, both integers"
BY_TOPIC: Final = "{topic: {partition: offset}}, such as {'flights': {0: 42}}"
WHEN: Final = "a datetime with a time zone, milliseconds since 1970, or -1 to -5 as in ListOffsets"
GROUP: Final = "a string of 1 to 249 printable characters, without spaces at the ends"
NAME: Final = "the name of a topic, a string"
NAIVE: Final = dt.datetime(2020, 1, 1)
ROW: Final = pa.table({"value": [b"x"]})

READS: Final[list[Case]] = [
    (lambda log: log.topic("none"), UNKNOWN, NO_TOPIC),
    (lambda log: log.topic(5), REFUSED, f"topic=5: expected {NAME}"),
    (lambda log: log.topic(None), REFUSED, f"topic=None: expected {NAME}"),
    (lambda log: log.offsets("none"), UNKNOWN, NO_TOPIC),
    (lambda log: log.offsets(5), REFUSED, f"topic=5: expected {NAME}"),
    (lambda log: log.read("none"), UNKNOWN, NO_TOPIC),
    (lambda log: log.read(b"t"), REFUSED, f"topic=b't': expected {NAME}"),
    (lambda log: log.read("t", partitions=[9]), UNKNOWN, NO_PARTITION),
    (lambda log: log.read("t", partitions=[0, 9]), UNKNOWN, NO_PARTITION),
    (lambda log: log.read("t", [9], group="g"), UNKNOWN, NO_PARTITION),
    (lambda log: log.read("t", [9], follow=True), UNKNOWN, NO_PARTITION),
    (lambda log: log.read("t", partitions=[-1]), UNKNOWN, "t--1 is not in LOG"),
    (lambda log: log.read("t", partitions=3), REFUSED, f"partitions=3: expected {NUMBERS}"),
    (lambda log: log.read("t", "0"), REFUSED, f"partitions='0': expected {NUMBERS}"),
    (lambda log: log.read("t", ["0"]), REFUSED, f"partitions=['0']: expected {NUMBERS}"),
    (lambda log: log.read("t", [True]), REFUSED, f"partitions=[True]: expected {NUMBERS}"),
    (lambda log: log.read("t", [0.0]), REFUSED, f"partitions=[0.0]: expected {NUMBERS}"),
    (lambda log: log.read("t", start=5), REFUSED, f"start=5: expected {POSITION}"),
    (lambda log: log.read("t", start=None), REFUSED, f"start=None: expected {POSITION}"),
    (lambda log: log.read("t", end=5), REFUSED, f"end=5: expected {POSITION}"),
    (lambda log: log.read("t", start=dt.date(2020, 1, 1)), REFUSED,
     "start=datetime.date(2020, 1, 1): expected"),
    (lambda log: log.read("t", start="first"), REFUSED, f"start='first': expected {POSITION}"),
    (lambda log: log.read("t", start=NAIVE), REFUSED,
     "start=datetime.datetime(2020, 1, 1, 0, 0): expected a datetime with a time zone"),
    (lambda log: log.read("t", start={0: "x"}), REFUSED, f"start={{0: 'x'}}: expected {OFFSETS}"),
    (lambda log: log.read("t", start={0: 0.5}), REFUSED, f"start={{0: 0.5}}: expected {OFFSETS}"),
    (lambda log: log.read("t", start={"0": 1}), REFUSED, f"start={{'0': 1}}: expected {OFFSETS}"),
    (lambda log: log.read("t", start={9: 1}), REFUSED,
     "start={9: 1}: partitions [9] are not among the partitions to read, [0, 1]"),
    (lambda log: log.read("t", start={0: -7}), OUT_OF_RANGE,
     "t-0 has offsets [0, 2), but offset -7 was requested"),
    (lambda log: log.read("t", end={0: 99}), OUT_OF_RANGE,
     "t-0 has offsets [0, 2), but offset 99 was requested"),
    (lambda log: log.read("t", isolation="dirty"), REFUSED,
     "isolation='dirty': expected one of read_uncommitted, read_committed"),
    (lambda log: log.read("t", isolation=5), REFUSED, "isolation=5: expected one of"),
    (lambda log: log.read("t", columns="value"), REFUSED,
     "columns='value': expected a list of some of key, value"),
    (lambda log: log.read("t", columns=["v"]), REFUSED,
     "columns=['v']: expected a list of some of key, value"),
    (lambda log: log.read("t", columns=[5]), REFUSED, "columns=[5]: expected a list of some of"),
    (lambda log: log.read("t", columns=["value", "value"]), REFUSED,
     "columns=['value', 'value']: expected a list of some of"),
    (lambda log: log.read("t", columns=5), REFUSED, "columns=5: expected a list of some of"),
    (lambda log: log.read("t", group=5), REFUSED, f"group=5: expected {GROUP}"),
    (lambda log: log.read("t", group=""), REFUSED, f"group='': expected {GROUP}"),
    (lambda log: log.read("t", timeline="mine"), REFUSED,
     "timeline='mine': expected one of all, current"),
    (lambda log: log.offsets_for_times("none", 1), UNKNOWN, NO_TOPIC),
    (lambda log: log.offsets_for_times(5, 1), REFUSED, f"topic=5: expected {NAME}"),
    (lambda log: log.offsets_for_times("t", "x"), REFUSED, f"when='x': expected {WHEN}"),
    (lambda log: log.offsets_for_times("t", 1.5), REFUSED, f"when=1.5: expected {WHEN}"),
    (lambda log: log.offsets_for_times("t", None), REFUSED, f"when=None: expected {WHEN}"),
    (lambda log: log.offsets_for_times("t", True), REFUSED, f"when=True: expected {WHEN}"),
    (lambda log: log.offsets_for_times("t", -6), REFUSED, f"when=-6: expected {WHEN}"),
    (lambda log: log.offsets_for_times("t", NAIVE), REFUSED,
     "when=datetime.datetime(2020, 1, 1, 0, 0): expected a datetime with a time zone"),
    (lambda log: log.offsets_for_times("t", {9: 1}), UNKNOWN, NO_PARTITION),
    (lambda log: log.offsets_for_times("t", {"0": 1}), REFUSED,
     "when='0': expected the number of a partition"),
    (lambda log: log.offsets_for_times("t", {0: "x"}), REFUSED, f"when='x': expected {WHEN}"),
    (lambda log: log.offsets_for_times("t", 1, isolation=5), REFUSED,
     "isolation=5: expected one of"),
    (lambda log: log.end_offset_for_epoch("none", 0, 0), UNKNOWN, NO_TOPIC),
    (lambda log: log.end_offset_for_epoch("t", 9, 0), UNKNOWN, NO_PARTITION),
    (lambda log: log.end_offset_for_epoch("t", "0", 0), REFUSED,
     "partition='0': expected the number of a partition"),
    (lambda log: log.end_offset_for_epoch("t", 0, "0"), REFUSED, "epoch='0': expected an integer"),
    (lambda log: log.readers(5), REFUSED,
     "topic=5: expected the name of a topic, a string, or None"),
    (lambda log: log.commits(5), REFUSED, "writer=5: expected a writer, a string, or None"),
    (lambda log: log.commit_offsets("g", "x"), REFUSED, f"offsets='x': expected {BY_TOPIC}"),
    (lambda log: log.commit_offsets("g", {"t": 5}), REFUSED,
     f"offsets={{'t': 5}}: expected {BY_TOPIC}"),
    (lambda log: log.commit_offsets("g", {5: {0: 1}}), REFUSED,
     f"offsets={{5: {{0: 1}}}}: expected {BY_TOPIC}"),
    (lambda log: log.commit_offsets("g", {"t": {0: "1"}}), REFUSED,
     f"offsets={{'t': {{0: '1'}}}}: expected {BY_TOPIC}"),
    (lambda log: log.commit_offsets("g", {"t": {0: True}}), REFUSED,
     f"offsets={{'t': {{0: True}}}}: expected {BY_TOPIC}"),
    (lambda log: log.commit_offsets("g", {"t": {"0": 1}}), REFUSED,
     f"offsets={{'t': {{'0': 1}}}}: expected {BY_TOPIC}"),
    (lambda log: log.commit_offsets("g", {"t": {9: 1}}), UNKNOWN,
     "t-9 is not in LOG; no offset was committed"),
    (lambda log: log.commit_offsets("g", {"none": {0: 1}}), UNKNOWN,
     "none-0 is not in LOG; no offset was committed"),
    (lambda log: log.commit_offsets("g", {"t": {0: 99}}), OUT_OF_RANGE,
     "t-0 ends at 2, so offset 99 can't be committed"),
    (lambda log: log.commit_offsets("g", {"t": {0: -1}}), OUT_OF_RANGE,
     "t-0 ends at 2, so offset -1 can't be committed"),
    (lambda log: log.commit_offsets(5, {"t": {0: 1}}), REFUSED, f"group=5: expected {GROUP}"),
    (lambda log: log.commit_offsets(" g", {"t": {0: 1}}), REFUSED, f"group=' g': expected {GROUP}"),
    (lambda log: log.delete_reader(5), REFUSED, f"group=5: expected {GROUP}"),
    (lambda log: log.delete_reader("g", "x"), REFUSED,
     "partitions='x': expected {topic: partition numbers}"),
    (lambda log: log.delete_reader("g", {"t": 5}), REFUSED,
     "partitions={'t': 5}: expected {topic: partition numbers}"),
    (lambda log: log.reset_reader(5, "earliest"), REFUSED, f"group=5: expected {GROUP}"),
    (lambda log: log.reset_reader("g", "first", "t"), REFUSED,
     "to='first': expected earliest, latest, current, an offset"),
    (lambda log: log.reset_reader("g", 1.5, "t"), REFUSED,
     "to=1.5: expected earliest, latest, current, an offset"),
    (lambda log: log.reset_reader("g", NAIVE, "t"), REFUSED,
     "to=datetime.datetime(2020, 1, 1, 0, 0): expected a datetime with a time zone"),
    (lambda log: log.reset_reader("g", "earliest", 5), REFUSED,
     "topics=5: expected the name of a topic, a list of names"),
    (lambda log: log.reset_reader("g", "earliest", {"t": 5}), REFUSED,
     "topics={'t': 5}: expected the name of a topic, a list of names"),
    (lambda log: log.reset_reader("g", "earliest", "none"), UNKNOWN, NO_TOPIC),
    (lambda log: log.reset_reader("g", "earliest", {"t": [9]}), UNKNOWN,
     "topic t of LOG has no partition 9"),
    (lambda log: log.reset_reader("g", "earliest", {"t": [-1]}), UNKNOWN,
     "topic t of LOG has no partition -1"),
    (lambda log: log.reset_reader("g", "earliest", {"none": [0]}), UNKNOWN, NO_TOPIC),
    (lambda log: log.reset_reader("g", offsets={"none": {0: 1}}), UNKNOWN, NO_TOPIC),
    (lambda log: log.reset_reader("", "earliest"), REFUSED, f"group='': expected {GROUP}"),
    (lambda log: log.reset_reader("g"), REFUSED,
     "exactly one of the arguments `to`, `shift_by` and `offsets` must be given"),
    (lambda log: log.reset_reader("g", "earliest", shift_by=1), REFUSED,
     "exactly one of the arguments `to`, `shift_by` and `offsets` must be given"),
    (lambda log: log.reset_reader("g", topics="t", offsets={"t": {0: 1}}), REFUSED,
     "`offsets` names its topics: leave out `topics`"),
    (lambda log: log.reset_reader("g", topics="t", shift_by="1"), REFUSED,
     "shift_by='1': expected an integer"),
    (lambda log: log.reset_reader("g", offsets={"t": 5}), REFUSED,
     f"offsets={{'t': 5}}: expected {BY_TOPIC}"),
    (lambda log: log.reset_reader("g", offsets={"t": {9: 1}}), UNKNOWN,
     "topic t of LOG has no partition 9"),
]  # fmt: skip
"""Calls that are valid in mode "r", too."""

WRITES: Final[list[Case]] = [
    (lambda log: log.create_topic("a", "2"), REFUSED, "partitions='2': expected an integer"),
    (lambda log: log.create_topic("a", 2.0), REFUSED, "partitions=2.0: expected an integer"),
    (lambda log: log.create_topic("a", True), REFUSED, "partitions=True: expected an integer"),
    (lambda log: log.create_topic("a", 0), REFUSED, "partitions=0: expected at least 1"),
    (lambda log: log.create_topic(5), REFUSED, f"topic=5: expected {NAME}"),
    (lambda log: log.create_topic("a", 1, "retention.ms=1"), REFUSED,
     "config='retention.ms=1': expected {option: value}"),
    (lambda log: log.create_topic("a", 1, {5: 1}), REFUSED, "unknown option 5"),
    (lambda log: log.create_topic("a", 1, {"retention.ms": None}), REFUSED, "retention.ms=None"),
    (lambda log: log.create_topic("a", starts="x"), REFUSED, f"starts='x': expected {OFFSETS}"),
    (lambda log: log.create_topic("a", starts={0: "5"}), REFUSED,
     f"starts={{0: '5'}}: expected {OFFSETS}"),
    (lambda log: log.create_topic("a", starts={5: 1}), REFUSED, "starts={5: 1}"),
    (lambda log: log.alter_topic("t", "3"), REFUSED,
     "partitions='3': expected an integer, or None"),
    (lambda log: log.alter_topic("t", config="x"), REFUSED, "config='x': expected {option: value}"),
    (lambda log: log.alter_topic("none", 3), UNKNOWN, NO_TOPIC),
    (lambda log: log.delete_topic("none"), UNKNOWN, NO_TOPIC),
    (lambda log: log.delete_topic(5), REFUSED, f"topic=5: expected {NAME}"),
    (lambda log: log.delete_topic("t", topic_id=5), REFUSED,
     "topic_id=5: expected a topic id, a string, or None"),
    (lambda log: log.undelete_topic("none"), UNKNOWN,
     "no deleted topic none can be restored in LOG"),
    (lambda log: log.undelete_topic(5), REFUSED, f"topic=5: expected {NAME}"),
    (lambda log: log.delete_records("t", 5), REFUSED, f"offsets=5: expected {OFFSETS}"),
    (lambda log: log.delete_records("t", {0: "1"}), REFUSED,
     f"offsets={{0: '1'}}: expected {OFFSETS}"),
    (lambda log: log.delete_records("t", {9: 1}), UNKNOWN, "t-9 is not in LOG"),
    (lambda log: log.delete_records("t", {0: 99}), OUT_OF_RANGE,
     "t-0: the records before offset 99 can't be deleted"),
    (lambda log: log.move_partition("t", "0", "/d"), REFUSED,
     "partition='0': expected the number of a partition"),
    (lambda log: log.move_partition("t", 0, 5), REFUSED, "to=5: expected the path of a log dir"),
    (lambda log: log.append("none", ROW), UNKNOWN, NO_TOPIC),
    (lambda log: log.append(5, ROW), REFUSED, f"topic=5: expected {NAME}"),
    (lambda log: log.append("t", [b"x"]), REFUSED, "data must be a pyarrow Table"),
    (lambda log: log.append("t", ROW, 9), REFUSED, "topic t has no partition 9"),
    (lambda log: log.append("t", ROW, "0"), REFUSED,
     "partition='0': expected the number of a partition"),
    (lambda log: log.append("t", ROW, True), REFUSED,
     "partition=True: expected the number of a partition"),
    (lambda log: log.append("t", ROW, 0, 5), REFUSED,
     "producer=5: expected (producer id, epoch, sequence"),
    (lambda log: log.append("t", ROW, 0, (1, 2)), REFUSED,
     "producer=(1, 2): expected (producer id, epoch, sequence"),
    (lambda log: log.append("t", ROW, 0, ("1", 0, 0)), REFUSED,
     "producer=('1', 0, 0): expected (producer id, epoch, sequence"),
    (lambda log: log.append("t", ROW, 0, (-1, 0, 0)), REFUSED,
     "producer=(-1, 0, 0): expected (producer id, epoch, sequence"),
    (lambda log: log.append("t", ROW, framing="lz4"), REFUSED,
     "framing='lz4': expected a sparklog.storage.staging.Framing"),
    (lambda log: log.append("t", pa.table({"v": [b"x"]})), REFUSED,
     "the data must have a column value"),
    (lambda log: log.commit([5]), REFUSED,
     "chunks=[5]: expected a list of the chunks that a stager returned"),
    (lambda log: log.outcome(5), REFUSED, "unknown=5: expected a CommitUnknownError"),
    (lambda log: log.outcome((1, 2)), REFUSED, "unknown=(1, 2): expected a CommitUnknownError"),
    (lambda log: log.reset(5, 0), REFUSED, "writer=5: expected a writer or the id of a query"),
    (lambda log: log.reset("w", "0"), REFUSED, "batch='0': expected an integer"),
    (lambda log: log.reset("w", -5), REFUSED, "batch=-5"),
    (lambda log: log.give_up("none"), UNKNOWN, NO_TOPIC),
    (lambda log: log.give_up("t", [9]), UNKNOWN, NO_PARTITION),
    (lambda log: log.give_up("t", [1]), REFUSED, "t-1 is not offline"),
    (lambda log: log.give_up("t", 5), REFUSED, f"partitions=5: expected {NUMBERS}"),
    (lambda log: log.give_up(None, [0]), REFUSED,
     "partitions=[0]: pass the topic that the partitions belong to"),
]  # fmt: skip
"""Calls that need a log that is open for writing."""


def wrong_refusals(log: Log, cases: list[Case]) -> list[str]:
    """Return the cases for which `log` does not raise the error and message of the table."""
    wrong = []
    for number, (call, kind, message) in enumerate(cases):
        try:
            outcome = f"no error, but {call(log)!r}"
        except Exception as error:  # noqa: BLE001 - to report bare Python errors
            told = str(error).replace(log.path, "LOG").replace(view_of(log).home, "LOG")
            if type(error) is kind and told.startswith(message):
                continue
            outcome = f"{type(error).__name__}: {told}"
        wrong.append(f"{number}: expected {kind.__name__}: {message}\n   got {outcome}")
    return wrong


class ArgumentsContract:
    """Invalid arguments never change a log, and raise the same error in all homes."""

    def test_invalid_arguments_are_refused(self, open_log: Callable[[str], Log]) -> None:
        log = open_log("rw")
        log.create_topic("t", 2)
        log.append("t", pa.table({"value": [b"a", b"b"]}), partition=0)
        before = log.commits().num_rows, log.topics(), log.offsets("t"), log.readers().num_rows
        wrong = wrong_refusals(log, READS + WRITES) + wrong_refusals(open_log("r"), READS)
        assert not wrong, "\n".join(wrong)
        after = log.commits().num_rows, log.topics(), log.offsets("t"), log.readers().num_rows
        assert after == before
        log.append("t", ROW, partition=1)
        assert open_log("r").read("t").read_all().num_rows == 3

    def test_integers_of_numpy_are_integers(self, open_log: Callable[[str], Log]) -> None:
        log = open_log("rw")
        zero, one, two = (cast(int, np.int64(number)) for number in range(3))
        log.create_topic("t", two)
        log.append("t", ROW, partition=zero)
        found = log.read("t", partitions=[zero, one], start={zero: zero}).read_all()
        assert found.num_rows == 1
        assert log.offsets_for_times("t", {zero: zero}) == {0: 0}
        log.commit_offsets("g", {"t": {zero: one}})
        assert log.delete_records("t", {zero: one}) == {0: 1}
        assert open_log("r").topic("t").partitions == 2

    def test_a_partition_is_read_once_however_often_it_is_named(
        self, open_log: Callable[[str], Log]
    ) -> None:
        log = open_log("rw")
        log.create_topic("t", 2)
        log.append("t", ROW, partition=1)
        assert log.read("t", partitions=[1, 1]).read_all().num_rows == 1
        assert log.read("t", partitions=[]).read_all().num_rows == 0

    @pytest.mark.parametrize("mode", ["r", "rw"])
    def test_a_closed_log_says_so(self, open_log: Callable[[str], Log], mode: str) -> None:
        open_log("rw").create_topic("t")
        log = open_log(mode)
        log.close()
        log.close()
        calls: list[Callable[[], object]] = [
            log.topics,
            log.commits,
            log.readers,
            log.deleted_topics,
            log.offline,
            lambda: log.topic("t"),
            lambda: log.offsets("t"),
            lambda: log.read("t"),
            lambda: log.offsets_for_times("t", 0),
            lambda: log.end_offset_for_epoch("t", 0, 0),
            lambda: log.commit_offsets("g", {"t": {0: 0}}),
            lambda: log.delete_reader("g"),
            lambda: log.append("t", ROW),
            lambda: log.create_topic("u"),
            lambda: log.delete_topic("t"),
        ]
        for call in calls:
            with pytest.raises(InvalidRequestError, match=r"was closed by Log\.close: open it"):
                call()
