"""`verify` of a log in a store: a healthy one is clean, each kind of damage is found, and where."""

import base64
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparklog.diskless.home_object import create_home
from sparklog.diskless.names import HOME, entry_name, new_staged_name, state_name
from sparklog.diskless.state_objects import decode_state, encode_state, write_state
from sparklog.errors import InvalidRequestError
from sparklog.log.admin import delete_records, drop_topic
from sparklog.service.verification.findings import Finding, Severity, Verification
from sparklog.service.verification.store_extents import ExtentCheck
from sparklog.service.verification.store_verifier import verify_store
from sparklog.tiered.layout.manifest import packed, parse, part, to_bytes
from sparklog.tiered.reading.options import RemoteOptions
from tests.diskless.compacted import cleaned
from tests.diskless.logs import LOG_ID, RING, T0, Home, commit_by_table

Change = Callable[[bytes], bytes]


def make(**given: object) -> Home:
    """Merged [0, 3) with its manifest, staged [3, 5), inline [5, 6); a state, three more kinds."""
    home = Home(**given)  # type: ignore[arg-type]
    create_home(home.store, LOG_ID, home.clock)
    home.topic(partitions=2)
    home.lead()
    home.commit("a", "b")
    home.stage({0: ["c"], 1: ["x", "y"]})
    home.merge_all()
    home.stage({0: ["d", "e"], 1: ["z"]})
    write_state(home.store, home.state)
    home.commit("f")
    return home


@pytest.fixture
def home() -> Home:
    return make()


def look(home: Home, **given: object) -> Verification:
    store = home.store.reopen()
    return verify_store(store.url, store=store, threads=2, **given)  # type: ignore[arg-type]


def only(home: Home) -> Finding:
    report = look(home)
    (finding,) = report.findings
    assert not report.ok
    return finding


def change(home: Home, name: str, how: Change) -> str:
    """Change an object behind everybody's back; returns its URL."""
    raw, when = home.bucket.objects[name]
    home.bucket.objects[name] = how(raw), when
    return f"{home.store.url}/{name}"


def flip(at: int) -> Change:
    return lambda raw: raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]


# --- healthy ones -------------------------------------------------------------------------------


def test_a_healthy_log_is_clean(home: Home) -> None:
    before = dict(home.bucket.objects)
    report = look(home)
    assert (report.findings, report.ok, report.unseen) == ([], True, None)
    assert (report.partitions, report.segments) == (2, 5)
    assert report.bytes == sum(e.size for some in home.state.extents.values() for e in some)
    assert home.bucket.objects == before


def test_a_cleaned_log_is_clean() -> None:
    home = cleaned()
    assert len(home.read()) == 3
    assert look(home).findings == []


def test_tables_log_starts_and_dropped_topics_are_clean(home: Home) -> None:
    commit_by_table(home, {0: ["t", "u", "v"], 1: ["w"]})
    home.topic("gone")
    home.commit("a", topic="gone")
    drop_topic(home.commits, "gone")
    delete_records(home.commits, "t", {0: 4, 1: 3})
    assert home.state.log.starts[T0] == 4
    assert look(home).findings == []


def test_encrypted_by_its_key_ring(tmp_path: Path) -> None:
    """With it a byte that was changed is found; without it the report says what wasn't read."""
    home = make(keyring=RING)
    ring = tmp_path / "ring"
    ring.write_text("k " + base64.b64encode(bytes(range(32))).decode())
    options = RemoteOptions(remote_keyring=str(ring), remote_patience_ms=0)
    report = look(home, options=options)
    assert (report.findings, report.unseen) == ([], None)
    without = look(home)
    assert (without.findings, without.ok) == ([], True)
    assert without.unseen is not None
    assert "2 encrypted extents" in without.unseen
    url = change(home, home.state.extents[T0][0].object, flip(30))
    (finding,) = look(home, options=options).findings
    assert (finding.file, finding.first, finding.end) == (url, 0, 3)


# --- damage -------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 1, 2], ids=["merged", "staged", "inline"])
def test_a_flipped_byte(home: Home, number: int) -> None:
    extent = home.state.extents[T0][number]
    url = change(home, extent.object, flip(extent.start + extent.size - 2))
    finding = only(home)
    assert (finding.severity, finding.file) == (Severity.DAMAGE, url)
    assert (finding.topic, finding.partition) == ("t", 0)
    assert (finding.first, finding.end) == (extent.end - 1, extent.end)
    assert "crc" in finding.what
    assert (finding.repair is not None) == (number == 0)
    assert finding.position is not None
    assert extent.start <= finding.position < extent.start + extent.size


