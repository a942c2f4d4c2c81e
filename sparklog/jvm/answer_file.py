"""Takes bytes from Spark's JVM past py4j (scala/AnswerFile.scala).

py4j's answers are text over TCP. One of more than 8 KB goes out in several pieces, of which each
waits until the one before is acknowledged, and that is delayed (Nagle, RFC 896 and 1122): it costs
44 ms, on the same host too. So the JVM writes what is larger into an anonymous file of this
process, which it finds by /proc. Where it can't (another container), the answer comes by py4j.
"""

import os
import uuid
from typing import Final, Self

NOWHERE: Final = ""


class AnswerFile:
    """A place for one answer. `into` is what the JVM is told."""

    def __init__(self) -> None:
        self._file = -1
        self.into = NOWHERE
        if hasattr(os, "memfd_create"):  # not on every Linux that Python was built for
            name = f"sparklog-{uuid.uuid4().hex}"
            self._file = os.memfd_create(name)
            self.into = f"/proc/{os.getpid()}/fd/{self._file} /memfd:{name} (deleted)"

    def taken(self, answer: bytes) -> bytes:
        """Return what the JVM answered, there or by py4j (`answer`)."""
        if answer or self._file < 0:
            return answer
        size = os.fstat(self._file).st_size
        parts = []
        while size and (part := os.read(self._file, size)):
            parts.append(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        """Give the memory back. Idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file, self.into = -1, NOWHERE

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
