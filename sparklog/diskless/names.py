"""Names of the objects below a log's home in a store. Text in, text out.

    sparklog.home                               format version and log id
    ledger-<log id>/<n>                         entry n
    state-<log id>/<n>                          what the entries 0..n fold to
    staged-<log id>/<n>/<label>-<uuid>          chunks of one task; n: the head when it began
    <topic>-<p>-<topic id>/...                  closed segments (sparklog/tiered/layout)
    readers/<group>/<k>                         a group's positions, the highest k counts
    service/<term>                              that the holder of the term lives
    asked/<term>                                that somebody asks the holder of the term for it
    erasures/<topic id>-<request>               an erasure that isn't complete
    endpoint/<n>                                which endpoint coordinates groups, the highest n
    quarantine/<time>/<name>                    copies of objects that a repair replaced or removed

The log id is in the names, so that objects of another log, copied here, are never taken for ours.
"""

import hashlib
import os
import re
import uuid
from typing import Final
from urllib.parse import quote

from sparklog.format.checkpoint_files import topic_id_bytes, topic_id_text

HOME: Final = "sparklog.home"
IMPORT: Final = "sparklog.import"
"""That a log is being brought here, and isn't whole yet."""
TRIAL: Final = "trial-"
"""What the names of a new home's trial begin with."""
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


def ledger_prefix(log_id: str) -> str:
    """What the names of all ledger entries begin with."""
    return f"ledger-{log_id}/"


def entry_name(log_id: str, number: int) -> str:
    """The object of ledger entry `number`."""
    return f"{ledger_prefix(log_id)}{number:020d}"


def checked_object(name: object) -> str:
    """Return the name of an object that was read from the store.

    Raises: ValueError: it is no name of an object below the home, where a store has directories.
    """
    if not isinstance(name, str):
        raise TypeError(f"{name!r} where an object's name belongs")
    if "\0" in name or "\\" in name or any(part in ("", ".", "..") for part in name.split("/")):
        raise ValueError(f"{name!r} is no name of an object below the log's home")
    return name


def parse_entry(name: str) -> int | None:
    """The number of a ledger entry's object, of any log; None if it is no such."""
    prefix, _, number = name.partition("/")
    return int(number) if prefix.startswith("ledger-") and _is_number(number) else None


def state_prefix(log_id: str) -> str:
    """What the names of all states begin with."""
    return f"state-{log_id}/"


def state_name(log_id: str, number: int) -> str:
    """The state after entry `number`."""
    return f"{state_prefix(log_id)}{number:020d}"


def parse_state(log_id: str, name: str) -> int | None:
    """The entry number of a state's object; None if it is no such."""
    number = name.removeprefix(state_prefix(log_id))
    if name.startswith(state_prefix(log_id)) and len(number) == 20 and number.isdigit():
        return int(number)
    return None


def staged_prefix(log_id: str) -> str:
    """What the names of all staged objects begin with."""
    return f"staged-{log_id}/"


def new_staged_name(log_id: str, number: int, label: str) -> str:
    """A fresh name for what a task stages; `number`: the head when staging began."""
    readable = _UNSAFE.sub("_", label)[:_LABEL_MAX] or "chunks"
    return f"{staged_prefix(log_id)}{number:020d}/{readable}-{uuid.uuid4().hex}"


def parse_staged(log_id: str, name: str) -> int | None:
    """The head when staging of this object began; None if it is no staged object."""
    prefix = staged_prefix(log_id)
    number, slash, rest = name.removeprefix(prefix).partition("/")
    if name.startswith(prefix) and slash and rest and len(number) == 20 and number.isdigit():
        return int(number)
    return None


def new_segment_id(term: int) -> str:
    """A fresh segment id that begins with the term of the service that makes the segment."""
    raw = term.to_bytes(_TERM_BYTES, "big") + os.urandom(16 - _TERM_BYTES)
    return topic_id_text(raw)


def term_of(segment_id: str) -> int:
    """The term of the service that made a segment."""
    return int.from_bytes(topic_id_bytes(segment_id)[:_TERM_BYTES], "big")


def service_name(term: int) -> str:
    """The sign of life of the holder of a term."""
    return f"{SERVICE}{term:020d}"


def asked_name(term: int) -> str:
    """That somebody wants the log of the holder of a term."""
    return f"{ASKED}{term:020d}"


def endpoint_name(number: int) -> str:
    """Number `number` of the lease of the log's endpoints."""
    return f"{ENDPOINT}{number:020d}"


def parse_endpoint(name: str) -> int | None:
    """The number of an endpoint's lease; None if it is no such."""
    number = name.removeprefix(ENDPOINT)
    return int(number) if name.startswith(ENDPOINT) and _is_number(number) else None


def readers_prefix(group: str) -> str:
    """What the names of a group's positions begin with: its name quoted, or "~" and its hash."""
    quoted = quote(group, safe="").replace("~", "%7E")
    if not quoted.strip("."):  # a path would take them for directories
        quoted = quoted.replace(".", "%2E")
    if len(quoted) > _GROUP_MAX:
        quoted = f"~{hashlib.sha256(group.encode()).hexdigest()}"
    return f"{READERS}{quoted}/"


def position_name(group: str, number: int) -> str:
    """Position number `number` of a group."""
    return f"{readers_prefix(group)}{number:020d}"


def parse_position(name: str) -> tuple[str, int] | None:
    """(prefix of its group, number) of the name of a position; None if it is none."""
    prefix, slash, number = name.rpartition("/")
    group = prefix.removeprefix(READERS)
    if name.startswith(READERS) and group and "/" not in group and _is_number(number):
        return prefix + slash, int(number)
    return None


def _is_number(text: str) -> bool:
    return len(text) == 20 and text.isdigit()
