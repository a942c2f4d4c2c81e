"""The commands that help, as a shell takes them."""

import shlex
from collections.abc import Iterable

from sparklog.service.health.inputs import HealthInputs


def sparklog(name: str, inputs: HealthInputs, *more: str) -> str:
    """Return a command of sparklog on this log; `name` may be two words."""
    return shlex.join(["sparklog", *name.split(), inputs.path, *more])


def process(pid: object) -> str:
    """Return the command that shows what a process of this host does."""
    return f"ps -o pid,stat,etime,args -p {pid}"


def disk_free(paths: Iterable[str]) -> str:
    """Return the command that shows how full disks are; of no paths all that are mounted."""
    return shlex.join(["df", "-h", *paths])
