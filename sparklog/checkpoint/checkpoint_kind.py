"""The three ways in which a checkpoint is stored."""

from abc import abstractmethod
from collections.abc import Sequence
from enum import StrEnum

from sparklog.errors import DataCorruptionError
from sparklog.fs import FileSystem


class CheckpointKind(StrEnum):
    """How a checkpoint is stored.

    Attributes:
        FILES: As the files that Spark's own checkpoint manager writes.
        LOG_BACKED: As records of a log dir, on a local disk.
        IN_RUNS: As numbered objects, in a bucket or on a shared disk.

    Examples:
        >>> from sparklog.checkpoint import CheckpointKind, history
        >>> history("checkpoint").kind is CheckpointKind.FILES
        True
    """

    FILES = "files"
    LOG_BACKED = "log-backed"
    IN_RUNS = "in runs"


class StoredFileSystem(FileSystem):
    """The file system of a checkpoint in a store.

    The sink's installation has this class, but not the packages that implement it.
    """

    @property
    @abstractmethod
    def is_in_runs(self) -> bool:
        """Whether the checkpoint is kept in runs."""

    @property
    @abstractmethod
    def ledger_damage(self) -> Sequence[DataCorruptionError]:
        """The damage of the ledger of a checkpoint in runs, as of the last listing."""
