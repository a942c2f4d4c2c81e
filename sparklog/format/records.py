"""Records: Arrow columns -> whole batches v2, and back. (Being built: signatures are final.)"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from sparklog.format.batch import BatchHeader, Buffer
from sparklog.format.compression import Codec
from sparklog.format.scan import Table

BATCH_SIZE: Final = 16384
MAX_MESSAGE_BYTES: Final = 1048588


@dataclass(frozen=True, slots=True)
class Encoded:
    """Whole batches: `data`, one row of `batches` each (positions in `data`), `count` records."""

    data: memoryview
    batches: Table
    count: int


def encode(
    data: pa.RecordBatch | pa.Table,
    *,
    codec: Codec,
    level: int | None = None,
    batch_size: int = BATCH_SIZE,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
    timestamp_ms_default: int,
    producer: tuple[int, int, int] | None = None,
    base_offset: int = 0,
    leader_epoch: int = 0,
    log_append_time: int | None = None,
) -> Encoded:
    """Frame the rows of `data` as record batches."""
    raise NotImplementedError


class Decoder:
    """Collects records of many batches into one Arrow record batch.

    `add` and `add_many` stop before key or value data would pass 2^31-1 bytes.
    """

    rows: int
    nbytes: int

    def __init__(self, columns: Iterable[str] | None = None) -> None:
        raise NotImplementedError

    def add(
        self,
        buf: Buffer,
        at: int,
        header: "BatchHeader | Any",
        *,
        first: int = 0,
        end: int = 2**63 - 1,
        path: str,
        position: int = 0,
    ) -> bool:
        """Add the records [first, end) of the batch at byte `at`; False if full (nothing added)."""
        raise NotImplementedError

    def add_many(
        self,
        buf: Buffer,
        batches: Table,
        *,
        first: int = 0,
        end: int = 2**63 - 1,
        path: str,
        position: int = 0,
    ) -> int:
        """Add the batches of a scan's table (`position` is buf[0]'s place in the file).

        Control batches are skipped. Returns: how many rows of `batches` are done; fewer than all
        if the decoder is full: `finish` it and go on with the rest.
        """
        raise NotImplementedError

    def finish(self) -> pa.RecordBatch:
        """The records so far; the decoder is empty afterwards."""
        raise NotImplementedError
