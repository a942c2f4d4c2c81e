"""Checks the ledger's consistency, and the files derived from it."""

from typing import Any, Final

from sparklog.common import TopicPartition
from sparklog.config import TopicConfig
from sparklog.errors import DataCorruptionError, SparklogError, UnsupportedVersionError
from sparklog.format.names import log_name
from sparklog.fs import FileSystem
from sparklog.logdir.detection import has_lost_ledger
from sparklog.logdir.high_watermarks import WATERMARKS_NAME, Published, published
from sparklog.logdir.ledger import (
    LEDGER,
    fold,
    has_ledger,
    ledger_bases,
    ledger_path,
    replay,
)
from sparklog.logdir.segment_files import joined
from sparklog.logdir.topics_file import TOPICS_NAME, read_topics
from sparklog.logdir.uncommitted_tails import committed_ledger_end
from sparklog.service.verification.findings import Findings, FixKind, Severity
from sparklog.service.verification.log_dir_state import LogDirState, Situation
from sparklog.storage.committed_appends import note_appends
from sparklog.storage.ledger_records import (
    AdoptRecord,
    AppendRecord,
    CommitRecord,
    InvalidRecordError,
    LedgerRecord,
    ResetRecord,
    SnapshotRecord,
    StartRecord,
    TopicRecord,
)
from sparklog.storage.log_state import LogState
from sparklog.storage.segments import StaleReadError
from sparklog.storage.topic_state import TopicState

EPOCH_UNKNOWN: Final = 2**31 - 1
_STORED: Final = {  # name in the ledger -> field of the state
    "topics": "topics", "ends": "ends", "starts": "starts", "local": "local_starts",
    "dropped": "dropped", "writers": "writers", "origins": "origins", "idempotent": "idempotent",
    "tails": "tails",
}  # fmt: skip


def read_ledger(fs: FileSystem, log_dir_state: LogDirState, out: Findings) -> None:
    """Read the ledger into `log_dir_state`; check the ledger and the files derived from it.

    If the ledger can't be read, the derived files are used instead.
    """
    if not has_ledger(fs, log_dir_state.home):
        if log_dir_state.situation.is_ours or has_lost_ledger(fs, log_dir_state.home):
            out.add(
                Severity.DAMAGE, ledger_path(log_dir_state.home), "the commit ledger is missing",
                fix=FixKind.COMMIT_LEDGER,
            )  # fmt: skip
            _stand_in(fs, log_dir_state, published(fs, log_dir_state.home))
        return
    marks = published(fs, log_dir_state.home)
    end = _ledger_end(fs, log_dir_state, marks, out)
    if end is not None and _check_records(fs, log_dir_state, end, out):
        _check_watermarks(log_dir_state, marks, out)
        _check_topics(fs, log_dir_state, marks, out)
    else:
        _stand_in(fs, log_dir_state, marks)


def _ledger_end(
    fs: FileSystem, log_dir_state: LogDirState, marks: Published | None, out: Findings
) -> int | None:
    path = ledger_path(log_dir_state.home)
    if log_dir_state.situation is Situation.OPEN and marks is not None:
        return marks.ends.get(LEDGER, 0)
    try:
        own = log_dir_state.dirs.own
        end = committed_ledger_end(fs, log_dir_state.home, own)
    except DataCorruptionError as error:
        out.add(
            Severity.DAMAGE, error.path, error.reason, position=error.position, first=error.first,
            fix=FixKind.COMMIT_LEDGER,
        )  # fmt: skip
        return None
    floor = 0 if marks is None else max(marks.durable, marks.ends.get(LEDGER, 0))
    if marks is not None and end < floor and not _may_lose(log_dir_state, marks):
        out.add(
            Severity.DAMAGE, path, "committed records are missing at its end", first=end,
            end=floor, fix=FixKind.COMMIT_LEDGER,
        )  # fmt: skip
        return None
    return end


def _may_lose(log_dir_state: LogDirState, marks: Published) -> bool:
    """Return True if a power cut may have lost the last commits, which flush=none allows."""
    return log_dir_state.situation is Situation.CRASHED and not marks.durable


