"""The published watermarks: what was written comes back, or nothing does."""

import os

from sparklog.common import TopicPartition
from sparklog.logdir.high_watermarks import WATERMARKS_NAME, publish, published
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
