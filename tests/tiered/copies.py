"""Copies for the tests of tiering."""

from typing import Any

from sparklog.format.checkpoint_files import topic_id_text
from sparklog.tiered.remote_segment import RemoteSegment, SegmentState

T0 = 1_700_000_000_000
TOPIC_ID = topic_id_text(bytes(15) + b"\1")


def segment_id(number: int) -> str:
    return topic_id_text(number.to_bytes(16, "big"))


def copy(base: int, end: int, number: int | None = None, **given: Any) -> RemoteSegment:
    """A finished copy of [base, end), 100 bytes large and of epoch 0 unless `given` says else."""
    fields: dict[str, Any] = {
        "topic": "t",
        "topic_id": TOPIC_ID,
        "partition": 0,
        "id": segment_id(base if number is None else number),
        "base": base,
        "end": end,
        "max_timestamp": T0 + base,
        "size": 100,
        "epochs": ((0, base),),
        "state": SegmentState.COPY_FINISHED,
        "time_ms": T0,
    }
    return RemoteSegment(**(fields | given))
