"""Committed offsets, stored with the log's registered readers, or in memory.

Commits of a group that arrive during a write are combined in its next write. A group never has two
writes in progress. Groups do not wait for each other, only for a thread of the pool. A broker's
directory, an archive, and a read-only file system or bucket store no readers. There commits are in
memory as long as the endpoint runs, in addition to stored commits, which is logged once. A full
disk does not count: clients have to retry.
"""

import asyncio
import errno
import logging
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from sparklog.common import TopicPartition
from sparklog.errors import InvalidRequestError, SparklogError, StorageUnavailableError
from sparklog.kafka.broker import Broker
from sparklog.log.log import home_of, view_of
from sparklog.log.truncation_detection import LogTruncationDetector
from sparklog.storage.group_store import Groups
from sparklog.storage.groups import (
    GROUP,
    Committed,
    Decision,
    Reader,
    check_group,
    committed_by_client,
    of_query,
    touched,
    without_expired,
    without_partitions,
)
from sparklog.tiered.object_store.failures import Failure, failure_of

T = TypeVar("T")
Offsets = Mapping[TopicPartition, Committed]
_REFUSED: Final = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
_LOGGER: Final = logging.getLogger("sparklog.kafka")


class OffsetStore:
    """Committed offsets of groups. Methods run on the event loop's thread, the work in the pool.

    Methods may raise StorageUnavailableError and LogLockedError. They raise DataCorruptionError for
    a damaged group, and InvalidRequestError for an invalid name or the group of a streaming query.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._kept: Groups = home_of(broker.log).groups
        self._memory: GroupsInMemory | None = None
        self._is_asked = self._has_kept = False
        self._waiting: dict[str, list[_Commit]] = {}
        self._writing: dict[str, asyncio.Task[None]] = {}

    # --- reading -----------------------------------------------------------------------------

    async def reader(self, group: str) -> Reader | None:
        """Return the reader of a group that has committed."""
        check_group(group)
        if self._memory is not None and (known := self._memory.reader(group)) is not None:
            return known
        found = await self._broker.run(self._kept.reader, group)
        is_forgotten = self._memory is not None and group in self._memory.forgotten
        return None if is_forgotten else found

    async def readers(self) -> dict[str, Reader]:
        """Return all groups that have committed. Damaged groups are left out, with a warning."""
        found = {each.group: each for each in (await self._broker.run(self._kept.readers)).groups}
        if self._memory is not None:
            found |= self._memory.groups
            for group in self._memory.forgotten - self._memory.groups.keys():
                found.pop(group, None)
        return found

    async def is_query(self, group: str) -> bool:
        """Return True if a streaming query has this name."""
        known = await self.reader(group)
        return known is not None and known.kind != GROUP

    # --- writing -----------------------------------------------------------------------------

    async def commit(self, client: Reader, offsets: Offsets) -> None:
        """Store a client's commit durably; `client` has its group, host and app."""
        check_group(client.group)
        if not offsets:
            return
        commit = _Commit(client, offsets, self._broker.loop.create_future())
        self._waiting.setdefault(client.group, []).append(commit)
        if client.group not in self._writing:
            task = self._broker.loop.create_task(self._write_all(client.group))
            self._writing[client.group] = task
        # Shielded: the write continues if the client disconnects, because it may include commits of
        # other clients.
        await asyncio.shield(commit.done)

    async def _write_all(self, group: str) -> None:
        """Write waiting commits, also commits that arrive in the meantime, until none is left."""
        try:
            while commits := self._waiting.pop(group, None):
                merged: dict[TopicPartition, Committed] = {}
                for commit in commits:
                    merged |= commit.offsets
                try:
                    await self._write(commits[-1].client, merged)
                except Exception as error:  # noqa: BLE001 - each client gets it
                    for commit in commits:
                        commit.failed(error)
                else:
                    for commit in commits:
                        commit.succeeded()
        finally:
            del self._writing[group]

    async def _write(self, client: Reader, offsets: Offsets) -> None:
        now_ms = self._broker.clock()
        detector = LogTruncationDetector(view_of(self._broker.log))

        def write(groups: Groups | GroupsInMemory) -> None:
            origins = detector.origins({key: at.offset for key, at in offsets.items()})
            committed = {
                key: at._replace(time_ms=now_ms, origin=origins.get(key))
                for key, at in offsets.items()
            }
            groups.change(client.group, lambda known: committed_by_client(known, client, committed))

        await self._changed(write)

    async def forget(self, group: str, keys: Collection[TopicPartition]) -> bool:
        """Delete a group's commits of some partitions; return True if it had any."""
        return await self._change(group, lambda known: without_partitions(known, keys))

    async def delete(self, group: str) -> bool:
        """Delete all commits of a group; return True if it had any."""

        def decide(known: Reader | None) -> Reader | None:
            if known is not None and known.kind != GROUP:
                raise of_query(known)
            return None if known is None else replace(known, offsets={})

        return await self._change(group, decide)

    async def touch(self, group: str, keys: Collection[TopicPartition]) -> None:
        """Renew commits of an active group, so that they do not expire."""
        now_ms = self._broker.clock()
        await self._change(group, lambda known: touched(known, keys, now_ms))

    async def _change(self, group: str, decide: Decision) -> bool:
        check_group(group)
        return await self._changed(lambda groups: groups.change(group, decide))

    async def _changed(self, work: "Callable[[Groups | GroupsInMemory], T]") -> T:
        """Run `work` on the stored groups, or on groups in memory if the log stores no groups."""
        if not self._is_asked:
            if not await self._broker.run(keeps_readers, self._broker):
                self._keep_in_memory("the log has no directory for readers")
            self._is_asked = True
        if self._memory is None:
            try:
                done = await self._broker.run(work, self._kept)
            except StorageUnavailableError as error:
                # Once the log has stored a commit, a refusal is a fault. Commits in memory would
                # hide the fault until the endpoint stops and they are lost.
                if self._has_kept or not is_refused(error):
                    raise
                self._keep_in_memory(str(error))
            else:
                self._has_kept = True
                return done
        assert self._memory is not None
        return await self._broker.run(work, self._memory)

    def _keep_in_memory(self, why: str) -> None:
        if self._memory is None:
            self._memory = GroupsInMemory(self._kept)
            _LOGGER.warning(
                "%s stores no committed offsets (%s): the offsets that Kafka clients commit are "
                "lost when this endpoint stops", self._broker.log.path, why,
            )  # fmt: skip

    def expire(self, retention_ms: int) -> None:
        """Delete old commits that are in memory. The service deletes stored commits."""
        if self._memory is not None:
            self._memory.expire(self._broker.clock(), retention_ms)


