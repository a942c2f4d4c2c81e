"""Shell commands that help with a finding."""

import shlex
from collections.abc import Iterable

from sparklog.service.health.inputs import HealthInputs


def sparklog(name: str, inputs: HealthInputs, *more: str) -> str:
    """Return a sparklog command on this log. `name` may have two words, such as "readers show"."""
    return shlex.join(["sparklog", *name.split(), inputs.path, *more])


def process(pid: object) -> str:
    """Return the command that shows the state of a process on this host."""
    return f"ps -o pid,stat,etime,args -p {pid}"


def disk_free(paths: Iterable[str]) -> str:
    """Return the command that shows free disk space; without paths, of all mounted disks."""
    return shlex.join(["df", "-h", *paths])
