"""Encodes and decodes subscriptions and assignments of the protocol type "consumer".

Subscription v0: int16 version, [string topic], bytes user data; later versions only append fields.
Assignment v0: int16 version, [string topic, [int32 partition]], bytes user data.
Source: ConsumerProtocol, ConsumerProtocolSubscription.json (Kafka 4.1).
"""

import struct
from collections.abc import Iterable, Mapping
from typing import Final

PROTOCOL_TYPE: Final = "consumer"
_NO_USER_DATA: Final = struct.pack(">i", -1)


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Return the topics of a member's subscription, or None for an invalid subscription.

    Cost: proportional to the bytes, whatever their content.
    """
    try:
        version, count = struct.unpack_from(">hi", metadata)
        if version < 0 or not 0 <= count <= len(metadata):
            return None
        found, at = set(), 6
        for _ in range(count):
            (size,) = struct.unpack_from(">h", metadata, at)
            at += 2
            if size < 0 or at + size > len(metadata):
                return None
            found.add(metadata[at : at + size].decode())
            at += size
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(found)


def subscription(topics: Iterable[str]) -> bytes:
    """Return a subscription to topics, version 0."""
    names = sorted(topics)
    return struct.pack(">hi", 0, len(names)) + b"".join(map(_string, names)) + _NO_USER_DATA


def assignment(partitions: Mapping[str, Iterable[int]]) -> bytes:
    """Return an assignment of {topic: partitions}, version 0."""
    parts = [struct.pack(">hi", 0, len(partitions))]
    for topic, numbers in sorted(partitions.items()):
        owned = sorted(numbers)
        parts += [_string(topic), struct.pack(f">i{len(owned)}i", len(owned), *owned)]
    return b"".join(parts) + _NO_USER_DATA


def assigned_partitions(raw: bytes) -> dict[str, list[int]]:
    """Return {topic: partitions} of an assignment; empty if it is invalid."""
    found: dict[str, list[int]] = {}
    try:
        version, count = struct.unpack_from(">hi", raw)
        if version < 0 or not 0 <= count <= len(raw):
            return {}
        at = 6
        for _ in range(count):
            (size,) = struct.unpack_from(">h", raw, at)
            at += 2
            if size < 0 or at + size > len(raw):
                return {}
            topic = raw[at : at + size].decode()
            (partitions,) = struct.unpack_from(">i", raw, at + size)
            if not 0 <= partitions <= len(raw):
                return {}
            found[topic] = list(struct.unpack_from(f">{partitions}i", raw, at + size + 4))
            at += size + 4 + 4 * partitions
    except (struct.error, UnicodeDecodeError):
        return {}
    return found


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack(">h", len(raw)) + raw
