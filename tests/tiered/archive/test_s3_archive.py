"""Reading a bucket through s3fs from a real server: `sparklog.open`, caches, encryption, faults."""

from pathlib import Path
from typing import Any

import pytest

import sparklog
from sparklog.clock import system_clock
from sparklog.config import LogOptions
from sparklog.errors import InvalidRequestError, StorageUnavailableError
from sparklog.log.log import Log, view_of
from sparklog.tiered.archive.home import ArchiveHome
from sparklog.tiered.archive.opening import open_archive
from sparklog.tiered.archive.view import ArchiveView
from sparklog.tiered.reading.options import RemoteOptions
from sparklog.tiered.target import open_store
from tests.logdir.partitions import T0
from tests.service.logs import SMALL, fill
from tests.tiered.buckets import DictStore, copy_partition
from tests.tiered.s3 import S3Server

pytestmark = pytest.mark.s3


@pytest.fixture(scope="module")
def made(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """An archive's URL, and the log that it was copied from."""
    path, store = tmp_path_factory.mktemp("archive") / "log", DictStore()
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", partitions=2, config=SMALL)
        fill(log, "t", 0, 30)
        fill(log, "t", 1, 17)
    for p in (0, 1):
        copy_partition(path / f"t-{p}", store)
    url = s3.bucket() + "/some/prefix"
    bucket = open_store(url, s3.options())
    for name, data in store.objects.items():
        bucket.put(name, data)
    return url, path


@pytest.mark.parametrize("tls", [False, True])
def test_a_bucket_reads_as_the_log(s3: S3Server, made: tuple[str, Path], tls: bool) -> None:
    url, path = made
    with (
        sparklog.open(path) as log,
        sparklog.open(url, storage_options=s3.options(tls=tls)) as archive,
    ):
        ends = {p: end for p, (_, end) in archive.offsets("t").items()}
        assert archive.read("t").read_all().equals(log.read("t", end=ends).read_all())
        when = T0 + 7000
        assert archive.offsets_for_times("t", when) == log.offsets_for_times("t", when)


def test_wrong_credentials_are_told_and_right_ones_work(
    s3: S3Server, made: tuple[str, Path]
) -> None:
    url, _ = made
    with pytest.raises(StorageUnavailableError, match="check key, secret") as raised:
        sparklog.open(url, storage_options=s3.options(secret="wrong"))
    assert "wrong" not in str(raised.value)
    with sparklog.open(url, storage_options=s3.options()) as archive:
        assert list(archive.topics()) == ["t"]


def test_what_was_fetched_is_found_again_on_disk(
    s3: S3Server, made: tuple[str, Path], tmp_path: Path
) -> None:
    url, _ = made
    options = {"remote.cache.directory": str(tmp_path)}
    given: dict[str, Any] = {"storage_options": s3.options(), "options": options}
    with sparklog.open(url, **given) as archive:
        first = archive.read("t").read_all()
    remote, rest = RemoteOptions.parse(options)
    opened = open_archive(url, options=remote, storage_options=s3.options())
    parsed = LogOptions.parse(rest)
    with Log(ArchiveHome(opened), options=parsed, clock=system_clock) as archive:
        archive.topics()
        view = view_of(archive)
        assert isinstance(view, ArchiveView)
        counts = view.objects.store.counts
        before = counts.gets
        assert archive.read("t").read_all().equals(first)
        assert counts.gets == before


def test_an_archive_can_not_be_written(s3: S3Server, made: tuple[str, Path]) -> None:
    with pytest.raises(InvalidRequestError, match="copies of a log dir's closed segments"):
        sparklog.open(made[0], "rw", storage_options=s3.options())
    with pytest.raises(InvalidRequestError, match="a single URL"):
        sparklog.open(f"{made[0]},{made[0]}2", storage_options=s3.options())


def test_an_empty_or_missing_bucket(s3: S3Server) -> None:
    with sparklog.open(s3.bucket(), storage_options=s3.options()) as archive:
        assert archive.topics() == {}
    with pytest.raises((InvalidRequestError, StorageUnavailableError), match="no-such-bucket"):
        sparklog.open("s3://no-such-bucket-here", storage_options=s3.options())


def test_a_directory_of_the_bucket_s_form_is_an_archive(
    made: tuple[str, Path], tmp_path: Path
) -> None:
    _, path = made
    store = DictStore()
    copied = copy_partition(path / "t-0", store)
    for name, data in store.objects.items():
        target = tmp_path / "mounted" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    for where in (str(tmp_path / "mounted"), f"file://{tmp_path}/mounted"):
        with sparklog.open(where) as archive:
            assert archive.read("t").read_all().num_rows == copied[-1].end
