"""What each client is asked to do, and what comes back, whatever language it is written in.

Values are compared whole. What a client can't express (kcat shows headers as text only, say) it
names itself: `Client.shown` is a record as that client would show it.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Final

LINGER_MS: Final = 150  # how long to look for a record more than there should be
TIMEOUT_MS: Final = 150_000
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")

Header = tuple[str, bytes | None]


class ClientFailed(AssertionError):
    """The client gave up; the text is what it said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record; `timestamp` in ms, None where the client doesn't tell or set it."""

    partition: int = 0
    offset: int = -1
    timestamp: int | None = None
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[Header, ...] | str = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One thing to do.

    do: "consume": `count` records of one partition from offset `start`, no group (those that can't
        read without one take `group`); "group": `count` records of a topic as a member of `group`
        from where the group stands, else the start, then commit what was read and leave;
        "produce": `records` with acks=all; "time": the offset for `timestamp`, -1 if there is none.
    committed: isolation.level=read_committed. protocol: group.protocol, None is the client's own.
    A read ends when nothing came for `linger_ms` after the wanted number, or after `timeout_ms`.
    """

    do: str
    bootstrap: str
    topic: str
    partition: int = 0
    start: int = -1
    count: int = 0
    committed: bool = False
    group: str = field(default_factory=lambda: f"judge-{uuid.uuid4().hex[:8]}")
    protocol: str | None = None
    timestamp: int = 0
    compression: str = "none"
    idempotent: bool = True
    records: tuple[Record, ...] = ()
    timeout_ms: int = TIMEOUT_MS
    linger_ms: int = LINGER_MS

    def json(self) -> dict[str, Any]:
        """Return it for a program in another language: bytes as base64."""
        made = asdict(self)
        made["records"] = [_out(record) for record in self.records]
        return made


class Client:
    """A client library or tool; `run` does a task."""

    name: ClassVar[str]
    does: ClassVar[frozenset[str]] = frozenset({"consume", "group", "produce", "time"})
    reads: ClassVar[Sequence[str]] = CODECS
    writes: ClassVar[Sequence[str]] = CODECS
    idempotent: ClassVar[bool] = True
    transactions: ClassVar[Sequence[bool]] = (False, True)  # read_uncommitted, read_committed
    tells_all_offsets: ClassVar[bool] = True  # of what was produced

    def prepare(self) -> None:
        """Get what it needs. Raises: jars.Unavailable: it can't be had here."""

    def run(self, task: Task) -> list[Record]:
        """Do it. Raises: ClientFailed."""
        raise NotImplementedError

    def knows(self, topic: str, committed: bool) -> bool:
        """Tell whether it reads a golden topic right, from a broker as from us."""
        return topic != "txn" or committed in self.transactions

    def shown(self, record: Record) -> Record:
        """Return a record of the log as this client shows it."""
        return record

    def sent(self, record: Record) -> Record:
        """Return what reaches the log when this client is given a record to produce."""
        return record

    def consume(self, bootstrap: str, topic: str, partition: int = 0, **more: Any) -> list[Record]:
        """Read `count` records of one partition from offset `start`."""
        return self.do("consume", bootstrap, topic, partition=partition, **more)

    def do(self, what: str, bootstrap: str, topic: str, **more: Any) -> list[Record]:
        """Do a task."""
        return self.run(Task(do=what, bootstrap=bootstrap, topic=topic, **more))

    def __str__(self) -> str:
        return self.name


def encoded(raw: bytes | None) -> str | None:
    """Return bytes as base64."""
    return None if raw is None else base64.b64encode(raw).decode()


def decoded(text: str | None) -> bytes | None:
    """Return bytes of base64."""
    return None if text is None else base64.b64decode(text)


def _out(record: Record) -> dict[str, Any]:
    assert not isinstance(record.headers, str)
    return {
        "partition": record.partition, "timestamp": record.timestamp,
        "key": encoded(record.key), "value": encoded(record.value),
        "headers": [{"key": name, "value": encoded(value)} for name, value in record.headers],
    }  # fmt: skip


def records(answers: Iterable[dict[str, Any]]) -> list[Record]:
    """Return the records of a program's JSON."""
    return [
        Record(
            partition=a.get("partition", 0),
            offset=a["offset"],
            timestamp=a.get("timestamp"),
            key=decoded(a.get("key")),
            value=decoded(a.get("value")),
            headers=tuple((h["key"], decoded(h["value"])) for h in a.get("headers") or ()),
        )
        for a in answers
    ]


def headers_by_name(record: Record) -> Record:
    """A client with a dictionary of headers puts those of one name together."""
    assert not isinstance(record.headers, str)
    names = dict.fromkeys(name for name, _ in record.headers)
    together = [(n, v) for n in names for m, v in record.headers if m == n]
    return replace(record, headers=tuple(together))
