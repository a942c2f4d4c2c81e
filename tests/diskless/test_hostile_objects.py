"""Objects that no sparklog wrote: each is refused as damage, and takes little memory until then."""

import inspect
import json
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import crc32c
import pyarrow as pa
import pytest
import zstandard

from sparklog.checkpoint.backup.archived_log import ArchivedLog
from sparklog.checkpoint.backup.forked_log import ForkedLog
from sparklog.diskless import extent_tables
from sparklog.diskless.entries import ENTRY_BYTES_MAX, decode
from sparklog.diskless.erasure_notes import unfinished_erasures
from sparklog.diskless.extent_tables import NAMES_MAX, TableHead
from sparklog.diskless.groups import GroupObjects
from sparklog.diskless.home_object import create_home, read_home
from sparklog.diskless.lease import NumberedLease, sign_of_life
from sparklog.diskless.names import (
    HOME,
    checked_object,
    endpoint_name,
    entry_name,
    service_name,
    state_name,
)
from sparklog.diskless.state_objects import (
    INFLATED_MAX,
    StateObjects,
    decode_state,
    write_state,
)
from sparklog.errors import DataCorruptionError
from sparklog.format.batch import encode_one
from sparklog.service.verification.store_verifier import verify_store
from sparklog.storage.group_store import Groups
from sparklog.storage.ledger_records import decode as decode_record
from sparklog.storage.stored_json import seal, unseal
from sparklog.testing.faultstore import FaultDriver
from sparklog.testing.scheduled_store import ScheduledStore
from sparklog.tiered.layout.manifest import parse, to_bytes
from sparklog.tiered.layout.object_names import parse_directory
from sparklog.tiered.layout.topic_owners import PREFIX as OWNERS
from sparklog.tiered.layout.topic_owners import owner_bytes
from sparklog.tiered.object_store.driver import Driver
from sparklog.tiered.object_store.file_driver import LocalDriver
from sparklog.tiered.object_store.fsspec_driver import FsspecDriver, HdfsDriver
from sparklog.tiered.object_store.memory_driver import MemoryDriver
from sparklog.tiered.object_store.object_store import ObjectStore
from sparklog.tiered.object_store.s3_driver import S3Driver
from sparklog.tiered.object_store.store import WHOLE_BYTES_MAX, Store
from tests.diskless.logs import LOG_ID, T0, Home
from tests.tiered.copies import copy

DEEP = b"[" * 200_000
OUTSIDE = ["../x", "a/../../x", "/etc/x", "a//b", "./a", "a/.", "a\\..\\b", "a\0b", 7, None]


def home_with_a_state() -> Home:
    home = Home()
    create_home(home.store, LOG_ID, home.clock)
    home.topic(partitions=2)
    home.commit("a")
    write_state(home.store, home.state)
    home.commit("b")
    return home


# --- entries ------------------------------------------------------------------------------------


def entry_of(change: Callable[[dict[str, Any]], object], number: int = 0) -> bytes:
    """An entry with this JSON, whose checksums are right."""
    fields: dict[str, Any] = {
        "v": 1, "id": "i", "prev": LOG_ID,
        "record": {"v": 1, "kind": "topic", "topic": "t", "id": "I" * 22, "dirs": {"0": 0},
                   "config": {}, "bases": {"0": 0}, "time": 1, "epoch": 0},
    }  # fmt: skip
    change(fields)
    raw = encode_one(None, json.dumps(fields).encode(), timestamp=1)
    raw[:8] = number.to_bytes(8, "big")
    return bytes(raw)


def set_record(**given: Any) -> Callable[[dict[str, Any]], object]:
    return lambda fields: fields["record"].update(given)


def extent_in(name: Any) -> Callable[[dict[str, Any]], object]:
    return lambda fields: fields.update(extents=[["t", 0, 0, 1, name, 0, 9, -1, 0]])


TOPICS = ("../../x", "a/b", "..", "", "x" * 250)
ENTRIES: dict[str, Callable[[dict[str, Any]], object]] = {
    **{f"topic {name!r}": set_record(topic=name) for name in TOPICS},
    **{f"topic id {name!r}": set_record(id=name) for name in ("../../x", "", "a/b", "x" * 65)},
    **{f"extent in {name!r}": extent_in(name) for name in OUTSIDE[:8]},
    "key of ../x": lambda fields: fields.update(keys={"../x": {}}),
    "merge of ../x": lambda fields: fields.update(
        record={"kind": "merge", "term": 1, "topic": "t", "id": "I", "partition": 0,
                "sources": [[0, 1, "../x", 0]], "time": 1, "epoch": 0}
    ),
    "a checksum that is none": lambda fields: fields.update(
        extents=[["t", 0, 0, 1, "a", 0, 9, -1, 0]], crcs=[1 << 32]
    ),
    "too few checksums": lambda fields: fields.update(
        extents=[["t", 0, 0, 1, "a", 0, 9, -1, 0]], crcs=[]
    ),
}  # fmt: skip


