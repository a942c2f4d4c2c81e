"""Check of the writers: the last commit, and writers that stopped."""

from sparklog.service.health.checks.commands import sparklog
from sparklog.service.health.checks.inactivity import has_stopped
from sparklog.service.health.formatting import ago_text, duration_text
from sparklog.service.health.inputs import HealthInputs
from sparklog.service.health.model import Check, Level


def writers(inputs: HealthInputs) -> Check:
    """Check when the log was last committed to, and whether a writer has stopped."""
    found, now_ms = inputs.found, inputs.now_ms
    if found.last_commit_ms is None:
        return Check("writers", Level.GREEN, "nothing was committed yet")
    ahead_ms = found.last_commit_ms - now_ms
    if ahead_ms > inputs.limits.clock_ms:
        what = (
            f"the last commit is dated {duration_text(ahead_ms)} ahead of this host's clock: one "
            "of the two clocks is wrong"
        )
        return Check("writers", Level.AMBER, what, "date -u")
    paces = found.detail.trail.writers
    stopped = [
        (one, pace)
        for one in sorted(found.writers, key=lambda one: one.writer)
        if one.writer in paces and has_stopped(pace := paces[one.writer], now_ms, inputs.limits)
    ]
    if stopped:
        writer, pace = max(stopped, key=lambda one: one[1].last_ms)
        more = f"; {len(stopped) - 1} more stopped" if len(stopped) > 1 else ""
        what = (
            f"writer {writer.text} has committed nothing for "
            f"{duration_text(now_ms - pace.last_ms)}, where its longest pause had been "
            f"{duration_text(pace.longest_ms)}{more}"
        )
        help_ = sparklog("commits", inputs, "--writer", writer.writer, "--last", "5")
        return Check("writers", Level.AMBER, what, help_)
    return Check("writers", Level.GREEN, _told(inputs, found.last_commit_ms))


def _told(inputs: HealthInputs, last_ms: int) -> str:
    """Describe the last commits and their writers."""
    now_ms = inputs.now_ms
    what = f"last change {ago_text(last_ms, now_ms)}"
    newest = sorted(inputs.found.writers, key=lambda one: -one.time_ms)
    if newest:
        one = newest[0]
        what += f"; micro-batch {one.batch} of {one.text} {ago_text(one.time_ms, now_ms)}"
    if len(newest) > 1:
        what += f", of {newest[1].text} {ago_text(newest[1].time_ms, now_ms)}"
    return what + (f", {len(newest) - 2} more writers" if len(newest) > 2 else "")
