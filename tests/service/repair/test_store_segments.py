"""`verify --repair` of a log in a store: segments from good copies, manifests, states."""


import pytest

from sparklog.diskless.extents import Extent
from sparklog.diskless.home_object import create_home
from sparklog.diskless.merge_plan import Merge
from sparklog.diskless.merge_source import SourceReader
from sparklog.diskless.names import Level
from sparklog.diskless.segment_healing import SegmentHealer
from sparklog.diskless.service_log import ConflictError
from sparklog.errors import DataCorruptionError
from sparklog.service import Verification, verify
from sparklog.service.repair.store_repair import StoreRepair
from sparklog.service.verification.store_verifier import verify_store
from sparklog.storage.lease import LeaseLostError
from sparklog.tiered.reading.options import RemoteOptions
from tests.damage.actions import read
from tests.damage.bucket import BucketHome, MemoryPlace
from tests.damage.model import Kind
from tests.diskless.compacted import cleaned
from tests.diskless.logs import LOG_ID, T0, Home

OPTIONS = RemoteOptions(remote_patience_ms=0)


def kind_of(made: BucketHome, name: str) -> Kind:
    return next(kind for kind in made.kinds if kind.name == name)


def change(place: MemoryPlace, **changed: bytes | None) -> None:
    """Replace objects; None deletes one."""
    files: dict[str, bytes | None] = {**place.files(), **changed}
    place.remove()
    place.put({name: data for name, data in files.items() if data is not None})


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


# --- segments -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["missing", "flipped"])
def test_a_segment_is_written_again(made: BucketHome, place: MemoryPlace, how: str) -> None:
    segment, truth = kind_of(made, "segment"), read(place.path)
    data = made.files[segment.file]
    change(place, **{segment.file: None if how == "missing" else flipped(data, len(data) - 3)})
    before = place.files()
    report = verify(place.path, repair=True)
    assert report.ok, report
    assert read(place.path) == truth
    (line,) = report.done
    assert "offsets [0, 3) of t-0 written again" in line
    after = place.files()
    assert {name: after[name] for name in before} == before  # nothing is removed or replaced
    assert verify(place.path).findings == []


def test_bytes_that_were_not_merged_are_damage(made: BucketHome, place: MemoryPlace) -> None:
    """Valid batches of another partition: the ledger has another checksum."""
    segment, truth = kind_of(made, "segment"), read(place.path)
    neighbour = str(segment.neighbour)
    change(place, **{neighbour: made.files[segment.file]})
    report = verify(place.path)
    assert any("not those that were committed" in one.what for one in report.findings)
    assert verify(place.path, repair=True).ok
    assert read(place.path) == truth


@pytest.mark.parametrize("how", ["missing", "flipped", "other"])
def test_without_a_good_copy_it_is_refused(
    made: BucketHome, place: MemoryPlace, how: str
) -> None:
    segment = kind_of(made, "segment")
    staged = next(name for name in sorted(made.files) if name.startswith("staged-"))
    data = made.files[staged]
    other = made.files[str(kind_of(made, "staged object").file)][: len(data)]
    bad = {"missing": None, "flipped": flipped(data, 65), "other": other}[how]
    change(place, **{segment.file: b"", staged: bad})
    before = place.files()
    report = verify(place.path, repair=True)
    assert not report.ok
    assert report.refused is not None
    assert "can't be written again" in report.refused
    assert "restore the object from a copy of the bucket" in report.refused
    assert place.files() == before


def test_a_segment_without_its_manifest_is_healed_too(
    made: BucketHome, place: MemoryPlace
) -> None:
    truth = read(place.path)
    files = {kind_of(made, name).file: b"" for name in ("segment", "manifest")}
    change(place, **files)
    assert verify(place.path, repair=True).ok
    assert read(place.path) == truth


def test_old_sources_of_other_bytes_are_refused() -> None:
    """Entries of an older version have no checksums; the manifest has one of the merged log."""
    home = Home()
    create_home(home.store, LOG_ID, home.clock)
    home.topic()
    home.lead()
    staged = home.stage({0: ["a", "b"]})
    other = home.stage({0: ["c", "d"]})
    home.merge_all()
    extent = home.state.extents[T0][0]
    manifest = next(one for one in home.manifests() if one.segment.id == extent.segment)
    first, second = home.store.get(staged), home.store.get(other)
    assert len(first) == len(second)
    assert manifest.crc32c == extent.crc
    home.bucket.objects[staged] = second, 0
    home.bucket.objects[extent.object] = b"", 0
    merge = Merge(
        T0, home.state.log.topics["t"].id, home.state.log.topics["t"].parsed(), (extent,),
        Level.PIECES, "a damaged segment",
    )  # fmt: skip
    sources = tuple(
        Extent(base, base + 2, name, 0, len(first), extent.max_timestamp, extent.epoch, -1)
        for base, name in ((0, staged), (2, other))
    )
    reader = SourceReader(home.store, {}, None)
    number = home.state.number
    with pytest.raises(DataCorruptionError, match="the CRC-32C of the sources differs"):
        home.merger.replace(merge, sources, home.state, reader, crc=manifest.crc32c)
    assert home.state.number == number