@pytest.mark.parametrize("number", [0, 1, 2], ids=["merged", "staged", "inline"])
def test_an_object_that_ends_too_early(home: Home, number: int) -> None:
    """Of a staged one the other partition's records lie behind: both are told of."""
    extent = home.state.extents[T0][number]
    url = change(home, extent.object, lambda raw: raw[: extent.start + extent.size - 3])
    found = [f for f in look(home).findings if f.partition == 0]
    assert [(f.severity, f.file, f.end) for f in found] == [(Severity.DAMAGE, url, extent.end)]
    assert "is truncated" in found[0].what


def test_damage_stays_with_the_partition_that_has_it(home: Home) -> None:
    """One request brings both partitions' bytes, and only one's are cut."""
    ours, theirs = home.state.extents[T0][1], home.state.extents[T0._replace(partition=1)][1]
    assert ours.object == theirs.object
    change(home, ours.object, lambda raw: raw[: theirs.start + 10])
    finding = only(home)
    assert (finding.partition, finding.first, finding.end) == (1, theirs.base, theirs.end)


@pytest.mark.parametrize("number", [0, 1])
def test_a_missing_object(home: Home, number: int) -> None:
    extent = home.state.extents[T0][number]
    del home.bucket.objects[extent.object]
    found = [f for f in look(home).findings if f.partition == 0]
    assert [(f.first, f.end) for f in found] == [(extent.base, extent.end)]
    assert found[0].file.endswith(extent.object)
    assert "is missing" in found[0].what


def test_offsets_that_no_crc_covers(home: Home) -> None:
    extent = home.state.extents[T0][1]
    url = change(home, extent.object, flip(extent.start + 7))
    finding = only(home)
    assert (finding.file, finding.position) == (url, extent.start)
    assert "offset 3 of [3, 5) is due" in finding.what


# --- the ledger and its states ------------------------------------------------------------------


def test_a_missing_entry(home: Home) -> None:
    """It is found though readers begin with a later state; so all else is looked at."""
    del home.bucket.objects[entry_name(LOG_ID, 2)]
    report = look(home)
    (finding,) = report.findings
    assert (finding.severity, finding.first, finding.end) == (Severity.DAMAGE, 2, 3)
    assert "ledger entry 2 is missing, but existed once" in finding.what
    assert report.segments == 5


def test_a_missing_head_entry_with_its_state(home: Home) -> None:
    write_state(home.store, home.state)
    number = home.state.number
    del home.bucket.objects[entry_name(LOG_ID, number)]
    finding = only(home)
    assert (finding.severity, finding.first, finding.end) == (Severity.DAMAGE, number, number + 1)
    assert f"{state_name(LOG_ID, number)} proves it" in finding.what


def test_a_long_gap_is_one_finding(home: Home) -> None:
    head = home.state.number
    raw, when = home.bucket.objects[entry_name(LOG_ID, head)]
    far = head + 10**12
    home.bucket.objects[entry_name(LOG_ID, far)] = raw, when
    finding = only(home)
    assert finding.first == head + 1
    assert f"ledger entries {head + 1} to {far - 1} are missing" in finding.what


@pytest.mark.parametrize("kind", ["staged", "term", "segment"])
def test_objects_prove_that_later_entries_existed(home: Home, kind: str) -> None:
    before = home.state.number
    if kind == "staged":
        home.commit("g")
        home.store.put(new_staged_name(LOG_ID, home.state.number, "task"), b"x")
    elif kind == "term":
        home.another().lead()
    else:
        home.commit("g")
        home.merge_all()
    for number in range(before + 1, home.state.number + 1):
        del home.bucket.objects[entry_name(LOG_ID, number)]
    report = look(home)
    words = {
        "staged": f"ledger entry {before + 1} is missing, but existed once",
        "term": "a service took term 2 of the log",
        "segment": "records of t-0 below offset 7 were committed",
    }
    assert not report.ok
    assert any(words[kind] in finding.what for finding in report.findings)


def test_a_damaged_entry_with_no_state_behind_it(home: Home) -> None:
    number = home.state.number
    url = change(home, entry_name(LOG_ID, number), flip(70))
    finding = only(home)
    assert (finding.file, finding.first) == (url, number)


