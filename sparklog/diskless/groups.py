"""The registered readers of a log in a bucket: `readers/<group>/<k>`; the highest k is valid.

Each object contains all committed offsets of a group. There is no lock: to commit, a member creates
object k+1 based on object k, and then lists the objects. If there is a higher number, another
member was faster or came between. The commit is then repeated based on that number, so that no
member's offsets are lost. The newest readable object below the highest is not deleted: if the
highest is missing or damaged, the group continues at that older position and reads some records
again. All other objects may be deleted. A deleted group leaves an object that says so, because
delayed requests could otherwise meet a group that starts again at 0.

    reader: as in `sparklog.logdir.group_offsets`; {} after the group was deleted
    attempt: random id, distinguishes this object from another attempt at the same number
    number: its own number, so that a copy under another number is rejected; 79c0b564 wrote none
"""

import contextlib
import logging
import uuid
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, NamedTuple

from sparklog.diskless.entry_creation import RetryPolicy
from sparklog.diskless.names import READERS, parse_position, readers_prefix
from sparklog.errors import (
    DataCorruptionError,
    StorageUnavailableError,
    UnsupportedVersionError,
)
from sparklog.storage.group_store import StoredGroup
from sparklog.storage.groups import Decision, Reader, reader_from_json, reader_to_json
from sparklog.storage.stored_json import seal, unseal
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.reading.store_retry import StoreRetry

_CURE: Final = "the group's next commit replaces the object; Log.delete_reader forgets the group"
_NOBODY: Final = Reader("", "")
"""A group without offsets: deleted."""
_LOGGER: Final = logging.getLogger(__name__)
_LISTINGS: Final = 10  # how often a listing with only deleted objects is repeated
_MALFORMED: Final = (KeyError, TypeError, ValueError, AttributeError, IndexError)


class _Position(NamedTuple):
    """The objects of a group that a listing found.

    Attributes:
        number: The highest number of an object, or -1 without an object.
        readable: The highest number of a readable object, or -1 without a readable object.
        reader: The content of the readable object, or None for a group that is unknown or deleted.
    """

    number: int
    reader: Reader | None
    readable: int


