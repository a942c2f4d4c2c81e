"""All errors that sparklog raises deliberately: a class per possible reaction of the caller.

    SparklogError
    |- InvalidRequestError (ValueError)   fix the call: an option, a column, a topic name
    |  |- UnknownTopicError               create the topic, or correct its name
    |  |- RecordTooLargeError             raise max.message.bytes, or make the record smaller
    |  `- UnsupportedVersionError         read this log with a newer sparklog
    |- OffsetOutOfRangeError              start again at the log start offset or at the end
    |- TopicReplacedError                 the topic was deleted and created again: start over
    |- LogReplacedError                   the log's directory was replaced: open it, start over
    |- DataCorruptionError                restore the file, or give up the range deliberately
    |  `- PartitionOfflineError           bring its directory back, or give up the range
    |- BatchConflictError                 two different micro-batches with the same number
    |- FencedError                        another producer took over: stop this one
    |- OutOfOrderSequenceError            an idempotent producer lost a batch: stop it
    |- GroupNotEmptyError                 the group has active members: stop them and try again
    |- LogLockedError                     retriable: another process holds the lock
    `- StorageUnavailableError            retriable: disk full, permissions, I/O errors
       `- CommitUnknownError              ask later whether it was committed: Log.outcome

Messages describe what happened, where (file, position, offset range) and what to do. Messages are
for humans; programs should use the class and attributes. `path`: the file, directory or URL that
the error is about, or None. `retriable`: the same call may succeed later without a change.
"""

from typing import Any, ClassVar


class SparklogError(Exception):
    """The base class of all errors that sparklog raises deliberately.

    Attributes:
        path: The file, directory or URL that the error is about, or None.
        retriable: Whether the same call can succeed later without a change.

    Examples:
        >>> try:
        ...     log.read("departures")
        ... except sparklog.SparklogError as error:
        ...     print(type(error).__name__, error.retriable)
        UnknownTopicError False
    """

    retriable: ClassVar[bool] = False
    path: str | None = None

    def __init__(self, *words: object, path: str | None = None) -> None:
        super().__init__(*words)
        if path is not None:
            self.path = path  # in __dict__, which is pickled


class InvalidRequestError(SparklogError, ValueError):
    """An argument, an option or the data of a call are invalid. The log was not changed.

    Examples:
        >>> log.create_topic("a/b")
        Traceback (most recent call last):
        sparklog.errors.InvalidRequestError: ...
    """


class UnknownTopicError(InvalidRequestError):
    """The topic or partition does not exist in this log.

    Spark's readers also raise this error for a log that does not exist.

    Examples:
        >>> log.topic("departures")
        Traceback (most recent call last):
        sparklog.errors.UnknownTopicError: ...
    """


class RecordTooLargeError(InvalidRequestError):
    """A record batch would exceed max.message.bytes.

    Source: Kafka's RecordTooLargeException.

    Attributes:
        size_bytes: The size of a record batch that contains only this record, if known.

    Examples:
        >>> info = log.create_topic("small", config={"max.message.bytes": 1000})
        >>> log.append("small", pa.table({"value": ["x" * 2000]}))
        Traceback (most recent call last):
        sparklog.errors.RecordTooLargeError: ...
    """

    size_bytes: int | None = None


class UnsupportedVersionError(InvalidRequestError):
    """A newer version of sparklog wrote the log. Install that version to read the log.

    Examples:
        >>> def open_or_upgrade(path):
        ...     try:
        ...         return sparklog.open(path)
        ...     except sparklog.UnsupportedVersionError as error:
        ...         raise SystemExit(f"pip install --upgrade sparklog: {error}")
        >>> open_or_upgrade("log")
        <Log ...log>
    """


