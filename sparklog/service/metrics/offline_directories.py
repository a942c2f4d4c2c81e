"""Which log dirs are offline, and what /healthz therefore says is wrong."""

from collections.abc import Iterable, Mapping

from sparklog.logdir.meters import UNWRITABLE
from sparklog.metrics import meters
from sparklog.service.metrics.names import PROBE_FAILED
from sparklog.service.metrics.observed import DirectoryMetrics


def offline(home: str, directory: DirectoryMetrics) -> str:
    """Return why a log dir is offline, "" if it isn't. `home`: the first of the log's."""
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


def wrong(
    home: str, directories: Iterable[DirectoryMetrics], dead: Mapping[str, bool]
) -> list[str]:
    """Return what is wrong, nothing if all is well. `dead`: {work: its thread ended by itself}."""
    found = [f"thread {work} has died" for work, is_dead in dead.items() if is_dead]
    why = {one.directory: offline(home, one) for one in directories}
    return found + [f"{place} is offline: {text}" for place, text in why.items() if text]