def _stand_in(fs: FileSystem, log_dir_state: LogDirState, marks: Published | None) -> None:
    """Use the watermarks and the topics file instead of the ledger."""
    state = LogState()
    try:
        topics = read_topics(fs, log_dir_state.home)
    except SparklogError:
        topics = None
    if topics is None or marks is None:
        return
    log_dir_state.ledger_end = marks.ends.get(LEDGER, 0)
    state.topics = topics
    keys = {TopicPartition(name, p) for name, topic in topics.items() for p in topic.dirs}
    state.ends = {key: marks.ends.get(key, 0) for key in keys}
    state.starts = {key: at for key, at in marks.starts.items() if key in keys}
    state.epoch = EPOCH_UNKNOWN
    log_dir_state.state = state


# -- the records


def _check_records(fs: FileSystem, log_dir_state: LogDirState, end: int, out: Findings) -> bool:
    """Apply and check all records. Return False if the ledger's last segment can't be read."""
    records = _LedgerCheck(log_dir_state, out)
    bases = [base for base in ledger_bases(fs, log_dir_state.home) if base < end]
    log_dir_state.ledger_end = end
    try:
        for at, base in enumerate(bases):
            stop = bases[at + 1] if at + 1 < len(bases) else end
            try:
                for offset, record in replay(fs, log_dir_state.home, base, stop):
                    records.take(offset, record, begins=offset == base)
            except InvalidRecordError:
                raise
            except (DataCorruptionError, StaleReadError):
                records.interrupt()  # the partition check reports the place
                out.add(
                    Severity.DAMAGE, joined(ledger_path(log_dir_state.home), log_name(base)),
                    "this segment of the commit ledger is damaged", fix=FixKind.COMMIT_LEDGER,
                )  # fmt: skip
                if at + 1 == len(bases):
                    return False
        if not records.rooted:
            return False
    except (InvalidRecordError, UnsupportedVersionError) as error:
        reason, first = str(error), None
        if isinstance(error, InvalidRecordError):
            reason, first = error.reason, error.first
        out.add(
            Severity.DAMAGE, ledger_path(log_dir_state.home), reason, first=first,
            fix=FixKind.COMMIT_LEDGER if isinstance(error, InvalidRecordError) else None,
        )  # fmt: skip
        state = LogState()
        try:
            fold(fs, log_dir_state.home, end, state=state, first=None)
        except SparklogError:
            return False
        records.state = state
    log_dir_state.state = records.state
    return True


class _LedgerCheck:
    """Applies ledger records in order, and reports records that contradict earlier records."""

    def __init__(self, log_dir_state: LogDirState, out: Findings) -> None:
        self.state = LogState()
        self.rooted = False
        self._truth, self._out = log_dir_state, out
        self._path = ledger_path(log_dir_state.home)

    def interrupt(self) -> None:
        """Start over at the next segment's snapshot, because records are missing."""
        self.state, self.rooted = LogState(), False

    def take(self, offset: int, record: LedgerRecord, *, begins: bool) -> None:
        """Check a record, then apply it to the state.

        `begins`: the record is the first of a ledger segment.
        """
        is_snapshot = isinstance(record, SnapshotRecord)
        if begins and not is_snapshot:
            self._fault(offset, f"the segment begins with a {record.kind} record, not a snapshot")
        if self.rooted:
            if record.time_ms < self.state.time_ms:
                self._fault(offset, f"its time {record.time_ms} is before that of the one before")
            if record.epoch < self.state.epoch:
                self._fault(offset, f"its leader epoch {record.epoch} is below the last one")
            self._check(offset, record)
        try:
            self.state.apply(record)
        except KeyError as error:
            self._fault(offset, f"a {record.kind} record of {error}, which does not exist")
        if isinstance(record, AppendRecord):
            note_appends(self._truth.appends, self.state, record)
        self.rooted = self.rooted or is_snapshot
        if isinstance(record, TopicRecord | AdoptRecord | SnapshotRecord):
            known = self._truth.intervals
            for name, topic in self.state.topics.items():
                known[name] = max(known.get(name, 0), topic.parsed().index_interval_bytes)

    def _check(self, offset: int, record: LedgerRecord) -> None:
        match record:
            case SnapshotRecord():
                self._check_snapshot(offset, record)
            case CommitRecord():
                self._check_append(offset, record)
                self._check_commit(offset, record)
            case AppendRecord():
                self._check_append(offset, record)
            case ResetRecord():
                self._check_reset(offset, record)
            case StartRecord():
                self._check_start(offset, record)

    def _fault(self, offset: int, what: str) -> None:
        self._out.add(
            Severity.DAMAGE, self._path, f"{what}; the ledger contradicts itself",
            first=offset, end=offset + 1,
        )  # fmt: skip

    def _check_snapshot(self, offset: int, record: SnapshotRecord) -> None:
        wanted = self.state.snapshot()
        for name, field in _STORED.items():
            stored = getattr(record, field)  # an older sparklog writes None
            if stored is not None and stored != (getattr(wanted, field) or type(stored)()):
                self._fault(offset, f"the snapshot's {name} are not those of the records before")

    def _check_append(self, offset: int, record: AppendRecord) -> None:
        for key, (first, end) in record.ends.items():
            known = self.state.ends.get(key)
            if known is None:
                self._fault(offset, f"{key} does not exist")
            elif first != known or end <= first:
                gets = f"{key} gets offsets [{first}, {end})"
                self._fault(offset, f"{gets} where it ended at {known}")

    def _check_commit(self, offset: int, record: CommitRecord) -> None:
        last = self.state.writers.get(record.writer)
        if last is not None and record.batch <= last.batch:
            self._fault(offset, f"writer {record.writer} commits {record.batch} after {last.batch}")

    def _check_reset(self, offset: int, record: ResetRecord) -> None:
        for writer, last in (record.writers or {}).items():
            known = self.state.writers.get(writer)
            if known is None or (last is not None and last.batch > known.batch):
                at = "nothing" if known is None else f"batch {known.batch}"
                back = "none" if last is None else last.batch
                self._fault(offset, f"writer {writer}, at {at}, goes back to {back}")

    def _check_start(self, offset: int, record: StartRecord) -> None:
        local_starts = self.state.starts | self.state.local_starts
        for what, given, known in (
            ("start", record.starts, self.state.starts),
            ("local start", record.local_starts or {}, local_starts),
        ):
            for key, start in given.items():
                low, high = known.get(key, 0), self.state.ends.get(key, -1)
                if not low <= start <= high:
                    self._fault(offset, f"{key} gets the {what} {start}, not in [{low}, {high}]")


