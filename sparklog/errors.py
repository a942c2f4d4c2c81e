"""Every error that sparklog raises on purpose: one class for each thing that a caller can do.

    SparklogError
    |- InvalidRequestError (ValueError)   fix the call: an option, a column, a topic name
    |  |- UnknownTopicError               create the topic, or correct its name
    |  |- RecordTooLargeError             raise max.message.bytes, or make the record smaller
    |  `- UnsupportedVersionError         read this log with a newer sparklog
    |- OffsetOutOfRangeError              start again at the log start offset or at the end
    |- TopicReplacedError                 the topic was deleted and made again: start over
    |- LogReplacedError                   the log's directory was: open the log again, start over
    |- DataCorruptionError                restore the file, or give the range up knowingly
    |  `- PartitionOfflineError           bring its directory back, or give the range up
    |- BatchConflictError                 two different micro-batches under one number
    |- FencedError                        another producer took over: stop this one
    |- OutOfOrderSequenceError            an idempotent producer lost a batch: stop it
    |- GroupNotEmptyError                 a group's readers are at work: end them, and try again
    |- LogLockedError                     retriable: somebody else holds the log
    `- StorageUnavailableError            retriable: disk full, permissions, I/O errors
       `- CommitUnknownError              ask later whether it was committed: Log.outcome

Messages say what happened, where (file, position, offset range) and what to do. They are for
people: a program goes by class and attributes. `path`: the file, directory or URL that the error
is about, None if it is about none. `retriable`: the same call may succeed later without a change.
"""

from typing import Any, ClassVar


class SparklogError(Exception):
    """Root of the tree; catch it to catch all of the above."""

    retriable: ClassVar[bool] = False
    path: str | None = None

    def __init__(self, *words: object, path: str | None = None) -> None:
        super().__init__(*words)
        if path is not None:
            self.path = path  # in __dict__, which a pickle keeps


class InvalidRequestError(SparklogError, ValueError):
    """The call can't be carried out as it stands; nothing was changed."""


class UnknownTopicError(InvalidRequestError):
    """The topic or partition does not exist in this log.

    Spark's readers raise this error for a log that does not exist, too.
    """


class RecordTooLargeError(InvalidRequestError):
    """A record batch would exceed max.message.bytes (Kafka: RecordTooLargeException).

    `size_bytes`: of the batch that the record alone makes; None where that isn't known.
    """

    size_bytes: int | None = None


class UnsupportedVersionError(InvalidRequestError):
    """The log was written by a newer sparklog than this one."""


class OffsetOutOfRangeError(SparklogError):
    """An offset lies before the log start offset or past the high watermark.

    `offset` is the one asked for, `start` and `end` are what the partition holds: [start, end).
    """

    def __init__(
        self, message: str, *, offset: int, start: int, end: int, path: str | None = None
    ) -> None:
        super().__init__(message, path=path)
        self.offset, self.start, self.end = offset, start, end

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), str(self), self.__dict__)


class TopicReplacedError(SparklogError):
    """The topic's id changed under a reader: it was deleted and made again."""


class LogReplacedError(SparklogError):
    """A log dir is gone, or holds another log or an earlier state than under this handle before."""


class DataCorruptionError(SparklogError):
    """Bytes below the last committed end are damaged. Nothing was cut, nothing skipped.

    `path` is the file, `position` the byte where the damage shows, `first` and `end` the offset
    range [first, end) that can't be trusted (None where it can't be told).
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
    """A partition's directory or segments are missing: its log dir isn't mounted, say.

    Nothing is read from it or written to it until they are back, which whoever uses it next
    notices, or until its owner gives the range up: `Log.give_up`, `sparklog verify --give-up`.
    (Kafka: an offline partition, KafkaStorageException)
    """


class BatchConflictError(SparklogError):
    """A micro-batch number was committed before with other contents (another fingerprint)."""


class FencedError(SparklogError):
    """A producer of a newer epoch exists (Kafka: InvalidProducerEpochException)."""


class OutOfOrderSequenceError(SparklogError):
    """A producer's sequence number leaves a gap (Kafka: OutOfOrderSequenceException)."""


class GroupNotEmptyError(SparklogError):
    """Readers of a group are at work, whose offsets are theirs (Kafka: GroupNotEmptyException)."""


class LogLockedError(SparklogError):
    """Another process holds the log's lock: its pid is in the message."""

    retriable = True


class StorageUnavailableError(SparklogError):
    """The file system refused: disk full, no permission, I/O error. The log is as it was.

    `passing`: a remote store doesn't answer, or is busy, so waiting helps; with False somebody has
    to do something first.
    """

    retriable = True

    def __init__(self, *words: object, path: str | None = None, passing: bool = False) -> None:
        super().__init__(*words, path=path)
        self.passing = passing


class CommitUnknownError(StorageUnavailableError):
    """Nobody can tell now whether a commit was made: the store took it, and doesn't answer.

    `position`: of the ledger record that it is, if it was; `attempt`: what tells it from any other
    one there. A micro-batch that comes again finds out by its identity; `Log.outcome` finds out for
    all else, at any time. Until then neither is what was staged deleted nor another try made.
    """

    def __init__(
        self, *words: object, position: int, attempt: str = "", path: str | None = None
    ) -> None:
        super().__init__(*words, path=path, passing=True)
        self.position, self.attempt = position, attempt

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), str(self), self.__dict__)


def _rebuild(kind: type[SparklogError], message: str, state: dict[str, Any]) -> SparklogError:
    """Unpickle an error whose constructor takes more than its message (Spark pickles errors)."""
    error = kind.__new__(kind)
    Exception.__init__(error, message)
    error.__dict__.update(state)
    return error