class GroupObjects:
    """A `sparklog.storage.group_store.GroupStore` in a bucket. A group's key is its names' prefix.

    Cost of an update after one by the same object: a PUT, a listing and a deletion. Thread-safe.
    """

    are_waited_for = True

    def __init__(
        self,
        store: Store,
        *,
        retry: StoreRetry | None = None,
        retry_policy: RetryPolicy | None = None,
    ) -> None:
        """`retry` is for reads while the store is unavailable, `retry_policy` for commits."""
        self._store = store
        self._retry = retry or StoreRetry()
        self._retry_policy = retry_policy or RetryPolicy(timeout_ms=30_000)
        self._known: dict[str, _Position] = {}  # the last commits of this handle

    def key(self, group: str) -> str:
        """Return the prefix of the names of a group's objects."""
        return readers_prefix(group)

    def naming(self, group: str) -> AbstractContextManager[None]:
        """Return a context that does nothing: all errors name the group's prefix anyway."""
        return nullcontext()

    def read(self, group: str) -> Reader | None:
        """Return a group, if known. Cost: a listing, two concurrent GETs."""
        return self._retry.call(lambda: self._newest(readers_prefix(group))).reader

    def read_all(self) -> list[StoredGroup]:
        """Return all groups. Cost: a listing, and a GET per group."""
        return self._retry.call(self._read_all)

    def _read_all(self) -> list[StoredGroup]:
        listed: dict[str, dict[int, int]] = {}
        for stored in self._store.list(READERS):
            place = parse_position(stored.name)
            if place is not None:
                listed.setdefault(place[0], {})[place[1]] = stored.time_ms
        newest = {prefix: max(times) for prefix, times in listed.items()}
        raws = self._store.get_many([_name(prefix, number) for prefix, number in newest.items()])
        found = []
        for (prefix, number), raw in zip(newest.items(), raws, strict=True):
            reader: Reader | None = None
            damage: DataCorruptionError | UnsupportedVersionError | None = None
            try:
                if isinstance(raw, FileNotFoundError):  # replaced by a higher number
                    reader = self._newest(prefix).reader
                else:
                    reader = self._parse(raw, prefix, number)
            except UnsupportedVersionError as error:
                damage = error
            except DataCorruptionError as error:
                damage, reader = error, self._older(prefix, listed[prefix], number).reader
            path, time_ms = self._path(prefix, number), listed[prefix][number]
            found.append(StoredGroup(prefix, path, reader, damage, time_ms))
        return found

    def damaged_positions(self) -> Iterator[tuple[DataCorruptionError, bool]]:
        """Yield (error, is readable) for each damaged object with a group's committed offsets.

        The second item is True if another object of the group can be read.

        Cost: a listing, and a GET per object.
        """
        places = [parse_position(stored.name) for stored in self._store.list(READERS)]
        numbers = [place for place in places if place is not None]
        raws = self._store.get_many([_name(*place) for place in numbers])
        errors, readable = list[tuple[str, DataCorruptionError]](), set[str]()
        for (prefix, number), raw in zip(numbers, raws, strict=True):
            if isinstance(raw, FileNotFoundError):
                continue  # replaced since the listing
            try:
                self._parse(raw, prefix, number)
            except DataCorruptionError as error:
                errors.append((prefix, error))
            except UnsupportedVersionError:
                continue
            else:
                readable.add(prefix)
        return ((error, prefix in readable) for prefix, error in errors)

    def update(
        self, group: str, decide: Decision, *, heal: bool = False, durably: bool = True
    ) -> bool:
        """Write the group's next object with the content that `decide` returns.

        All objects are durable, so `durably` has no effect.
        """
        return self._change(readers_prefix(group), decide, heal=heal)

    def delete(self, key: str, *, durably: bool = True) -> bool:
        """Write the group's next object, which marks the group as deleted."""
        try:
            if self._newest(key).reader is None:
                return False
        except DataCorruptionError:
            return self._change(key, lambda _: _NOBODY, heal=True)
        return self._change(key, lambda known: None if known is None else _NOBODY)

    # --- numbers -----------------------------------------------------------------------------

    def _change(self, prefix: str, decide: Decision, *, heal: bool = False) -> bool:
        try:
            return self._put_on_top(prefix, decide, heal=heal)
        except StorageUnavailableError as error:
            self._known.pop(prefix, None)
            raise StorageUnavailableError(
                f"the offsets of a reader can't be stored in {self._store.url}/{prefix}: {error}",
                path=self._store.url, passing=error.passing,
            ) from error  # fmt: skip

    def _put_on_top(self, prefix: str, decide: Decision, *, heal: bool) -> bool:
        known = self._known.get(prefix)
        tries = 0
        while True:
            position = known or self._newest(prefix, heal=heal)
            number = position.number
            wanted = decide(position.reader)
            # A decision against a commit that is based on this handle's memory is made again below,
            # on the newest number.
            if wanted is None and known is None:
                return False
            if wanted is not None and self.create_position(prefix, number + 1, wanted):
                names = self.list_positions(prefix)
                is_deleted = not wanted.offsets
                self._known[prefix] = _Position(
                    number + 1, None if is_deleted else wanted, number + 1
                )
                # If a higher number exists, its member did not know these offsets: commit again on
                # top.
                if max(names, default=0) <= number + 1:
                    # The older readable number is the fallback if the newest is damaged or lost.
                    kept = {number + 1} if is_deleted else {number + 1, position.readable}
                    self.delete_positions([name for at, name in names.items() if at not in kept])
                    return True
            known = None
            self._known.pop(prefix, None)
            if tries:
                self._retry_policy.back_off(tries)
            tries += 1

    def create_position(self, prefix: str, number: int, reader: Reader) -> bool:
        """Create object `number` of a group, with retries.

        Args:
            prefix: The prefix of the names of the group's objects.
            number: The number of the object in its name.
            reader: The group with the committed offsets.

        Returns:
            False if another attempt created the object.
        """
        attempt, name = uuid.uuid4().hex, _name(prefix, number)
        content = reader_to_json(reader) if reader.offsets else {}
        raw = seal("reader", {"attempt": attempt, "number": number, "reader": content})
        ends_ms, tries = self._retry_policy.timer() + self._retry_policy.timeout_ms, 0
        while True:
            try:
                if self._store.create(name, raw):
                    return True
                why = None
            except StorageUnavailableError as error:
                why = error
            try:
                # Equal bytes prove that this call created the object, because `attempt` is random.
                return self._store.get(name) == raw
            except FileNotFoundError:
                tries += 1
            except StorageUnavailableError as error:
                tries, why = tries + 1, error
            over = self._retry_policy.timer() >= ends_ms or (why is not None and not why.passing)
            if over:
                raise why or StorageUnavailableError(
                    f"{self._path(prefix, number)} can't be created: the store reports that the "
                    "object exists, but a GET does not find it",
                    passing=True,
                )
            self._retry_policy.back_off(tries)

    def _newest(self, prefix: str, *, heal: bool = False) -> "_Position":
        """Return the position of a group, from an older object if the newest is damaged.

        Raises:
            DataCorruptionError: No object of the group can be read, and `heal` is false.
            UnsupportedVersionError: A newer sparklog wrote the object.
        """
        tries = 0
        while True:
            listed = self.list_positions(prefix)
            number = max(listed, default=-1)
            names = [_name(prefix, at) for at in (number, number + 1) if at >= 0]
            raws = self._store.get_many(names)
            # A listing may be outdated, a GET is not.
            while isinstance(raws[-1], bytes | DataCorruptionError):
                number += 1
                raws = [raws[-1], *self._store.get_many([_name(prefix, number + 1)])]
            if not isinstance(raws[-1], FileNotFoundError):
                raise raws[-1]
            if number < 0:
                return _Position(-1, None, -1)
            raw = raws[0]
            if isinstance(raw, FileNotFoundError):
                tries += 1  # a higher number replaced it since the listing
                if tries > _LISTINGS:
                    raise StorageUnavailableError(
                        f"{self._store.url} lists {names[0]}, but a GET does not find it",
                        passing=True,
                    )
                self._retry_policy.back_off(tries)
                continue
            try:
                return _Position(number, self._parse(raw, prefix, number), number)
            except DataCorruptionError as error:
                older = self._older(prefix, listed, number)
                if older.readable < 0 and not heal:
                    raise
                consequence = (
                    "commits again" if older.readable < 0 else "continues at an older position"
                )
                _LOGGER.warning("%s; the group %s", error, consequence)
                return older

    def _older(self, prefix: str, numbers: Iterable[int], damaged: int) -> "_Position":
        """Return the position in the newest readable object below number `damaged`.

        Cost: a GET for each object that is tried.
        """
        for number in sorted((each for each in numbers if each < damaged), reverse=True):
            with contextlib.suppress(DataCorruptionError, FileNotFoundError):
                raw = self._store.get(_name(prefix, number))
                return _Position(damaged, self._parse(raw, prefix, number), number)
        return _Position(damaged, None, -1)

    def list_positions(self, prefix: str) -> dict[int, str]:
        """Return {number: name} of a group's objects, by the store's listing."""
        places = ((parse_position(o.name), o.name) for o in self._store.list(prefix))
        return {place[1]: name for place, name in places if place is not None}

    def _parse(self, raw: bytes | Exception, prefix: str, number: int) -> Reader | None:
        """Return a group from an answer of `get_many`; None after the group was deleted."""
        if isinstance(raw, Exception):
            raise raw
        path = self._path(prefix, number)
        document = unseal("reader", raw, path=path, cure=_CURE)
        try:
            content: dict[str, Any] = document["reader"]
            if document.get("number", number) != number:
                raise ValueError(f"the object contains number {document['number']}")
            reader = reader_from_json(content) if content else None
            if reader is not None and readers_prefix(reader.group) != prefix:
                raise ValueError(f"the object belongs to group {reader.group}")
        except _MALFORMED as error:
            fault = f"the object contains no valid position ({error!r}); {_CURE}"
            raise DataCorruptionError(fault, path=path) from error
        return reader

    def delete_positions(self, names: list[str]) -> None:
        """Delete outdated objects of a group. A later commit deletes any that remain."""
        try:
            if names:
                self._store.delete(names)
        except StorageUnavailableError as error:
            _LOGGER.debug("older positions were not deleted: %s", error)

    def _path(self, prefix: str, number: int) -> str:
        return f"{self._store.url}/{_name(prefix, number)}"


def first_position(reader: Reader) -> tuple[str, bytes]:
    """Return (name, content) of a group's first object, for a log that is being created."""
    content = {"attempt": uuid.uuid4().hex, "number": 0, "reader": reader_to_json(reader)}
    return _name(readers_prefix(reader.group), 0), seal("reader", content)


def _name(prefix: str, number: int) -> str:
    return f"{prefix}{number:020d}"
