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
    """The base class of all sparklog errors."""

    retriable: ClassVar[bool] = False
    path: str | None = None

    def __init__(self, *words: object, path: str | None = None) -> None:
        super().__init__(*words)
        if path is not None:
            self.path = path  # in __dict__, which is pickled


class InvalidRequestError(SparklogError, ValueError):
    """The call can't be executed as given. The log was not changed."""


class UnknownTopicError(InvalidRequestError):
    """The topic or partition does not exist in this log.

    Spark's readers raise this error for a log that does not exist, too.
    """


class RecordTooLargeError(InvalidRequestError):
    """A record batch would exceed max.message.bytes (Kafka: RecordTooLargeException).

    `size_bytes`: the size of a batch with this record alone, if known.
    """

    size_bytes: int | None = None


class UnsupportedVersionError(InvalidRequestError):
    """The log was written by a newer version of sparklog."""


class OffsetOutOfRangeError(SparklogError):
    """An offset is below the log start offset or above the high watermark.

    `offset` is the requested offset; the partition contains [`start`, `end`).
    """

    def __init__(
        self, message: str, *, offset: int, start: int, end: int, path: str | None = None
    ) -> None:
        super().__init__(message, path=path)
        self.offset, self.start, self.end = offset, start, end

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), str(self), self.__dict__)


class TopicReplacedError(SparklogError):
    """The topic's id changed during a read: the topic was deleted and created again."""


class LogReplacedError(SparklogError):
    """A log dir was deleted or replaced, or contains an earlier state of the log."""


class DataCorruptionError(SparklogError):
    """Bytes below the last committed end offset are damaged. No data were truncated or skipped.

    `path` is the file, `position` the first byte known to be damaged, `first` and `end` the
    affected offset range [first, end), if known.
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

    The partition is neither read nor written until they are back, which the next use detects, or
    until the range is given up: `Log.give_up`, `sparklog verify --give-up`. (Kafka: an offline
    partition, KafkaStorageException)
    """


class BatchConflictError(SparklogError):
    """A micro-batch was committed before with other contents (another fingerprint)."""


class FencedError(SparklogError):
    """A producer with a newer epoch exists (Kafka: InvalidProducerEpochException)."""


class OutOfOrderSequenceError(SparklogError):
    """A producer's sequence number leaves a gap (Kafka: OutOfOrderSequenceException)."""


class GroupNotEmptyError(SparklogError):
    """The offsets can't be changed, because the group has active members.

    (Kafka: GroupNotEmptyException)
    """


class LogLockedError(SparklogError):
    """The log's lock is held by another process. The message contains the pid of this process."""

    retriable = True


class StorageUnavailableError(SparklogError):
    """The file system or store failed: disk full, no permission, I/O error. The log is unchanged.

    `passing`: a store does not respond or is busy, so waiting helps. If False, an administrator has
    to act first.
    """

    retriable = True

    def __init__(self, *words: object, path: str | None = None, passing: bool = False) -> None:
        super().__init__(*words, path=path)
        self.passing = passing


class CommitUnknownError(StorageUnavailableError):
    """The outcome of a commit is unknown: the store received it and does not respond.

    `position`: position of the ledger record, if it was written. `attempt`: distinguishes this
    commit from any other at that position. A repeated micro-batch is recognised by its identity;
    `Log.outcome` resolves all other commits, at any time. Until then, staged objects are not
    deleted and the commit is not retried.
    """

    def __init__(
        self, *words: object, position: int, attempt: str = "", path: str | None = None
    ) -> None:
        super().__init__(*words, path=path, passing=True)
        self.position, self.attempt = position, attempt

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), str(self), self.__dict__)


def _rebuild(kind: type[SparklogError], message: str, state: dict[str, Any]) -> SparklogError:
    """Unpickle an error with more constructor arguments than a message. (Spark pickles errors.)"""
    error = kind.__new__(kind)
    Exception.__init__(error, message)
    error.__dict__.update(state)
    return error