def test_the_entry_that_is_changed_below_is_good() -> None:
    decode(entry_of(lambda fields: None), number=0, path="p")
    decode(entry_of(extent_in("staged-a/b")), number=0, path="p")


@pytest.mark.parametrize("change", ENTRIES.values(), ids=ENTRIES)
def test_an_entry_with_such_names_is_damage(change: Callable[[dict[str, Any]], object]) -> None:
    with pytest.raises(DataCorruptionError, match="not a valid ledger entry"):
        decode(entry_of(change), number=0, path="p")


def test_an_entry_of_nested_json_is_damage() -> None:
    with pytest.raises(DataCorruptionError, match="nested too deeply"):
        decode(bytes(encode_one(None, DEEP, timestamp=1)), number=0, path="p")


def test_an_entry_is_fetched_up_to_its_largest_size() -> None:
    home = home_with_a_state()
    number = home.state.next_number
    for size in (ENTRY_BYTES_MAX + 1, 2 * ENTRY_BYTES_MAX):
        home.bucket.objects[entry_name(LOG_ID, number)] = bytes(size), 1
        before = home.store.counts.as_dict()["bytes_in"]
        with pytest.raises(DataCorruptionError, match=f"more than {ENTRY_BYTES_MAX} bytes"):
            home.commits.head.follow()
        assert home.store.counts.as_dict()["bytes_in"] - before <= ENTRY_BYTES_MAX + 1