class _Commit:
    """A commit that waits to be written."""

    __slots__ = ("client", "done", "offsets")

    def __init__(self, client: Reader, offsets: Offsets, done: "asyncio.Future[None]") -> None:
        self.client, self.offsets, self.done = client, offsets, done

    def succeeded(self) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def failed(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)
            self.done.exception()  # the client may have disconnected; asyncio would log the error


class GroupsInMemory:
    """Groups in memory on top of stored groups, if the log cannot store any. Thread-safe."""

    def __init__(self, kept: Groups) -> None:
        self._kept = kept
        self._lock = threading.Lock()
        self.groups: dict[str, Reader] = {}
        self.forgotten: set[str] = set()

    def reader(self, group: str) -> Reader | None:
        """Return a group that was changed in memory."""
        return self.groups.get(group)

    def change(self, group: str, decide: Decision) -> bool:
        """Apply `decide` to a group; see `sparklog.storage.group_store.Groups.change`."""
        with self._lock:
            known = self.groups.get(group)
            if known is None and group not in self.forgotten:
                known = self._kept_reader(group)
            reader = decide(known)
            if reader is None:
                return False
            if reader.offsets:
                self.groups[group] = reader
                return True
            self.groups.pop(group, None)
            if known is not None:
                self.forgotten.add(group)
            return known is not None

    def _kept_reader(self, group: str) -> Reader | None:
        try:
            return self._kept.reader(group)
        except InvalidRequestError:
            raise
        except SparklogError as error:
            _LOGGER.warning("group %s is reset: %s", group, error)
            return None

    def expire(self, now_ms: int, retention_ms: int) -> None:
        """Delete commits that are older than the retention time."""
        with self._lock:
            for group, reader in list(self.groups.items()):
                left = without_expired(reader, now_ms, retention_ms)
                if left.offsets:
                    self.groups[group] = left
                else:
                    del self.groups[group]


def keeps_readers(broker: Broker) -> bool:
    """Return True if the log can store readers, which a broker's directory cannot.

    Runs in the pool.

    Raises:
        StorageUnavailableError: The log was opened for writing, and is missing now.
    """
    if home_of(broker.log).groups.are_waited_for:
        return True
    if broker.is_writable:
        raise StorageUnavailableError(
            f"{broker.log.path} no longer contains a log: it was removed, or its disk is not "
            "mounted; bring it back", path=broker.log.path,
        )  # fmt: skip
    return False


def is_refused(error: BaseException) -> bool:
    """Return True if an error means that a location is read-only, so that a retry is useless."""
    if isinstance(error, StorageUnavailableError) and error.passing:
        return False
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, OSError) and found.errno in _REFUSED:
            return True
        if isinstance(found, Exception) and failure_of(found) is Failure.CREDENTIALS:
            return True
        found = found.__cause__
    return False

