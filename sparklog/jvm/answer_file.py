"""Receive large answers from Spark's JVM past py4j (scala/AnswerFile.scala).

py4j sends answers as text over TCP. An answer of more than 8 KB is sent in several segments, and
each waits for the delayed acknowledgement of the previous segment (Nagle, RFC 896 and 1122), which
costs 44 ms, on the same host too. The JVM therefore writes large answers to an anonymous file of
this process, which it opens by /proc. If it can't (another container), the answer comes by py4j.
"""

import os
import uuid
from typing import Final, Self

NOWHERE: Final = ""


class AnswerFile:
    """The anonymous file for a single answer. The JVM gets `into`, the file's path."""

    def __init__(self) -> None:
        self._file = -1
        self.into = NOWHERE
        if hasattr(os, "memfd_create"):  # missing in Python builds for old Linux versions
            name = f"sparklog-{uuid.uuid4().hex}"
            self._file = os.memfd_create(name)
            self.into = f"/proc/{os.getpid()}/fd/{self._file} /memfd:{name} (deleted)"

    def taken(self, answer: bytes) -> bytes:
        """Return the JVM's answer from the file, or `answer` if py4j delivered the answer."""
        if answer or self._file < 0:
            return answer
        size = os.fstat(self._file).st_size
        parts = []
        while size and (part := os.read(self._file, size)):
            parts.append(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        """Release the memory. Idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file, self.into = -1, NOWHERE

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