def test_a_compacted_segment_is_not_made_of_what_compaction_removed() -> None:
    home = cleaned()
    extent = home.state.extents[T0][0]
    del home.bucket.objects[extent.object]
    repair, report = repaired(home)
    assert repair is not None
    assert "removed records from the segment, so the objects that it was merged from can" in repair
    assert not report.ok


def test_a_segment_that_is_being_replaced_is_left_alone() -> None:
    home = Home()
    create_home(home.store, LOG_ID, home.clock)
    home.topic()
    home.lead()
    home.stage({0: ["a", "b"]})
    home.merge_all()
    extent = home.state.extents[T0][0]
    raw, when = home.bucket.objects[extent.object]
    home.bucket.objects[extent.object] = raw[:-1], when
    found = look(home).findings
    home.bucket.objects[extent.object] = raw, when
    home.clock.advance(1)
    another = home.another().lead()  # a new term, and the segment is as it was
    assert another.state.term > 1
    repair = StoreRepair(home.store.reopen(), home.clock, found, OPTIONS)
    assert repair.run() is None
    assert look(home).ok


def look(home: Home) -> Verification:
    store = home.store.reopen()
    return verify_store(store.url, store=store, options=OPTIONS)


def repaired(home: Home) -> tuple[str | None, Verification]:
    repair = StoreRepair(home.store.reopen(), home.clock, look(home).findings, OPTIONS)
    return repair.run(), look(home)


# --- manifests and states -----------------------------------------------------------------------


@pytest.mark.parametrize("how", ["missing", "empty", "older"])
def test_a_manifest_is_written_again(made: BucketHome, place: MemoryPlace, how: str) -> None:
    manifest = kind_of(made, "manifest")
    bad = {"missing": None, "empty": b"", "older": manifest.older}[how]
    change(place, **{manifest.file: bad})
    report = verify(place.path, repair=True)
    assert report.ok, report
    after = place.files()
    assert after[manifest.file] == made.files[manifest.file]
    kept = [data for name, data in after.items() if name.startswith("quarantine/")]
    assert kept == ([] if bad is None else [bad])


def test_a_wrong_state_is_set_aside_and_the_newest_is_written(
    made: BucketHome, place: MemoryPlace
) -> None:
    state, truth = kind_of(made, "newest state"), read(place.path)
    change(place, **{state.file: state.older})
    report = verify(place.path, repair=True)
    assert report.ok, report
    names = place.files()
    assert state.file not in names
    last = max(name for name in names if name.startswith("ledger-"))
    assert f"state-{LOG_ID}/{last[-20:]}" in names
    assert read(place.path) == truth


def test_several_faults_are_repaired_though_one_is_refused(
    made: BucketHome, place: MemoryPlace
) -> None:
    """The damaged staged object stays; the manifest of another segment is written again."""
    staged, manifest = kind_of(made, "staged object"), kind_of(made, "manifest")
    change(place, **{staged.file: b"", str(manifest.neighbour): b""})
    report = verify(place.path, repair=True)
    assert not report.ok
    assert place.files()[str(manifest.neighbour)] == made.files[str(manifest.neighbour)]
    left = {one.file.rpartition("/")[2] for one in report.findings if not one.repaired}
    assert left == {staged.file.rpartition("/")[2]}


def test_the_repair_of_a_whole_log_changes_nothing(made: BucketHome, place: MemoryPlace) -> None:
    report = verify(place.path, repair=True)
    assert (report.ok, report.done, report.refused) == (True, [], None)
    assert place.files() == made.files


@pytest.mark.parametrize("error", [ConflictError("merged meanwhile"), LeaseLostError("taken")])
def test_a_repair_that_a_merge_overtakes_is_run_again(
    made: BucketHome, place: MemoryPlace, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment, truth = kind_of(made, "segment"), read(place.path)
    change(place, **{segment.file: None})

    def overtaken(*_: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(SegmentHealer, "heal", overtaken)
        report = verify(place.path, repair=True)
        assert report.refused is not None
        assert "it is being merged; run the repair again" in report.refused
    assert verify(place.path, repair=True).ok
    assert read(place.path) == truth
