"""The log dirs of a new log that is copied from another log: by a fork, or out of a bucket.

The log dirs are created beside their final places, and renamed when all of them are durable: a
crash leaves the complete log or no log. The files of the log itself are written as a clean close
leaves them. The caller writes the partitions.
"""

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Self

from sparklog.clock import Clock
from sparklog.common import TopicPartition
from sparklog.format.checkpoint_files import Epochs, format_partition_metadata
from sparklog.format.names import PARTITION_METADATA
from sparklog.fs import FileSystem, write_durably
from sparklog.log.topic_names import new_topic_id
from sparklog.logdir.broker_lockout import check_file_system, mark_made
from sparklog.logdir.closing import write_checkpoints
from sparklog.logdir.group_offsets import write_reader
from sparklog.logdir.high_watermarks import publish
from sparklog.logdir.ledger import LEDGER, LedgerWriter, ledger_config, ledger_path
from sparklog.logdir.log_dirs import write_new_dirs
from sparklog.logdir.offset_checkpoints import Offsets, write_offsets
from sparklog.logdir.partition.leader_epochs import write_epochs
from sparklog.logdir.partition.partition_log import PartitionLog
from sparklog.logdir.paths import check_writable
from sparklog.logdir.segment_files import joined
from sparklog.logdir.staged_directory import StagedDirectories
from sparklog.logdir.topics_file import write_topics
from sparklog.storage.groups import Reader
from sparklog.storage.ledger_records import ForkedFrom
from sparklog.storage.log_state import LogState


def write_partition_files(
    fs: FileSystem, path: str, key: TopicPartition, topic_id: str, epochs: Epochs
) -> None:
    """Write the metadata and the leader epochs of a new partition. The caller syncs `path`."""
    metadata = format_partition_metadata(topic_id, key.partition)
    write_durably(fs, joined(path, PARTITION_METADATA), metadata, sync_dir=False)
    write_epochs(fs, path, epochs, sync_dir=False)


class NewLogDirs:
    """The log dirs of a new log until they are published; a context manager.

    Args:
        fs: The file system.
        clock: The current time.
        targets: The final paths. They must not exist, but their parents must.
        kind: A word for the purpose, such as "fork", which is part of the temporary names.
        waits_for: A path that is created later, to which the log belongs: see `StagedDirectories`.

    Raises:
        InvalidRequestError: A path is not on a local file system.
    """

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        targets: Sequence[str],
        kind: str,
        *,
        waits_for: str | None = None,
    ) -> None:
        check_writable(targets)
        for target in targets:
            check_file_system(fs, os.path.dirname(target))
        self._fs, self._clock, self._targets = fs, clock, list(targets)
        self._staged = StagedDirectories(fs, targets, kind, waits_for=waits_for)
        self._stack = contextlib.ExitStack()

    @property
    def directories(self) -> list[str]:
        """The log dirs during the creation. The caller must create the directories."""
        return self._staged.directories

    def beside(self, number: int, name: str) -> str:
        """Return a path for temporary files of log dir `number`, removed at the end."""
        return self._staged.beside(number, name)

    def number(self, old: int) -> int:
        """Return the new log's log dir for the partitions of the old log's log dir number `old`.

        A single new log dir takes all partitions.
        """
        return old if len(self._targets) > 1 else 0

    def __enter__(self) -> Self:
        """Reserve the target paths; errors as of `StagedDirectories.__enter__`."""
        self._stack.enter_context(self._staged)
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def publish(
        self,
        state: LogState,
        *,
        fork: ForkedFrom | None = None,
        cleaned: Mapping[str, Offsets],
        groups: Iterable[Reader] = (),
    ) -> None:
        """Write the files of the log as after a clean close, and rename the log dirs.

        Args:
            state: The state of the new log. Its partitions must be durable and closed.
            fork: The log and the point that the new log was forked from, if it is a fork.
            cleaned: {name of a checkpoint file: the offsets up to which cleaners have read}.
            groups: The consumer groups of the new log.
        """
        fs, directories, home = self._fs, self.directories, self.directories[0]
        self._write_ledger(state, fork)
        write_topics(fs, home, state)
        for name, offsets in cleaned.items():
            for number, directory in enumerate(directories):
                here: Offsets = {
                    key: offset for key, offset in offsets.items()
                    if 0 < offset <= state.ends.get(key, 0)
                    and state.topics[key.topic].dirs[key.partition] == number
                }  # fmt: skip
                if here:
                    write_offsets(fs, directory, name, here)
        write_checkpoints(fs, directories, state, 1)
        publish(fs, home, {**state.ends, LEDGER: 1}, state.starts, durable=1)
        for group in groups:
            write_reader(fs, home, group)
        # The clean mark without a guard, as after a clean close: the first open for writing then
        # needs no recovery.
        mark_made(fs, directories)
        write_new_dirs(fs, directories, self._targets)
        self._staged.publish()

    def _write_ledger(self, state: LogState, fork: ForkedFrom | None) -> None:
        """Write a ledger with a single record, the snapshot of the state."""
        log = PartitionLog.create(
            self._fs, ledger_path(self.directories[0]), key=LEDGER,
            topic_id=new_topic_id(), config=ledger_config(), clock=self._clock,
        )  # fmt: skip
        record = replace(state.snapshot(), fork=fork)
        LedgerWriter(log).append(record, epoch=state.epoch, time_ms=state.time_ms, sync=True)
        log.close()
