"""An object store for sparklog in an SQLite database: `sqlite:///directory/file.db/prefix`.

The package registers it by the entry points of its pyproject.toml. It uses public names only.
"""

import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

from sparklog.tiered import Driver, ObjectStoreType, RequestLimits, StoredObject

_SCHEMA = """
CREATE TABLE IF NOT EXISTS objects(
    name TEXT PRIMARY KEY, data BLOB NOT NULL, time_ms INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS uploads(
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, time_ms INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS parts(
    upload INTEGER, number INTEGER, data BLOB NOT NULL, PRIMARY KEY (upload, number));
"""
_PAGE = 1000
_LAST = "\U0010ffff"  # sorts behind all characters of a name


class SqliteDriver:
    """Driver of one prefix of a database. A transaction makes each change atomic and durable."""

    many, looks, delete_max, replaces, skips, sends_once = True, False, 500, True, True, True

    def __init__(self, url: str, limits: RequestLimits) -> None:
        file, _, prefix = url.partition("://")[2].partition(".db")
        if not file:
            raise ValueError("want sqlite:///directory/file.db/prefix")
        self.url = url
        self.database = f"{file}.db"
        self.prefix = prefix.strip("/") + "/"
        self._timeout_s = limits.timeout_ms / 1000

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A connection for one transaction: neither threads nor forked processes may share one."""
        os.makedirs(os.path.dirname(self.database), exist_ok=True)
        try:
            with closing(sqlite3.connect(self.database, timeout=self._timeout_s)) as connection:
                connection.executescript(_SCHEMA)
                connection.isolation_level = None
                connection.execute("BEGIN IMMEDIATE")
                with connection:
                    yield connection
                    connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise TimeoutError(f"{self.database}: {error}") from error
            raise OSError(f"{self.database}: {error}") from error

    def put(self, name: str, data: bytes, crc: int) -> None:
        with self.transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO objects VALUES (?, ?, ?)",
                (self.prefix + name, data, _now()),
            )

    def create(self, name: str, data: bytes, crc: int) -> bool:
        with self.transaction() as connection:
            inserted = connection.execute(
                "INSERT OR IGNORE INTO objects VALUES (?, ?, ?)", (self.prefix + name, data, _now())
            )
            return inserted.rowcount == 1

    def copies(self, source: Driver) -> bool:
        return isinstance(source, SqliteDriver) and source.database == self.database

    def copy(self, source: "SqliteDriver", source_name: str, name: str, size: int) -> int:
        with self.transaction() as connection:
            copied = connection.execute(
                "INSERT OR REPLACE INTO objects SELECT ?, data, ? FROM objects WHERE name = ?",
                (self.prefix + name, _now(), source.prefix + source_name),
            )
            if copied.rowcount != 1:
                raise FileNotFoundError(source_name)
        return 1

    def read(self, name: str, start: int, end: int) -> bytes:
        piece = "coalesce(substr(data, ?, ?), x'')"  # SQLite's piece of an empty object is NULL
        return bytes(self._column(piece, (start + 1, end - start), name))

    def size(self, name: str) -> int:
        return int(self._column("length(data)", (), name))

    def _column(self, expression: str, arguments: Sequence[int], name: str) -> Any:
        with self.transaction() as connection:
            row = connection.execute(
                f"SELECT {expression} FROM objects WHERE name = ?", (*arguments, self.prefix + name)
            ).fetchone()
        if row is None:
            raise FileNotFoundError(name)
        return row[0]

    def check(self, name: str, size: int, crc: int) -> None:
        """Do nothing: a committed transaction holds what it was given."""

    def page(
        self, prefix: str, token: str | None, start_after: str = ""
    ) -> tuple[list[StoredObject], str | None]:
        after = max(token or "", start_after)
        with self.transaction() as connection:
            rows = connection.execute(
                "SELECT name, length(data), time_ms FROM objects"
                " WHERE name >= ? AND name < ? AND name > ? ORDER BY name LIMIT ?",
                (self.prefix + prefix, self.prefix + prefix + _LAST, self.prefix + after, _PAGE),
            ).fetchall()
        below = len(self.prefix)
        page = [StoredObject(name[below:], size, time_ms) for name, size, time_ms in rows]
        return page, page[-1].name if len(page) == _PAGE else None

    def delete(self, names: Sequence[str]) -> None:
        with self.transaction() as connection:
            connection.executemany(
                "DELETE FROM objects WHERE name = ?", [(self.prefix + name,) for name in names]
            )

    def begin(self, name: str, size: int) -> "SqliteUpload":
        with self.transaction() as connection:
            row = connection.execute(
                "INSERT INTO uploads(name, time_ms) VALUES (?, ?)", (self.prefix + name, _now())
            )
            assert row.lastrowid is not None
            return SqliteUpload(self, name, row.lastrowid)

    def uploads(self, before_ms: int, prefix: str = "") -> list["SqliteUpload"]:
        with self.transaction() as connection:
            rows = connection.execute(
                "SELECT name, id FROM uploads WHERE time_ms < ? AND name >= ? AND name < ?",
                (before_ms, self.prefix + prefix, self.prefix + prefix + _LAST),
            ).fetchall()
        return [SqliteUpload(self, name[len(self.prefix) :], upload) for name, upload in rows]


class SqliteUpload:
    """An object that is sent in parts, which are rows until it is finished."""

    def __init__(self, driver: SqliteDriver, name: str, upload: int) -> None:
        self._driver, self._name, self._upload = driver, name, upload

    def part(self, number: int, at: int, data: bytes, crc: int) -> None:
        with self._driver.transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO parts VALUES (?, ?, ?)", (self._upload, number, data)
            )

    def finish(self, receipts: Sequence[Any]) -> None:
        with self._driver.transaction() as connection:
            if not self._delete_upload(connection):
                return  # an earlier call succeeded, and its answer was lost
            parts = connection.execute(
                "SELECT data FROM parts WHERE upload = ? ORDER BY number", (self._upload,)
            )
            connection.execute(
                "INSERT OR REPLACE INTO objects VALUES (?, ?, ?)",
                (self._driver.prefix + self._name, b"".join(data for (data,) in parts), _now()),
            )
            self._delete_parts(connection)

    def abort(self) -> None:
        with self._driver.transaction() as connection:
            self._delete_upload(connection)
            self._delete_parts(connection)

    def _delete_upload(self, connection: sqlite3.Connection) -> bool:
        deleted = connection.execute("DELETE FROM uploads WHERE id = ?", (self._upload,))
        return deleted.rowcount == 1

    def _delete_parts(self, connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM parts WHERE upload = ?", (self._upload,))


def open_driver(
    url: str, storage_options: Mapping[str, Any], limits: RequestLimits, /
) -> SqliteDriver:
    """Return the driver of a URL; the store has no options."""
    if storage_options:
        raise TypeError(f"sqlite has no storage options, and {sorted(storage_options)} were given")
    return SqliteDriver(url, limits)


def _now() -> int:
    return time.time_ns() // 1_000_000


SQLITE = ObjectStoreType(schemes=("sqlite", "sqlite3"), open=open_driver)
