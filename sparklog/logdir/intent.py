"""The intent: the record of the step in progress in the lock file's page, for undo after a crash.

The body of the page is JSON, with optional fields. All except `offline` describe the intent, and
exist while the page is BUSY:

    ledger   [base, size, end] of the commit ledger before the step
    logs     [[topic, partition, [base, size, end]], ...] of the partitions that it changes
    making   paths of the directories that it creates
    swap     [topic, partition, {base, parts, log, covered, trailing}] of segments, see
             `partition.segment_swap`
    offline  [[topic, partition, reason, path, position, first, end, is missing], ...]
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sparklog.common import TopicPartition
from sparklog.errors import DataCorruptionError, PartitionOfflineError
from sparklog.logdir.partition.segment_swap import SegmentSwap
from sparklog.logdir.partition.truncation import SegmentState

_MALFORMED: Final = (KeyError, TypeError, ValueError, AttributeError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """A step in progress: the previous state of each log that it changes, and new directories.

    Attributes:
        ledger: The state of the commit ledger before the step.
        logs: {partition: state before the step} of the partitions that the step appends to.
        making: The paths of the directories that the step creates.
        swap: The partition and the swap, if the step replaces segments of a partition.
    """

    ledger: SegmentState
    logs: Mapping[TopicPartition, SegmentState] = field(default_factory=dict)
    making: tuple[str, ...] = ()
    swap: tuple[TopicPartition, SegmentSwap] | None = None


Offline = dict[TopicPartition, DataCorruptionError]


def encode_body(intent: Intent | None, offline: Offline) -> bytes:
    """Return the body of the lock file's page: empty without an intent and offline partitions."""
    fields: dict[str, Any] = {}
    if intent is not None:
        fields["ledger"] = intent.ledger.to_json()
        fields["logs"] = [[t, p, state.to_json()] for (t, p), state in intent.logs.items()]
        fields["making"] = list(intent.making)
        if intent.swap is not None:
            key, swap = intent.swap
            fields["swap"] = [key.topic, key.partition, swap.to_json()]
    if offline:
        fields["offline"] = [
            [*key, error.reason, error.path, error.position, error.first, error.end,
             isinstance(error, PartitionOfflineError)]
            for key, error in offline.items()
        ]  # fmt: skip
    return json.dumps(fields).encode() if fields else b""


def decode_body(raw: bytes) -> tuple[Intent | None, Offline]:
    """Parse the body of the lock file's page: the step in progress, and the offline partitions.

    Raises:
        ValueError: The body is malformed.
    """
    try:
        fields = json.loads(raw or b"{}")
        intent = _intent_from_json(fields) if "ledger" in fields else None
        return intent, dict(_offline_from_json(*row) for row in fields.get("offline", ()))
    except _MALFORMED as error:
        raise ValueError(f"the page is not of this version of sparklog ({error!r})") from error


def _intent_from_json(fields: dict[str, Any]) -> Intent:
    swap = None
    if "swap" in fields:
        topic, partition, about = fields["swap"]
        swap = TopicPartition(topic, int(partition)), SegmentSwap.from_json(about)
    return Intent(
        ledger=SegmentState.from_json(fields["ledger"]),
        logs={
            TopicPartition(topic, int(partition)): SegmentState.from_json(state)
            for topic, partition, state in fields["logs"]
        },
        making=tuple(fields["making"]),
        swap=swap,
    )


def _offline_from_json(
    topic: str, partition: int, reason: str, path: str, *rest: Any
) -> tuple[TopicPartition, DataCorruptionError]:
    position, first, end, missing = rest
    kind = PartitionOfflineError if missing else DataCorruptionError
    error = kind(reason, path=path, position=position, first=first, end=end)
    return TopicPartition(topic, partition), error
