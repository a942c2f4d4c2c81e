"""A segment's manifest: an object that makes its copy readable without the log.

The first line is human-readable JSON (`head -n 1`) with a checksum. The segment's small files
follow, each with its checksum in that line:

    .index  .timeindex  .txnindex (if any)  .snapshot (at the segment's end)
    leader-epoch-checkpoint (cut at the segment's end)

In an encrypted segment the bytes after the line are encrypted as a single chunk, and the line
contains the wrapped key. The line also contains the topic's configs, so that a bucket alone is an
archive.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final, Self

import crc32c

from sparklog.errors import DataCorruptionError
from sparklog.storage.stored_json import seal, unseal
from sparklog.tiered.layout.object_names import (
    Directory,
    manifest_name,
    parse_directory,
    parse_log,
    remote_log_name,
)
from sparklog.tiered.remote_segment import RemoteSegment, SegmentState

MANIFEST_BYTES_MAX: Final = 256 << 20
"""The largest manifest: it contains the segment's indexes."""
PARTS: Final = (".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint")
_CURE: Final = "copy the segment again, or restore this object from a copy of the bucket"


@dataclass(frozen=True, slots=True)
class WrappedKey:
    """A data key, encrypted by a master key.

    Attributes:
        scheme: How the segment and this key are encrypted.
        key_id: The id of the master key.
        wrapped_key: The nonce, the encrypted key and the tag, in base64.
        chunk_bytes: The number of plain bytes of a chunk.
    """

    scheme: str
    key_id: str
    wrapped_key: str
    chunk_bytes: int

    @classmethod
    def parse(cls, content: object) -> Self:
        """Parse a document; missing fields become "" or 0, and are rejected by `unwrap_key`.

        So a manifest can be read even if this version can't unwrap its key.
        """
        fields = content if isinstance(content, Mapping) else {}
        scheme, key_id, wrapped, chunk_bytes = (fields.get(name) for name in cls.__slots__)
        return cls(
            _text(scheme),
            _text(key_id),
            _text(wrapped),
            chunk_bytes if isinstance(chunk_bytes, int) else 0,
        )

    def to_dict(self) -> dict[str, object]:
        """Return the fields, for JSON."""
        return asdict(self)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The first line of a manifest.

    Attributes:
        segment: The copy, in state COPY_FINISHED, with the time of the upload.
        config: The topic's configs that differ from Kafka's defaults, with Kafka's keys.
        gaps: Whether offsets may be missing: the topic is or was compacted, or was a broker's.
        crc32c: The checksum of the plain log.
        stored_size: The size of the log's object.
        stored_crc32c: The checksum of the log's object.
        parts: {name in PARTS: (first byte, end byte, crc32c)}, counted from the end of the line.
        replaces: The ids of the copies that this copy replaces (a cleaned segment's sources).
        encryption: The wrapped data key, or None for plain objects.
    """

    segment: RemoteSegment
    config: dict[str, str]
    crc32c: int
    stored_size: int
    stored_crc32c: int
    parts: dict[str, tuple[int, int, int]]
    gaps: bool = False
    replaces: tuple[str, ...] = ()
    encryption: WrappedKey | None = None

    @property
    def directory(self) -> Directory:
        """The partition's prefix."""
        return directory_of(self.segment)

    @property
    def name(self) -> str:
        """The name of this manifest's object."""
        return manifest_object(self.segment)

    @property
    def log_name(self) -> str:
        """The name of the log's object."""
        return log_object(self.segment)


def directory_of(segment: RemoteSegment) -> Directory:
    """Return the prefix of a copy's objects."""
    return Directory(segment.topic, segment.partition, segment.topic_id)


def manifest_object(segment: RemoteSegment) -> str:
    """Return the name of a copy's manifest."""
    name = manifest_name(segment.base, segment.id, segment.end, segment.max_timestamp)
    return directory_of(segment).prefix + name


def log_object(segment: RemoteSegment) -> str:
    """Return the name of a copy's log object."""
    return directory_of(segment).prefix + remote_log_name(segment.base, segment.id)


def packed(parts: Mapping[str, bytes]) -> tuple[dict[str, tuple[int, int, int]], bytes]:
    """Return the parts of a manifest's body, and the body.

    Args:
        parts: {name in PARTS: content}, such as the indexes of the segment.

    Returns:
        {name: (start, end, CRC-32C)} with byte positions in the body, and the body, which follows
        the manifest's first line in the object.
    """
    places, body = {}, bytearray()
    for name in PARTS:
        if name in parts:
            at = len(body)
            body += parts[name]
            places[name] = at, len(body), crc32c.crc32c(parts[name])
    return places, bytes(body)


def to_bytes(manifest: Manifest, body: bytes) -> bytes:
    """Return the object: the line, then the stored form of `body`."""
    s = manifest.segment
    content = {
        "topic": s.topic,
        "topic_id": s.topic_id,
        "partition": s.partition,
        "segment_id": s.id,
        "base_offset": s.base,
        "end_offset": s.end,
        "max_timestamp_ms": s.max_timestamp,
        "log_bytes": s.size,
        "log_crc32c": manifest.crc32c,
        "stored_bytes": manifest.stored_size,
        "stored_crc32c": manifest.stored_crc32c,
        "leader_epochs": [list(entry) for entry in s.epochs],
        "txn_index": s.has_txn_index,
        "copied_ms": s.time_ms,
        "replaces": list(manifest.replaces),
        "encryption": None if manifest.encryption is None else manifest.encryption.to_dict(),
        "config": manifest.config,
        "gaps": manifest.gaps,
        "parts": {name: list(place) for name, place in manifest.parts.items()},
    }
    return seal("manifest", content) + body


def parse(raw: bytes, *, path: str) -> tuple[Manifest, bytes]:
    """Return the manifest in an object's first line, and the bytes after this line.

    Raises:
        DataCorruptionError: The object is not a manifest, or is damaged.
        UnsupportedVersionError: A newer version of sparklog wrote the object.
    """
    line, newline, body = raw.partition(b"\n")
    content = unseal("manifest", line + newline, path=path, cure=_CURE)
    try:
        segment = RemoteSegment(
            topic=content["topic"],
            topic_id=content["topic_id"],
            partition=content["partition"],
            id=content["segment_id"],
            base=content["base_offset"],
            end=content["end_offset"],
            max_timestamp=content["max_timestamp_ms"],
            size=content["log_bytes"],
            epochs=tuple((epoch, start) for epoch, start in content["leader_epochs"]),
            state=SegmentState.COPY_FINISHED,
            time_ms=content["copied_ms"],
            has_txn_index=content["txn_index"],
        )
        wrapped = content["encryption"]
        manifest = Manifest(
            segment=segment,
            config=dict(content["config"]),
            crc32c=content["log_crc32c"],
            stored_size=content["stored_bytes"],
            stored_crc32c=content["stored_crc32c"],
            parts={name: (at, end, crc) for name, (at, end, crc) in content["parts"].items()},
            gaps=content["gaps"],
            replaces=tuple(content["replaces"]),
            encryption=None if wrapped is None else WrappedKey.parse(wrapped),
        )
        # Names in a manifest come from the bucket, and a restore uses them as names of directories.
        _check_names(segment)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataCorruptionError(
            f"the object is not a manifest ({error!r}); {_CURE}", path=path
        ) from error
    return manifest, body


def parse_of(segment: RemoteSegment, raw: bytes, *, path: str) -> tuple[Manifest, bytes]:
    """Parse the manifest of a copy, as `parse`, and check that it is this copy's manifest.

    Raises:
        DataCorruptionError: The object is damaged, or is another copy's manifest.
        UnsupportedVersionError: A newer version of sparklog wrote the object.
    """
    manifest, body = parse(raw, path=path)
    held = manifest.segment
    if held.id != segment.id:
        raise DataCorruptionError(
            f"this is the manifest of another copy ({held.topic}-{held.partition}, offsets "
            f"[{held.base}, {held.end}), id {held.id}): two objects were swapped or copied; "
            "restore this object from a copy of the bucket",
            path=path, first=segment.base, end=segment.end,
        )  # fmt: skip
    return manifest, body


def _check_names(segment: RemoteSegment) -> None:
    """Raise ValueError if a copy has names outside of the partition's prefix."""
    directory = parse_directory(directory_of(segment).prefix.rstrip("/"))
    log = parse_log(remote_log_name(segment.base, segment.id))
    if directory != directory_of(segment) or log is None:
        raise ValueError(f"{log_object(segment)!r} is not a valid name of a copy")


def part(manifest: Manifest, body: bytes, name: str) -> bytes | None:
    """Return a small file from the decrypted `body`, if the file exists.

    Raises:
        DataCorruptionError: The file is incomplete, or its checksum is wrong.
    """
    place = manifest.parts.get(name)
    if place is None:
        return None
    at, end, crc = place
    data = body[at:end]
    if len(data) != end - at or crc32c.crc32c(data) != crc:
        raise DataCorruptionError(f"{name} is damaged; {_CURE}", path=manifest.name)
    return data
