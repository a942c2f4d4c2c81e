"""The groups of a log (`Groups`), and the protocol of the place where a home stores them."""

import contextlib
import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final, NamedTuple, Protocol

from sparklog.common import TopicPartition
from sparklog.errors import DataCorruptionError, InvalidRequestError, UnsupportedVersionError
from sparklog.storage.groups import (
    GROUP,
    NO_ORIGINS,
    Committed,
    Decision,
    ExpiredOffset,
    Origins,
    Reader,
    Readers,
    check_group,
    committed_as_planned,
    committed_by_query,
    expired_offsets,
    is_expired,
    without_expired,
)

_LOGGER: Final = logging.getLogger(__name__)


class StoredGroup(NamedTuple):
    """A group in a `GroupStore`.

    Attributes:
        key: The key of the group; see `GroupStore.key`.
        path: The path or URL of the group's newest state.
        reader: The group, or None if the group was deleted or can't be read.
        error: Why the newest state can't be read. If `reader` is given nevertheless, the group
            continues at an older position.
        time_ms: When the newest state was written, if it can't be read.
    """

    key: str
    path: str
    reader: Reader | None
    error: DataCorruptionError | UnsupportedVersionError | None = None
    time_ms: int = 0


class GroupStore(Protocol):
    """Stores the groups of a log. Needs no lock of the log. Thread-safe."""

    @property
    def are_waited_for(self) -> bool:
        """Whether the log stores positions of readers, so that retention waits for the readers.

        False in a broker's directory and in an archive.
        """

    def key(self, group: str) -> str:
        """Return the group's key. Unlike its name, the key of a damaged group is known."""

    def naming(self, group: str) -> AbstractContextManager[None]:
        """Return a context in which a StorageUnavailableError names the group."""

    def read(self, group: str) -> Reader | None:
        """Return a group, if known.

        Raises:
            DataCorruptionError: No state of the group can be read.
            UnsupportedVersionError: A newer sparklog wrote the object.
        """

    def read_all(self) -> Sequence[StoredGroup]:
        """Return all groups, also damaged ones."""

    def update(
        self, group: str, decide: Decision, *, heal: bool = False, durably: bool = True
    ) -> bool:
        """Apply `decide` to a group atomically; return True if anything was written.

        Concurrent updates of a group are all applied. An exception of `decide` changes nothing.

        Args:
            group: The name of the group.
            decide: Returns the new state. A state without offsets deletes the group.
            heal: Treat a group that can't be read as unknown. Otherwise a DataCorruptionError is
                raised.
            durably: False if a power cut may restore a deleted group.

        Raises:
            LogLockedError: Another process holds the lock of the group.
            StorageUnavailableError: The store or the disk does not answer.
            UnsupportedVersionError: A newer sparklog wrote the group's state.
        """

    def delete(self, key: str, *, durably: bool = True) -> bool:
        """Delete a group, also a damaged one; return True if the group existed.

        Raises the errors of `update`.
        """