@pytest.mark.parametrize("name", OUTSIDE)
def test_names_outside_of_the_home(name: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        checked_object(name)


# --- states: a cache, so a bad one is passed over -----------------------------------------------


def state_of(raw: bytes, *, content: bytes | None = None, extents: bytes | None = None) -> bytes:
    """A state with other JSON or other columns, whose checksums are right."""
    line, _, body = raw.partition(b"\n")
    head = json.loads(line.removeprefix(b"sparklog-state "))
    size = head["json"][0]
    content = body[:size] if content is None else content
    extents = body[size:] if extents is None else extents
    head["json"] = [len(content), crc32c.crc32c(content)]
    head["extents"] = [len(extents), crc32c.crc32c(extents)]
    return b"sparklog-state " + json.dumps(head).encode() + b"\n" + content + extents


def zeros(size: int) -> bytes:
    """So many bytes by zstd, which never were in memory together."""
    packer = zstandard.ZstdCompressor().compressobj(size=size)
    piece = bytes(1 << 20)
    return b"".join(packer.compress(piece) for _ in range(size >> 20)) + packer.flush()


def without_its_size(size: int) -> bytes:
    packer = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    piece = bytes(1 << 20)
    return b"".join(packer.compress(piece) for _ in range(size >> 20)) + packer.flush()


def columns(raw: bytes, **given: list[Any]) -> bytes:
    """A state's columns with others in place of some."""
    line, _, body = raw.partition(b"\n")
    start = json.loads(line.removeprefix(b"sparklog-state "))["json"][0]
    table = pa.ipc.open_stream(body[start:]).read_all()
    for name, values in given.items():
        at = table.column_names.index(name)
        field = table.schema.field(at)
        table = table.set_column(at, field, pa.array(values, field.type))
    out = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(out, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(out.getvalue())


def large_columns(raw: bytes) -> bytes:
    """They announce 1 TiB before the first of their zstd frames."""
    found = columns(raw)
    at = found.index(b"\x28\xb5\x2f\xfd")
    return found[: at - 8] + (1 << 40).to_bytes(8, "little") + found[at:]


def changed(raw: bytes, old: bytes, new: bytes) -> bytes:
    line, _, body = raw.partition(b"\n")
    size = json.loads(line.removeprefix(b"sparklog-state "))["json"][0]
    plain = zstandard.decompress(body[:size])
    assert old in plain
    return zstandard.compress(plain.replace(old, new))


STATES: dict[str, Callable[[bytes], bytes]] = {
    "JSON that becomes large": lambda raw: state_of(raw, content=zeros(INFLATED_MAX + (1 << 20))),
    "JSON that doesn't say how large": lambda raw: state_of(
        raw, content=without_its_size(INFLATED_MAX + (1 << 20))
    ),
    "columns that become large": lambda raw: state_of(raw, extents=large_columns(raw)),
    "nested JSON": lambda raw: state_of(raw, content=zstandard.compress(DEEP)),
    "a nested first line": lambda raw: b"sparklog-state " + DEEP[:4000] + b"\n",
    "a topic outside": lambda raw: state_of(raw, content=changed(raw, b'"t":{', b'"../t":{')),
    "an object outside": lambda raw: state_of(raw, extents=columns(raw, object=["../../x"])),
    "no state at all": lambda raw: DEEP,
}


@pytest.mark.parametrize("change", STATES.values(), ids=STATES)
def test_a_bad_state_is_passed_over(change: Callable[[bytes], bytes]) -> None:
    home = home_with_a_state()
    name = state_name(LOG_ID, home.state.number - 1)
    raw, when = home.bucket.objects[name]
    assert decode_state(state_of(raw), path="p").extents  # what is changed below is good
    bad = change(raw)
    with pytest.raises(DataCorruptionError):
        decode_state(bad, path="p")
    home.bucket.objects[name] = bad, when
    assert StateObjects(home.store, lambda: LOG_ID).newest() is None
    assert home.another().read(T0) == home.read(T0)


# --- extent tables ------------------------------------------------------------------------------


def head_of(names: bytes, size: int | None = None) -> bytes:
    fields = b"SLXT" + (1).to_bytes(4, "little")
    fields += (len(names) if size is None else size).to_bytes(8, "little")
    fields += crc32c.crc32c(names).to_bytes(4, "little")
    return fields + crc32c.crc32c(fields).to_bytes(4, "little") + names


def packed_zeros(size: int) -> bytes:
    packer = zlib.compressobj()
    piece = bytes(1 << 20)
    return b"".join(packer.compress(piece) for _ in range(size >> 20)) + packer.flush()


TABLES = {
    "names that become large": lambda: head_of(packed_zeros(NAMES_MAX + (1 << 20))),
    "names of many bytes": lambda: head_of(b"", NAMES_MAX + 1),
    "nested JSON": lambda: head_of(zlib.compress(DEEP)),
    "no zlib": lambda: head_of(b"abc"),
    "no names": lambda: head_of(zlib.compress(b'{"keys": {}}')),
    "a list": lambda: head_of(zlib.compress(b"[]")),
    "an object outside": lambda: head_of(zlib.compress(b'{"names": ["../x"], "keys": {}}')),
    "a key of one outside": lambda: head_of(zlib.compress(b'{"names": [], "keys": {"../x": {}}}')),
}


@pytest.mark.parametrize("made", TABLES.values(), ids=TABLES)
def test_a_bad_table_is_damage(made: Callable[[], bytes]) -> None:
    good, _ = extent_tables.encode(TableHead(["", "a"], {}), [])
    extent_tables.read_head(lambda start, end: good[start:end], path="p")
    raw = made()
    with pytest.raises(DataCorruptionError, match="not a valid extent table"):
        extent_tables.read_head(lambda start, end: raw[start:end], path="p")


# --- small documents ----------------------------------------------------------------------------


def test_small_documents_of_nested_json_are_damage() -> None:
    with pytest.raises(DataCorruptionError):
        unseal("home", DEEP, path="p", cure="restore it")
    with pytest.raises(DataCorruptionError):
        decode_record(DEEP, path="p", offset=0)


def test_signs_of_life_of_nested_json_say_nothing() -> None:
    home = Home()
    home.store.put(service_name(1), DEEP)
    assert sign_of_life(home.store, 1) == {}


@pytest.mark.parametrize("log_id", ["../x", "a/b", "", "x" * 65, 7, None])
def test_a_home_with_another_log_id_is_damage(log_id: object) -> None:
    home = Home()
    home.store.put(HOME, seal("home", {"log_id": log_id, "made": 1}))
    with pytest.raises(DataCorruptionError):
        read_home(home.store)


@pytest.mark.parametrize(
    "given",
    [{"topic": "../../x"}, {"topic": "a/b"}, {"topic_id": "../x"}, {"id": "../x"},
     {"partition": -1}, {"base": -1}, {"topic": ""}, {"topic": 7}, {"topic": ".."}, {"topic": "."},
     {"topic": "a b"}, {"topic": "x" * 250}],
    ids=str,
)  # fmt: skip
def test_a_manifest_of_a_copy_elsewhere_is_damage(given: dict[str, Any]) -> None:
    home = home_with_a_state()
    home.lead()
    home.merge_all()
    (manifest,) = home.manifests()
    _, body = parse(home.store.get(manifest.name), path="p")
    bad = replace(manifest, segment=replace(copy(0, 9), **given))
    parse(to_bytes(replace(manifest, segment=copy(0, 9)), body), path="p")
    with pytest.raises(DataCorruptionError, match="not a manifest"):
        parse(to_bytes(bad, body), path="p")


# --- objects that are too large -----------------------------------------------------------------


def grown(home: Home, name: str) -> None:
    """Make an object larger than any that sparklog writes."""
    home.bucket.objects[name] = bytes(WHOLE_BYTES_MAX + (1 << 20)), 1


def test_no_object_is_fetched_whole_beyond_a_bound() -> None:
    home = Home()
    grown(home, "a")
    with pytest.raises(DataCorruptionError, match=f"more than {WHOLE_BYTES_MAX} bytes") as caught:
        home.store.get("a")
    assert caught.value.path == f"{home.store.url}/a"
    (found,) = home.store.get_many(["a"])
    assert isinstance(found, DataCorruptionError)
    assert home.store.counts.bytes_in == 2 * (WHOLE_BYTES_MAX + 1)
    assert len(home.store.get("a", limit=WHOLE_BYTES_MAX + (1 << 20))) > WHOLE_BYTES_MAX
    assert len(home.store.get("a", 0, 10)) == 10


@pytest.mark.parametrize("kind", [ObjectStore, ArchivedLog, ForkedLog, ScheduledStore, Store])
def test_every_store_has_a_bound(kind: type) -> None:
    for method in (kind.get, kind.get_many):  # type: ignore[attr-defined]
        limit = inspect.signature(method).parameters["limit"]
        assert limit.default == WHOLE_BYTES_MAX
        assert limit.annotation is int


def test_drivers_read_no_object_to_its_end() -> None:
    kinds = (Driver, LocalDriver, FsspecDriver, MemoryDriver, HdfsDriver, S3Driver, FaultDriver)
    for kind in kinds:
        assert inspect.signature(kind.read).parameters["end"].annotation is int


def test_signs_of_life_and_requests_that_are_too_large_say_nothing() -> None:
    home = Home().lead()
    grown(home, service_name(home.state.term))
    assert sign_of_life(home.store, home.state.term) == {}
    grown(home, endpoint_name(3))
    lease = NumberedLease(home.store, home.clock, {}, timer=home.clock)
    assert not lease.published()


def test_a_position_that_is_too_large_is_damage_and_the_older_one_counts() -> None:
    home = home_with_a_state()
    groups = Groups(GroupObjects(home.store))
    for offset in (1, 2):
        groups.commit("g", {T0: offset}, now_ms=1, host="h")
    newest = max(name for name in home.bucket.objects if name.startswith("readers/"))
    grown(home, newest)
    readers = Groups(GroupObjects(home.store)).readers()
    assert [at.offset for at in readers.groups[0].offsets.values()] == [1]
    assert list(readers.damaged) == [f"{home.store.url}/{newest}"]
    ((error, is_readable),) = GroupObjects(home.store).damaged_positions()
    assert (error.path, is_readable) == (f"{home.store.url}/{newest}", True)
    assert groups.positions("g")[T0].offset == 1


def test_an_erasure_note_that_is_too_large_is_none() -> None:
    home = Home()
    grown(home, "erasures/x-y")
    assert unfinished_erasures(home.store) == []


@pytest.mark.parametrize("kind", ["home", "entry", "owner", "sign"])
def test_verify_names_an_object_that_is_too_large(kind: str) -> None:
    home = home_with_a_state().lead()
    topic_id = home.state.log.topics["t"].id
    home.store.put(OWNERS + topic_id, owner_bytes(LOG_ID, home.store.url, 1))
    name = {
        "home": HOME, "entry": entry_name(LOG_ID, home.state.number - 1),
        "owner": OWNERS + topic_id, "sign": service_name(home.state.term),
    }[kind]  # fmt: skip
    grown(home, name)
    found = verify_store(home.store.url, store=home.store).findings
    assert f"{home.store.url}/{name}" in [finding.file for finding in found]


@pytest.mark.parametrize("name", ["..-0-", ".-0-", "a b-0-", "a/b-0-", "x" * 250 + "-0-"])
def test_a_prefix_of_no_topic_is_no_partition(name: str) -> None:
    assert parse_directory(name + "I" * 22) is None
    assert parse_directory("t-0-" + "I" * 22) is not None