# -- derived files


def _check_watermarks(log_dir_state: LogDirState, marks: Published | None, out: Findings) -> None:
    path, state = joined(log_dir_state.home, WATERMARKS_NAME), log_dir_state.state
    assert state is not None
    behind = Severity.DIFFERENCE
    if log_dir_state.situation is Situation.CRASHED:
        behind = Severity.LEFTOVER
    if marks is None:
        out.add(Severity.DIFFERENCE, path, "missing or damaged", fix=FixKind.WATERMARKS)
        return
    if not log_dir_state.situation.is_ours:
        return  # a broker wrote since; the next open publishes watermarks again
    ends = {**state.ends, LEDGER: log_dir_state.ledger_end}
    if marks.ends.get(LEDGER) != log_dir_state.ledger_end:
        out.add(
            behind,
            path,
            f"contains ledger end {marks.ends.get(LEDGER)}; the end is {log_dir_state.ledger_end}",
            fix=FixKind.WATERMARKS,
        )
    elif marks.ends != ends or marks.starts != state.starts:
        out.add(Severity.DIFFERENCE, path, "differs from the ledger", fix=FixKind.WATERMARKS)


def _check_topics(
    fs: FileSystem, log_dir_state: LogDirState, marks: Published | None, out: Findings
) -> None:
    path = joined(log_dir_state.home, TOPICS_NAME)
    assert log_dir_state.state is not None
    # A commit writes the topics file before the watermarks. A crash in between leaves both behind.
    is_published = marks is not None and marks.ends.get(LEDGER) == log_dir_state.ledger_end
    is_cut = log_dir_state.situation is Situation.CRASHED and not is_published
    severity = Severity.LEFTOVER if is_cut else Severity.DIFFERENCE
    try:
        topics = read_topics(fs, log_dir_state.home)
    except SparklogError as error:
        reason = error.reason if isinstance(error, DataCorruptionError) else str(error)
        out.add(Severity.DIFFERENCE, path, reason, fix=FixKind.TOPICS)
        return
    if topics is None:
        out.add(severity, path, "it is missing", fix=FixKind.TOPICS)
    elif _rendered(topics) != _rendered(log_dir_state.state.topics):
        out.add(severity, path, "differs from the ledger", fix=FixKind.TOPICS)


def _rendered(topics: dict[str, TopicState]) -> dict[str, dict[str, Any]]:
    return {name: topic.to_json() for name, topic in topics.items()}


def interval_of(log_dir_state: LogDirState, topic: str, config: TopicConfig) -> int:
    """Return the largest index.interval.bytes that the topic has ever had."""
    return max(log_dir_state.intervals.get(topic, 0), config.index_interval_bytes)
