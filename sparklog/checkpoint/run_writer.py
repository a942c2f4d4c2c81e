"""Writes checkpoints in runs: a new checkpoint, or another run of an existing checkpoint.

A run begins with all files of the checkpoint, so its first entry is the commit point of a change of
any size. Section "In runs" of log_backed/PROTOCOL.md describes the objects.
"""

import contextlib
import json
import os
import platform
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from sparklog.checkpoint.log_backed.metadata_marker import MARKER_OF_RUNS, METADATA_FILE
from sparklog.checkpoint.stored_runs import (
    CONTENT,
    ENTRY_KEY,
    FORMAT,
    HEADER,
    HOME,
    HOME_KEY,
    INDEX_KEY,
    REFERENCE,
    FileLocation,
    RunEnd,
    entry_name,
)
from sparklog.clock import Clock
from sparklog.diskless.entry_creation import RetryPolicy
from sparklog.errors import InvalidRequestError, LogLockedError, StorageUnavailableError
from sparklog.format.batch import encode_one
from sparklog.format.scan import rebase
from sparklog.tiered.object_store.store import WHOLE_BYTES_MAX, Store

INDEX_BYTES: Final = 64 << 20
"""Contents that an index holds, in bytes. The next driver reads them in a single request."""
PACK_BYTES: Final = 16 << 20
_LARGE_BYTES: Final = 1 << 20  # larger files are never part of an index


