"""Ports for servers that are told theirs beforehand: no two tests of this machine get the same."""

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path
from typing import Final

# Below those that the kernel gives to clients, which would take one before its server is up.
RANGE: Final = range(20_000, 32_000)
_LOCKS: Final = Path(tempfile.gettempdir()) / f"sparklog-test-ports-{os.getuid()}"
_kept: list[int] = []  # files whose locks end with the process


def free_ports(number: int) -> list[int]:
    """Return ports that nobody listens on, all different, and this process' own until it ends."""
    _LOCKS.mkdir(exist_ok=True)
    found: list[int] = []
    for port in random.SystemRandom().sample(RANGE, len(RANGE)):
        if len(found) == number:
            break
        if _take(port):
            found.append(port)
    return found


def free_port() -> int:
    """Return one of them."""
    return free_ports(1)[0]


def _take(port: int) -> bool:
    file = os.open(_LOCKS / str(port), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with socket.socket() as probe:
            probe.bind(("", port))
    except OSError:
        os.close(file)
        return False
    _kept.append(file)
    return True
