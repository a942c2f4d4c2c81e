"""Names of the objects of a log in a bucket: builds and parses them.

    sparklog.home                               format version and log id
    ledger-<log id>/<n>                         entry n
    state-<log id>/<n>                          the state after entries 0..n
    staged-<log id>/<n>/<label>-<uuid>          chunks of a task; n: the head when it began
    <topic>-<p>-<topic id>/...                  closed segments (sparklog/tiered/layout)
    readers/<group>/<k>                         a group's positions; the highest k is valid
    service/<term>                              heartbeat of the holder of the term
    asked/<term>                                request to the holder to release its term
    erasures/<topic id>-<request>               an erasure that is not complete
    endpoint/<n>                                endpoint that coordinates groups; the highest n
    quarantine/<time>/<name>                    copies of objects that a repair replaced or removed

The names contain the log id, so that objects copied from another log are never taken for this
log's.
"""

import hashlib
import os
import re
import uuid
from enum import IntEnum
from typing import Final
from urllib.parse import quote

from sparklog.format.checkpoint_files import topic_id_bytes, topic_id_text

HOME: Final = "sparklog.home"
IMPORT: Final = "sparklog.import"
"""Exists while a log is being imported and is not complete."""
TRIAL: Final = "trial-"
"""Prefix of the objects of a capability check."""
SERVICE: Final = "service/"
ASKED: Final = "asked/"
ERASURES: Final = "erasures/"
READERS: Final = "readers/"
ENDPOINT: Final = "endpoint/"
QUARANTINE: Final = "quarantine/"
_TERM_BYTES: Final = 6  # eight characters of the text form
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]")
_LABEL_MAX: Final = 80
_GROUP_MAX: Final = 200  # a file's name has 255 bytes at most, an object's 1024


class Level(IntEnum):
    """The source of a segment's data, encoded in the segment id.

    Merges rewrite records twice at most.

    Ids of segments that were imported from remote segments or a fork encode neither a term nor a
    level; such segments count as finished.
    """

    PIECES = 0
    SEGMENTS = 1
    CLEANED = 2


def ledger_prefix(log_id: str) -> str:
    """Return the prefix of all ledger entries."""
    return f"ledger-{log_id}/"


def entry_name(log_id: str, number: int) -> str:
    """Return the object name of ledger entry `number`."""
    return f"{ledger_prefix(log_id)}{number:020d}"


def checked_object(name: object) -> str:
    """Check an object name that was read from the store, and return the name.

    Raises:
        ValueError: The name could leave the log's prefix in a store with directories.
    """
    if not isinstance(name, str):
        raise TypeError(f"expected an object's name, got {name!r}")
    if "\0" in name or "\\" in name or any(part in ("", ".", "..") for part in name.split("/")):
        raise ValueError(f"{name!r} is not a valid object name")
    return name


def parse_entry(name: str) -> int | None:
    """Return the number of a ledger entry of any log, if the name belongs to an entry."""
    prefix, _, number = name.partition("/")
    return int(number) if prefix.startswith("ledger-") and _is_number(number) else None


def state_prefix(log_id: str) -> str:
    """Return the prefix of all state objects."""
    return f"state-{log_id}/"


def state_name(log_id: str, number: int) -> str:
    """Return the object name of the state after entry `number`."""
    return f"{state_prefix(log_id)}{number:020d}"


def parse_state(log_id: str, name: str) -> int | None:
    """Return the entry number of a state object, if the name belongs to a state object."""
    number = name.removeprefix(state_prefix(log_id))
    if name.startswith(state_prefix(log_id)) and len(number) == 20 and number.isdigit():
        return int(number)
    return None


def staged_prefix(log_id: str) -> str:
    """Return the prefix of all staged objects."""
    return f"staged-{log_id}/"


def new_staged_name(log_id: str, number: int, label: str) -> str:
    """Return a new name for a staged object. `number` is the head when staging began."""
    readable = _UNSAFE.sub("_", label)[:_LABEL_MAX] or "chunks"
    return f"{staged_prefix(log_id)}{number:020d}/{readable}-{uuid.uuid4().hex}"


def parse_staged(log_id: str, name: str) -> int | None:
    """Return the head when staging of this object began, if the name belongs to a staged object."""
    prefix = staged_prefix(log_id)
    number, slash, rest = name.removeprefix(prefix).partition("/")
    if name.startswith(prefix) and slash and rest and len(number) == 20 and number.isdigit():
        return int(number)
    return None


def term_of(segment_id: str) -> int:
    """Return the term of the service that made a segment."""
    return int.from_bytes(topic_id_bytes(segment_id)[:_TERM_BYTES], "big")


def segment_id(term: int, level: Level) -> str:
    """Return a new id."""
    raw = term.to_bytes(_TERM_BYTES, "big") + bytes([level]) + os.urandom(15 - _TERM_BYTES)
    return topic_id_text(raw)


def level_of(segment_id: str, *, term: int) -> Level:
    """Return the source of a segment's data, as its id encodes it.

    `term` is the log's highest term: an id with a higher term was not made by this log.
    """
    level = topic_id_bytes(segment_id)[_TERM_BYTES]
    if term_of(segment_id) > term or level > max(Level):
        return Level.SEGMENTS
    return Level(level)


def service_name(term: int) -> str:
    """Return the object name of the heartbeat of a term's holder."""
    return f"{SERVICE}{term:020d}"


def asked_name(term: int) -> str:
    """Return the object name of requests to the holder of a term."""
    return f"{ASKED}{term:020d}"


def endpoint_name(number: int) -> str:
    """Return the object name of number `number` of the endpoints' lease."""
    return f"{ENDPOINT}{number:020d}"


def parse_endpoint(name: str) -> int | None:
    """Return the number in the name of an endpoint's lease object; None for other names."""
    number = name.removeprefix(ENDPOINT)
    return int(number) if name.startswith(ENDPOINT) and _is_number(number) else None


def readers_prefix(group: str) -> str:
    """Return the prefix of a group's positions: its quoted name, or "~" and its hash."""
    quoted = quote(group, safe="").replace("~", "%7E")
    if not quoted.strip("."):  # "." and ".." are directories in a path
        quoted = quoted.replace(".", "%2E")
    if len(quoted) > _GROUP_MAX:
        quoted = f"~{hashlib.sha256(group.encode()).hexdigest()}"
    return f"{READERS}{quoted}/"


def position_name(group: str, number: int) -> str:
    """Return the name of the object with a group's committed offsets.

    Each commit of the group writes a new object; `number` counts the commits.
    """
    return f"{readers_prefix(group)}{number:020d}"


def parse_position(name: str) -> tuple[str, int] | None:
    """Return (prefix of the group, number), if the name belongs to a position."""
    prefix, slash, number = name.rpartition("/")
    group = prefix.removeprefix(READERS)
    if name.startswith(READERS) and group and "/" not in group and _is_number(number):
        return prefix + slash, int(number)
    return None


def _is_number(text: str) -> bool:
    return len(text) == 20 and text.isdigit()
