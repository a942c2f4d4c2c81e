"""Offline log dirs, and the faults that /healthz reports."""

from collections.abc import Iterable, Mapping

from sparklog.logdir.meters import UNWRITABLE
from sparklog.metrics import meters
from sparklog.service.metrics.names import PROBE_FAILED
from sparklog.service.metrics.observed import DirectoryMetrics


def offline_reason(home: str, directory: DirectoryMetrics) -> str:
    """Return why a log dir is offline, or "" if it is online. `home` is the log's first log dir."""
    if directory.error:
        return directory.error
    if directory.failing:
        return "a process failed when it last wrote there"
    process = meters(home)
    if process.gauge(UNWRITABLE).value(directory.directory):
        return "this process failed when it last wrote there"
    if process.gauge(PROBE_FAILED).value(directory.directory):
        return "the service's last trial write failed"
    return ""


def faults(
    home: str, directories: Iterable[DirectoryMetrics], dead: Mapping[str, bool]
) -> list[str]:
    """Return the faults of a service; empty without faults.

    `dead` has, for each kind of work, whether the thread of the work died.
    """
    found = [f"thread {work} has died" for work, is_dead in dead.items() if is_dead]
    why = {one.directory: offline_reason(home, one) for one in directories}
    return found + [f"{place} is offline: {text}" for place, text in why.items() if text]
