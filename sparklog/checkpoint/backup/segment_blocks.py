"""How a segment of a checkpoint's log dir is split into blocks: only new ones are uploaded.

By content, not by position: a record of 4 KiB or more is a block of its own, as the file would be
that it stands for; smaller ones go together, by 16 offsets. So a cleaning, which moves what it
keeps, and a longer end leave all other blocks as they were.
"""

from itertools import pairwise
from typing import Final

import numpy as np

from sparklog.checkpoint.backup.repository import BLOCK_BYTES
from sparklog.fs import File
from sparklog.log.batch_windows import walk

ALONE_BYTES: Final = 4 << 10
TOGETHER: Final = 16  # offsets


def block_sizes(file: File, size: int) -> list[int]:
    """The sizes of the blocks of a segment's first `size` bytes, at most BLOCK_BYTES each.

    Cost: reads it, without the CRCs.
    """
    windows = [w.batches.table for w in walk(file, limit=size, check_crc=False)]
    inner: list[int] = []
    if windows:
        table = np.concatenate(windows)
        alone = table["size"] >= ALONE_BYTES
        group = table["base_offset"] // TOGETHER
        cut = alone[:-1] | alone[1:] | (group[:-1] != group[1:])
        inner = table["position"][1:][cut].tolist()
    return [
        min(BLOCK_BYTES, end - at)
        for first, end in pairwise([0, *inner, size])
        for at in range(first, end, BLOCK_BYTES)
    ]
