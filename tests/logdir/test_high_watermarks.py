"""The published watermarks: what was written comes back, or nothing does."""

import os

from sparklog.common import TopicPartition
from sparklog.logdir.high_watermarks import WATERMARKS_NAME, PublishedFile, publish, published
from sparklog.testing.crashfs import CrashFS

ENDS = {TopicPartition("t", 0): 120, TopicPartition("t", 1): 7, TopicPartition("u.v", 3): 0}
STARTS = {TopicPartition("t", 0): 100}


def written() -> CrashFS:
    fs = CrashFS()
    fs.mkdir("/log")
    publish(fs, "/log", ENDS, STARTS, durable=12)
    return fs


def test_they_come_back() -> None:
    found = published(written(), "/log")
    assert found is not None
    assert (found.ends, found.starts, found.durable) == (ENDS, STARTS, 12)


def test_a_flipped_bit_is_noticed_wherever_it_is() -> None:
    """The format has no checksum: without our own a digit would become another one."""
    fs = written()
    path = os.path.join("/log", WATERMARKS_NAME)
    for at in range(fs.size(path)):
        other = fs.kill_clone()
        with other.open(path, write=True) as file:
            file.pwrite(bytes([file.pread(1, at)[0] ^ 1]), at)
        found = published(other, "/log")
        assert found is None or found == published(fs, "/log"), f"byte {at}"


def test_who_reads_again_sees_what_is_new() -> None:
    """And parses nothing twice; a file that is gone, or damaged, isn't what it was before."""
    fs = written()
    file = PublishedFile(fs, "/log")
    first = file.read()
    assert first is not None
    assert file.read() is first
    publish(fs, "/log", {**ENDS, TopicPartition("t", 0): 121}, STARTS, durable=13)
    second = file.read()
    assert second is not None
    assert (second.ends[TopicPartition("t", 0)], second.durable) == (121, 13)
    path = os.path.join("/log", WATERMARKS_NAME)
    raw = fs.open(path).pread(1 << 16, 0)
    with fs.open(path, write=True) as damaged:
        damaged.pwrite(b"9", 4)
    assert file.read() is None
    with fs.open(path, write=True) as mended:
        mended.pwrite(raw, 0)
    assert file.read() == second
    fs.unlink(path)
    assert file.read() is None