class OffsetOutOfRangeError(SparklogError):
    """An offset is below the log start offset or above the high watermark.

    Attributes:
        offset: The requested offset.
        start: The log start offset of the partition.
        end: The high watermark of the partition; the partition contains offsets [start, end).

    Examples:
        >>> try:
        ...     log.read("flights", partitions=[0], start={0: 1_000_000})
        ... except sparklog.OffsetOutOfRangeError as error:
        ...     print(error.offset, error.start, error.end == log.offsets("flights")[0][1])
        1000000 0 True
    """

    def __init__(
        self, message: str, *, offset: int, start: int, end: int, path: str | None = None
    ) -> None:
        super().__init__(message, path=path)
        self.offset, self.start, self.end = offset, start, end

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), str(self), self.__dict__)


class TopicReplacedError(SparklogError):
    """The topic was deleted and created again during a read, so its offsets mean other records.

    Examples:
        >>> reader = log.read("flights")
        >>> restorable_ms = log.delete_topic("flights")
        >>> info = log.create_topic("flights", partitions=2)
        >>> reader.read_all()
        Traceback (most recent call last):
        sparklog.errors.TopicReplacedError: ...
    """


class LogReplacedError(SparklogError):
    """A log dir was deleted or replaced, or contains an earlier state of the log.

    Open the log again, and start readers from the beginning.

    Examples:
        >>> import shutil
        >>> shutil.rmtree("log")
        >>> log.append("flights", pa.table({"value": ["1"]}))
        Traceback (most recent call last):
        sparklog.errors.LogReplacedError: ...
    """


class DataCorruptionError(SparklogError):
    """Bytes below the last committed end offset are damaged. No data were truncated or skipped.

    Attributes:
        path: The damaged file or object.
        position: The first byte that is known to be damaged, or None.
        first: The first affected offset, or None.
        end: The offset after the last affected offset, or None.
        reason: The damage, without its place.

    Examples:
        >>> from pathlib import Path
        >>> segment = Path("log/flights-0/00000000000000000000.log")
        >>> bytes_written = segment.write_bytes(segment.read_bytes()[:-1] + b"?")
        >>> try:
        ...     log.read("flights", partitions=[0]).read_all()
        ... except sparklog.DataCorruptionError as error:
        ...     print(Path(error.path).name, error.first)
        00000000000000000000.log 0
    """

    path: str

    def __init__(
        self,
        reason: str,
        *,
        path: str,
        position: int | None = None,
        first: int | None = None,
        end: int | None = None,
    ) -> None:
        where = path if position is None else f"{path} at byte {position}"
        extent = "" if first is None else f", offsets [{first}, {'?' if end is None else end})"
        super().__init__(f"{where}{extent}: {reason}", path=path)
        self.reason, self.position = reason, position
        self.first, self.end = first, end

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), str(self), self.__dict__)


class PartitionOfflineError(DataCorruptionError):
    """A partition's directory or segments are missing, for example because a disk isn't mounted.

    The partition is neither read nor written until the files are back, which the next use detects,
    or until the missing range is given up: `Log.give_up`, `sparklog verify --give-up`.

    Source: offline partitions and KafkaStorageException of Kafka.

    Examples:
        >>> import os
        >>> log.close()
        >>> os.rename("log/flights-0", "flights-0")
        >>> with sparklog.open("log") as damaged:
        ...     print([type(error).__name__ for error in damaged.offline().values()])
        ['PartitionOfflineError']
    """


class BatchConflictError(SparklogError):
    """A micro-batch was committed before with other contents, that is, another fingerprint.

    Examples:
        >>> def commit(fingerprint):
        ...     identity = sparklog.Identity(writer="loader", batch=0, fingerprint=fingerprint)
        ...     return log.commit([], identity=identity)
        >>> commit("2013-07.csv").replayed
        False
        >>> commit("2013-08.csv")
        Traceback (most recent call last):
        sparklog.errors.BatchConflictError: ...
    """


class FencedError(SparklogError):
    """A producer with a newer epoch exists.

    Source: Kafka's InvalidProducerEpochException.

    Examples:
        >>> row = pa.table({"value": ["1"]})
        >>> ends = log.append("flights", row, partition=0, producer=(7, 1, 0))  # epoch 1
        >>> log.append("flights", row, partition=0, producer=(7, 0, 0))  # epoch 0
        Traceback (most recent call last):
        sparklog.errors.FencedError: ...
    """


