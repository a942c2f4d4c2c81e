"""Checks the objects of a log in a bucket that the ledger does not refer to.

These are positions of reader groups, signs of life of the service and the endpoint, and the topics'
owner objects.
"""

import json
from functools import partial
from typing import Final

from sparklog.diskless.groups import GroupObjects
from sparklog.diskless.names import ENDPOINT, parse_endpoint, service_name
from sparklog.diskless.state import DisklessState
from sparklog.errors import DataCorruptionError, SparklogError
from sparklog.service.verification.findings import Findings, FixKind, Severity
from sparklog.storage.group_store import Groups
from sparklog.storage.groups import Reader
from sparklog.tiered.layout.topic_owners import PREFIX as OWNERS
from sparklog.tiered.layout.topic_owners import check_owner
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.reading.store_retry import StoreRetry

_OLDER: Final = "the group continues at an older position and reads some records again"
_LOST: Final = (
    "no position of the group is left: its readers fail until they are given a position, by a "
    "commit of all partitions, or the group is deleted"
)


class SideObjectCheck:
    """A check of these objects. Construct it before reading the ledger's head.

    Not thread-safe.
    """

    def __init__(self, store: Store, retry: StoreRetry, out: Findings) -> None:
        self._store, self._retry, self._out = store, retry, out
        self._groups: list[Reader] = retry.call(Groups(GroupObjects(store)).readers).groups

    def run(self, state: DisklessState) -> None:
        """Check the objects of a log with this state. Cost: a GET for each object."""
        self._check_groups(state)
        self._check_heartbeats(state)
        self._check_owners(state)

    def _check_groups(self, state: DisklessState) -> None:
        damaged = self._retry.call(lambda: list(GroupObjects(self._store).damaged_positions()))
        for error, is_readable in damaged:
            severity = Severity.DIFFERENCE if is_readable else Severity.DAMAGE
            fix = FixKind.POSITION if is_readable else None
            what = f"{error.reason}; {_OLDER if is_readable else _LOST}"
            self._out.add(severity, error.path, what, fix=fix)
        for reader in self._groups:
            for key, at in sorted(reader.offsets.items()):
                end = state.log.ends.get(key)
                if end is not None and at.offset > end:
                    what = (
                        f"group {reader.group} is at offset {at.offset} of {key}, above its end "
                        f"{end}: records were lost, or the position is wrong"
                    )
                    self._out.add(Severity.WARNING, self._store.url, what, first=end, end=at.offset)

    def _check_heartbeats(self, state: DisklessState) -> None:
        listed = self._retry.call(partial(self._store.list, ENDPOINT))
        found = [(parse_endpoint(one.name), one.name) for one in listed]
        highest = max(((n, name) for n, name in found if n is not None), default=None)
        names = [] if highest is None else [highest[1]]
        names += [service_name(state.term)] if state.term else []
        for name, raw in self._read(names).items():
            try:
                is_sign = isinstance(json.loads(raw), dict)
            except (ValueError, RecursionError):
                is_sign = False
            if not is_sign:
                what = "the object is not a sign of life; the next one replaces it"
                self._out.add(Severity.WARNING, f"{self._store.url}/{name}", what)

    def _check_owners(self, state: DisklessState) -> None:
        names = {OWNERS + topic.id: name for name, topic in state.log.topics.items()}
        found = self._read(list(names))
        for name, topic in names.items():
            path = f"{self._store.url}/{name}"
            if name not in found:
                what = f"the object is missing: another log could copy topic {topic} here, too"
                self._out.add(Severity.WARNING, path, what, fix=FixKind.OWNER)
                continue
            try:
                check_owner(found[name], path)
            except DataCorruptionError as error:
                what = f"{error.reason.partition(';')[0]}; it belongs to topic {topic}"
                self._out.add(Severity.DIFFERENCE, path, what, fix=FixKind.OWNER)
            except SparklogError:  # a newer version wrote it
                continue

    def _read(self, names: list[str]) -> dict[str, bytes]:
        """Return {name: bytes} of the objects that exist; b"" for an object that is too large."""

        def ask() -> dict[str, bytes]:
            found = dict(zip(names, self._store.get_many(names), strict=True))
            for name, raw in found.items():
                if isinstance(raw, DataCorruptionError):
                    found[name] = b""
                elif isinstance(raw, Exception) and not isinstance(raw, FileNotFoundError):
                    raise raw
            return {name: raw for name, raw in found.items() if isinstance(raw, bytes)}

        return self._retry.call(ask)