class Groups:
    """The registered readers of a log, with their committed positions. Thread-safe.

    Readers commit their positions without the log's lock. `store` determines the cost of each
    method: see `sparklog.logdir.group_offsets` and `sparklog.diskless.groups`.
    """

    def __init__(self, store: GroupStore) -> None:
        self._store = store

    @property
    def are_waited_for(self) -> bool:
        """Whether the log stores positions of readers, so that retention waits for the readers.

        False in a broker's directory and in an archive. Positions must not be committed there: see
        `check_kept`.
        """
        return self._store.are_waited_for

    # --- reading -----------------------------------------------------------------------------

    def positions(self, group: str) -> Mapping[TopicPartition, Committed]:
        """Return the committed positions of a group; empty if the group is unknown.

        Raises:
            InvalidRequestError: The name is invalid.
            DataCorruptionError: The positions can't be read. Starting elsewhere would lose the
                group's position.
        """
        reader = self.reader(group)
        return {} if reader is None else reader.offsets

    def reader(self, group: str) -> Reader | None:
        """Return a group, if known.

        Raises the errors of `positions`.
        """
        check_group(group)
        return self._store.read(group)

    def readers(self) -> Readers:
        """Return all groups, by name."""
        stored = self._read_all()
        damaged = {each.path: each.time_ms for each in stored if each.error is not None}
        return Readers(_readable(stored), damaged)

    def _read_all(self) -> Sequence[StoredGroup]:
        stored = self._store.read_all()
        for each in stored:
            if each.error is not None:
                _LOGGER.warning("%s", each.error)
        return stored

    def group_of_planner(self, planner: str) -> str | None:
        """Return the group that a task registered for a query's source, if any.

        `planner` is the id of the source.
        """
        return next((r.group for r in self.readers().groups if planner in r.planners), None)

    # --- committing --------------------------------------------------------------------------

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        *,
        now_ms: int,
        host: str,
        origins: Origins = NO_ORIGINS,
    ) -> None:
        """Commit {partition: the next offset to read}, durably; other partitions are unchanged.

        Concurrent commits of a group's members are all applied. A position may move backwards.

        Raises:
            InvalidRequestError: The name is invalid.
            LogLockedError: Another process holds the lock of the group.
            StorageUnavailableError: The store or the disk does not answer.
            UnsupportedVersionError: A newer sparklog wrote the group's state.
        """
        self.commit_query(Reader(group, GROUP, host), offsets, now_ms=now_ms, origins=origins)

    def commit_query(
        self,
        query: Reader,
        offsets: Mapping[TopicPartition, int],
        *,
        now_ms: int,
        planner: str | None = None,
        origins: Origins = NO_ORIGINS,
    ) -> None:
        """Commit, from a task, the start of a query's micro-batch. Other partitions are unchanged.

        `committed_by_query` returns the new state of the group, or None if the stored state is up
        to date. The errors are those of `commit`.

        Args:
            query: The group's fields group, kind, host, app, batch, run and name.
            offsets: {partition: the first offset of the micro-batch}.
            now_ms: The time of the commit.
            planner: The id of the query's source, which this commit registers.
            origins: The leader epochs of the positions.
        """
        check_group(query.group)
        if offsets:
            self.change(
                query.group,
                lambda known: committed_by_query(
                    known, query, offsets, now_ms=now_ms, planner=planner, origins=origins
                ),
            )

    def commit_planned(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        *,
        planner: str,
        now_ms: int,
        origins: Origins = NO_ORIGINS,
    ) -> bool:
        """Commit positions that the planner of a query's source knows.

        Returns False if the query's tasks must commit instead. `committed_as_planned` returns the
        new state of the group. The errors are those of `commit`.

        Args:
            group: The name of the group.
            offsets: {partition: the next offset to read}.
            planner: The id of the query's source.
            now_ms: The time of the commit.
            origins: The leader epochs of the positions.
        """
        check_group(group)
        try:
            with self._store.naming(group):
                return self._store.update(
                    group,
                    lambda known: committed_as_planned(
                        known, offsets, planner=planner, now_ms=now_ms, origins=origins
                    ),
                )
        except DataCorruptionError:  # the query's next task reports the damage, and commits again
            return False

    def change(self, group: str, decide: Decision) -> bool:
        """Apply `decide` to a group, durably; return True if anything was written.

        A damaged group counts as unknown. Members of a group may change the group concurrently, as
        in `commit`. Raises the errors of `commit` and of `decide`.
        """
        check_group(group)
        with self._store.naming(group):
            return self._store.update(group, decide, heal=True)

    def delete(self, group: str) -> bool:
        """Delete a group and return True if the group existed.

        A query or client that still uses the group registers it again with the next commit.
        """
        check_group(group)
        with self._store.naming(group):
            return self._store.delete(self._store.key(group))

    # --- expiration --------------------------------------------------------------------------

    def expire(
        self, *, now_ms: int, retention_ms: int, dry_run: bool = False
    ) -> list[ExpiredOffset]:
        """Delete and return commits older than `retention_ms`, and groups without other commits.

        A damaged group without a readable position expires by the same age. It is returned as its
        path with partition -1. Called by the service. Cost: as `readers`, and an update of each
        group that loses commits.
        """
        expired: list[ExpiredOffset] = []
        stored = self._read_all()
        for reader in _readable(stored):
            old = expired_offsets(reader, now_ms, retention_ms)
            if old and not dry_run:
                old = self._expire(reader.group, now_ms, retention_ms)
            expired += old
        for damaged in (each for each in stored if each.error is not None and each.reader is None):
            if is_expired(damaged.time_ms, now_ms, retention_ms):
                with contextlib.suppress(UnsupportedVersionError):  # keep it for a newer sparklog
                    if not dry_run:
                        self._store.delete(damaged.key, durably=False)
                    expired.append(ExpiredOffset(damaged.path, "", -1, -1, damaged.time_ms))
        return expired

    def _expire(self, group: str, now_ms: int, retention_ms: int) -> list[ExpiredOffset]:
        """Delete a group's expired commits, unless they were renewed after the group was listed."""
        # The group may have committed since it was read, so each commit is judged again.
        expired: list[ExpiredOffset] = []

        def decide(known: Reader | None) -> Reader | None:
            # An update that conflicts with another commit calls `decide` again: the list is
            # replaced, so that it does not keep commits of the rejected attempt.
            expired[:] = [] if known is None else expired_offsets(known, now_ms, retention_ms)
            if known is None or not expired:
                return None
            return without_expired(known, now_ms, retention_ms)

        # A commit that a power cut restores is still as old, and expires again in a later round.
        self._store.update(group, decide, durably=False)
        return expired


def check_kept(groups: Groups, home: str, instead: str = "") -> None:
    """Raise InvalidRequestError if the log stores no groups, with `instead` as further advice.

    This keeps sparklog from writing into a broker's directory.
    """
    if not groups.are_waited_for:
        raise InvalidRequestError(
            f"{home} stores no readers: in a broker's directory groups are stored by the broker "
            "(kafka-consumer-groups), and an archive has none until it is restored to a log dir "
            f"(sparklog tier restore){instead}",
            path=home,
        )


def _readable(stored: Sequence[StoredGroup]) -> list[Reader]:
    readers = [each.reader for each in stored if each.reader is not None]
    return sorted(readers, key=lambda reader: reader.group)