class RunWriter:
    """Collects the files of a run, and writes the run. Not thread-safe.

    Args:
        store: The store of the checkpoint.
        checkpoint_id: The checkpoint's random id.
        end: The end of the newest run; None for a new checkpoint.
        by: The operation that writes the run, for the message of a driver that it stops.
        clock: The current time in milliseconds since the epoch.
    """

    def __init__(
        self, store: Store, checkpoint_id: str, end: RunEnd | None, by: str, clock: Clock
    ) -> None:
        self._store, self._end, self._clock = store, end, clock
        self._id, self._directory = checkpoint_id, f"sparklog/{checkpoint_id}"
        self.run = 0 if end is None else end.run + 1
        self._owner = {
            "application": f"Python ({by})", "host": platform.node(), "process": os.getpid(),
            "runId": "",
        }  # fmt: skip
        self._index = _Batches(self.run, first=1)  # the header is written last
        self._pack = _Batches(self.run)
        self._pack_name = self._new_name("pack")

    def add(self, path: str, data: bytes, timestamp_ms: int) -> None:
        """Write a file. Large files are uploaded when they fill a pack."""
        if len(data) <= _LARGE_BYTES and self._index.size + len(data) <= INDEX_BYTES:
            self._index.add(path, CONTENT, data, timestamp_ms)
            return
        position = self._pack.size
        batch_bytes = self._pack.add(path, CONTENT, data, timestamp_ms)
        location = FileLocation(self._pack_name, position, batch_bytes, len(data), timestamp_ms)
        self.refer(path, location)
        if self._pack.size >= PACK_BYTES:
            self._put_pack()

    def refer(self, path: str, file: FileLocation) -> None:
        """Keep a file of the checkpoint where it is."""
        fields = {
            "object": file.object, "position": file.position, "batchBytes": file.batch_bytes,
            "length": file.length,
        }  # fmt: skip
        self._index.add(path, REFERENCE, _json(fields), file.timestamp)

    def publish(self) -> None:
        """Seal the newest run and begin this run, which becomes the content of the checkpoint.

        Raises:
            LogLockedError: The query, or another command, has written to the checkpoint since it
                was read. Nothing is changed, but a running query fails at its next write.
            StorageUnavailableError: The store does not answer, or refuses. Nothing is changed, or
                everything.
        """
        self._put_pack()
        index = self._new_name("index")
        header = {"index": index, "files": self._index.count - 1}
        put_object(self._store, index, self._headed(INDEX_KEY, header) + self._index.bytes())
        begin: dict[str, Any] = {"kind": "begin", "index": index}
        if self._end is not None:
            self.seal()
            begin["previous"] = {"run": self._end.run, "number": self._end.number}
        if not self._create_entry(self.run, 0, begin):
            raise self._is_running()

    def seal(self) -> None:
        """End the newest run, so that its driver can't write any more.

        Raises:
            LogLockedError: See `publish`.
            StorageUnavailableError: See `publish`.
        """
        assert self._end is not None
        if self._end.is_sealed:
            return
        if not self._create_entry(self._end.run, self._end.number, {"kind": "seal"}):
            raise self._is_running()
        self._end = replace(self._end, is_sealed=True)

    def home(self) -> bytes:
        """Return the content of the object HOME."""
        fields = {"format": FORMAT, "id": self._id, "files": 0}
        return self._headed(HOME_KEY, fields)

    def create_marker(self) -> None:
        """Create the metadata marker, so that Spark's own checkpoint manager fails.

        Raises:
            InvalidRequestError: The location has another file `metadata`.
            StorageUnavailableError: The store does not answer, or refuses.
        """
        self._create_new(METADATA_FILE, MARKER_OF_RUNS)

    def create_home(self) -> None:
        """Make a new checkpoint visible, after its first run.

        Raises:
            InvalidRequestError: Another checkpoint was created at the same location.
            StorageUnavailableError: The store does not answer, or refuses.
        """
        self._create_new(HOME, self.home())

    def check_new(self) -> None:
        """Raise InvalidRequestError if another checkpoint was created at the same location."""
        with contextlib.suppress(FileNotFoundError):
            self._store.get(HOME)
            raise self._exists()

    def _create_new(self, name: str, data: bytes) -> None:
        if not self._create(name, data):
            raise self._exists()

    def _exists(self) -> InvalidRequestError:
        return InvalidRequestError(
            f"{self._store.url} exists already: choose a new location", path=self._store.url
        )

    def _put_pack(self) -> None:
        if self._pack.count:
            put_object(self._store, self._pack_name, self._pack.bytes())
            self._pack, self._pack_name = _Batches(self.run), self._new_name("pack")

    def _create_entry(self, run: int, number: int, header: Mapping[str, Any]) -> bool:
        fields = {
            **header, "run": run, "number": number, "attempt": str(uuid.uuid4()),
            "owner": self._owner, "files": 0,
        }  # fmt: skip
        name = entry_name(self._directory, run, number)
        return self._create(name, self._headed(ENTRY_KEY, fields, run))

    def _create(self, name: str, data: bytes) -> bool:
        """Create an object, and return whether the object with this name is the given one.

        A request without an answer may take effect later, so nothing else is written before it is
        known which object has the name. The bytes of each attempt differ, by a random id.
        """
        policy, tries = RetryPolicy(), 0
        ends_ms = policy.timer() + policy.timeout_ms
        while True:
            tries += 1
            try:
                if self._store.create(name, data):
                    return True
                return self._store.get(name) == data
            except FileNotFoundError as error:
                failure = StorageUnavailableError(
                    f"{name} exists, but can't be read", path=self._store.url, passing=True
                )
                failure.__cause__ = error
            except StorageUnavailableError as error:
                failure = error
            if not failure.passing or policy.timer() >= ends_ms:
                raise failure
            policy.back_off(tries)

    def _headed(self, key: str, fields: Mapping[str, Any], run: int | None = None) -> bytes:
        batches = _Batches(self.run if run is None else run)
        batches.add(key, HEADER, _json(fields), self._clock())
        return batches.bytes()

    def _new_name(self, kind: str) -> str:
        return f"{self._directory}/{kind}-{self.run:010}-{uuid.uuid4()}"

    def _is_running(self) -> LogLockedError:
        return LogLockedError(
            f"{self._store.url}: the query is running, or another command changes the checkpoint: "
            "stop the query, and try again",
            path=self._store.url,
        )


def put_object(store: Store, name: str, data: bytes) -> None:
    """Write an object of any size."""
    if len(data) <= WHOLE_BYTES_MAX:
        store.put(name, data)
    else:
        store.put_stream(name, [data], len(data))


class _Batches:
    """The record batches of an object, each with a single record."""

    def __init__(self, epoch: int, first: int = 0) -> None:
        self.count, self.size = first, 0
        self._epoch, self._parts = epoch, list[bytes]()

    def add(self, path: str, kind: int, value: bytes, timestamp_ms: int) -> int:
        """Append a record. Return the size of its batch."""
        batch = encode_one(path.encode(), value, timestamp=timestamp_ms, base_sequence=kind)
        rebase(batch, self.count, self._epoch)
        self._parts.append(bytes(batch))
        self.count += 1
        self.size += len(batch)
        return len(batch)

    def bytes(self) -> bytes:
        return b"".join(self._parts)


def _json(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()
