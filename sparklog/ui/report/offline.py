"""Partitions that writers took offline, as notices of a report."""

from collections.abc import Sequence

from sparklog.fs import FileSystem
from sparklog.logdir.lock import peek
from sparklog.service import Severity
from sparklog.ui.report.model import Notice


def offline_notices(fs: FileSystem, home: str, told: Sequence[Notice]) -> list[Notice]:
    """Return notices about partitions that writers took offline, unless they have one already."""
    page = peek(fs, home)
    found = {} if page is None else page.offline
    known = {notice.where for notice in told}
    return [
        Notice(severity=Severity.DAMAGE, where=f"{t}-{p}", what=f"offline: {error}")
        for (t, p), error in sorted(found.items())
        if f"{t}-{p}" not in known
    ]