class OutOfOrderSequenceError(SparklogError):
    """The sequence number of an idempotent producer leaves a gap.

    Source: Kafka's OutOfOrderSequenceException.

    Examples:
        >>> row = pa.table({"value": ["1"]})
        >>> ends = log.append("flights", row, partition=0, producer=(7, 0, 0))  # sequence 0
        >>> log.append("flights", row, partition=0, producer=(7, 0, 5))  # want sequence 1
        Traceback (most recent call last):
        sparklog.errors.OutOfOrderSequenceError: ...
    """


class GroupNotEmptyError(SparklogError):
    """The offsets of a group can't be changed, because the group has active members.

    Source: Kafka's GroupNotEmptyException.

    Examples:
        >>> def rewind(group):
        ...     try:
        ...         log.reset_reader(group, to="earliest", topics="flights").execute()
        ...     except sparklog.GroupNotEmptyError as error:
        ...         print(f"stop the consumers first: {error}")
        >>> rewind("dashboard")
    """


class LogLockedError(SparklogError):
    """Another process holds a lock of the log. The message contains the id of that process.

    Examples:
        >>> import time
        >>> def open_patiently(path, seconds=60):
        ...     for _ in range(seconds):
        ...         try:
        ...             return sparklog.open(path, mode="rw")
        ...         except sparklog.LogLockedError:
        ...             time.sleep(1)  # retriable
        ...     return sparklog.open(path, mode="rw")
        >>> open_patiently("log").close()
    """

    retriable = True


class StorageUnavailableError(SparklogError):
    """The file system or the object store failed: disk full, no permission, I/O error.

    The log is unchanged.

    Attributes:
        passing: Whether the store is busy or does not respond, so that waiting helps. If False, an
            administrator has to act first.

    Examples:
        >>> from sparklog.testing import CrashFS, Fault
        >>> disk = CrashFS()
        >>> with sparklog.open("/log", "rw", fs=disk) as small:
        ...     info = small.create_topic("flights")
        ...     disk.fail_at(1, Fault.NO_SPACE)  # the disk is full
        ...     small.append("flights", pa.table({"value": ["x" * 10_000]}))
        Traceback (most recent call last):
        sparklog.errors.StorageUnavailableError: ...
    """

    retriable = True

    def __init__(self, *words: object, path: str | None = None, passing: bool = False) -> None:
        super().__init__(*words, path=path)
        self.passing = passing


class CommitUnknownError(StorageUnavailableError):
    """The outcome of a commit is unknown: the store received the commit and does not respond.

    Only a log in a bucket raises this error. A repeated micro-batch is recognised by its identity.
    `Log.outcome` resolves every other commit, at any time. Until then, staged objects are not
    deleted and the commit is not retried.

    Attributes:
        position: The position of the ledger record, if the record was written.
        attempt: A text that distinguishes this commit from any other commit at that position.

    Examples:
        >>> def append(rows):
        ...     try:
        ...         return log.append("flights", rows)
        ...     except sparklog.CommitUnknownError as unknown:
        ...         result = log.outcome(unknown)  # None: the commit failed, and can be repeated
        ...         return log.append("flights", rows) if result is None else result.ends
        >>> append(pa.table({"key": ["N1"], "value": ["1"]}))
        {'flights': {...: (...)}}
    """

    def __init__(
        self, *words: object, position: int, attempt: str = "", path: str | None = None
    ) -> None:
        super().__init__(*words, path=path, passing=True)
        self.position, self.attempt = position, attempt

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), str(self), self.__dict__)


def _rebuild(kind: type[SparklogError], message: str, state: dict[str, Any]) -> SparklogError:
    """Unpickle an error with more constructor arguments than a message. Spark pickles errors."""
    error = kind.__new__(kind)
    Exception.__init__(error, message)
    error.__dict__.update(state)
    return error