def test_an_entry_of_another_history(home: Home) -> None:
    other = make()
    name = entry_name(LOG_ID, home.state.number)
    change(home, name, lambda raw: other.bucket.objects[name][0])
    finding = only(home)
    assert "doesn't follow the entry before it" in finding.what


def test_a_state_that_lies(home: Home) -> None:
    number = home.state.number - 1
    name = state_name(LOG_ID, number)

    def lie(raw: bytes) -> bytes:
        state = decode_state(raw, path=name)
        first, *rest = state.extents[T0]
        state.extents[T0] = (first._replace(size=first.size - 1), *rest)
        state.floor += 1
        return encode_state(state)

    url = change(home, name, lie)
    report = look(home)
    assert {f.file for f in report.findings} == {url}
    one, other = report.findings
    assert (one.first, one.end) == (0, 3)
    assert "the list of t-0's extents differs from the ledger" in one.what
    assert "the stage floor" in other.what
    assert one.repair is not None
    assert not report.ok


def test_a_damaged_state(home: Home) -> None:
    url = change(home, state_name(LOG_ID, home.state.number - 1), flip(200))
    finding = only(home)
    assert (finding.severity, finding.file) == (Severity.DIFFERENCE, url)


def test_a_damaged_home(home: Home) -> None:
    assert only_home(home).severity is Severity.DAMAGE


def only_home(home: Home) -> Finding:
    change(home, HOME, flip(20))
    return only(home)


def test_no_log() -> None:
    with pytest.raises(InvalidRequestError, match="contains no log"):
        look(Home())


# --- manifests ----------------------------------------------------------------------------------


def manifest_name(home: Home) -> str:
    segment = home.state.extents[T0][0].segment
    return next(m.name for m in home.manifests() if m.segment.id == segment)


def test_a_missing_manifest_is_the_service_s_to_make(home: Home) -> None:
    name = manifest_name(home)
    home.store.delete([name])
    finding = only(home)
    assert (finding.severity, finding.file) == (
        Severity.DIFFERENCE, f"{home.store.url}/{name}",
    )  # fmt: skip
    assert (finding.first, finding.end) == (0, 3)
    assert "write it again" in (finding.repair or "")
    home.garbage.sweep(home.report())
    assert look(home).findings == []


def test_a_manifest_that_lies(home: Home) -> None:
    name = manifest_name(home)

    def lie(raw: bytes) -> bytes:
        manifest, body = parse(raw, path=name)
        segment = replace(manifest.segment, size=manifest.segment.size + 1)
        return to_bytes(replace(manifest, segment=segment, crc32c=1), body)

    change(home, name, lie)
    whats = [finding.what for finding in look(home).findings]
    assert any("its size is" in what for what in whats)


def test_bytes_that_are_not_those_of_the_manifest(home: Home) -> None:
    name = manifest_name(home)

    def lie(raw: bytes) -> bytes:
        manifest, body = parse(raw, path=name)
        return to_bytes(replace(manifest, crc32c=1), body)

    change(home, name, lie)
    finding = only(home)
    assert (finding.severity, finding.first, finding.end) == (Severity.DAMAGE, 0, 3)
    assert "its manifest says 1: these are not the bytes that were merged" in finding.what


def test_a_time_index_that_leads_astray(home: Home) -> None:
    name = manifest_name(home)

    def lie(raw: bytes) -> bytes:
        manifest, body = parse(raw, path=name)
        parts = {each: part(manifest, body, each) or b"" for each in manifest.parts}
        index = parts[".timeindex"]
        parts[".timeindex"] = (int.from_bytes(index[:8], "big") + 5).to_bytes(8, "big") + index[8:]
        places, changed = packed(parts)
        return to_bytes(replace(manifest, parts=places), changed)

    url = change(home, name, lie)
    finding = only(home)
    assert (finding.file, finding.severity) == (url, Severity.DIFFERENCE)
    assert ".timeindex: " in finding.what
    assert "is not the first to reach time" in finding.what


# --- beside a service ---------------------------------------------------------------------------


def test_what_a_merge_replaced_meanwhile_is_not_missed(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is merged, and its sources are deleted, between the ledger's reading and theirs."""
    gone = home.state.extents[T0][1].object
    merged: list[object] = []

    def late(*given: Any) -> ExtentCheck:
        if not merged:
            merged.extend(home.merge_all())
            home.store.delete([gone])
        return ExtentCheck(*given)

    monkeypatch.setattr(f"{verify_store.__module__}.ExtentCheck", late)
    report = look(home)
    assert len(merged) == 2
    assert report.findings == []
    assert report.segments == 4
