"""Checks of the readers and writers: whether they keep up, or have stopped.

Readers and writers are judged by their own earlier rhythm. A false alarm is worse than none. So a
batch job that was active only briefly counts as ended, and so does a reader or writer that has been
silent for longer than it was active, or for a day. For readers the check predicts when they will
have caught up.
A reader's file contains its recent commits (`sparklog.storage.commit_rate`), and the ledger
contains the rate of new records and the commit time of the oldest unread record. So the check needs
no earlier observation.
"""

from dataclasses import dataclass, field
from typing import Final

from sparklog.common import TopicPartition
from sparklog.pluralize import pluralize
from sparklog.quantities import DAY_MS, MINUTE_MS
from sparklog.service.health.formatting import (
    ago_text,
    count_with_names,
    duration_text,
    records_text,
)
from sparklog.service.health.inputs import HealthInputs
from sparklog.service.health.limits import Limits
from sparklog.service.health.model import Check, Level
from sparklog.storage.commit_rate import CommitRate
from sparklog.storage.groups import GROUP
from sparklog.storage.query_origin import query_text

_FAR_MS: Final = 30 * DAY_MS
_SLOWER: Final = 1.05  # rates that differ by less count as equal
_PAUSES: Final = 3  # silence up to this multiple of the longest pause is normal


@dataclass(slots=True)
class Standing:
    """A group's position relative to the log.

    Attributes:
        lag: The number of unread records.
        unread_ms: When the oldest unread record was committed. None without an unread record, or if
            the ledger does not reach back that far.
        ahead: Partitions in which the position is past the log end.
        lost: Partitions in which the position is before the log start.
    """

    group: str
    kind: str
    name: str = ""
    time_ms: int = 0
    lag: int = 0
    unread_ms: int | None = None
    keys: list[TopicPartition] = field(default_factory=list)
    ahead: list[TopicPartition] = field(default_factory=list)
    lost: list[TopicPartition] = field(default_factory=list)
    level: Level = Level.GREEN
    what: str = ""

    @property
    def text(self) -> str:
        """The query's name, if known, and the group."""
        return query_text(self.group, self.name)


def readers(inputs: HealthInputs) -> Check:
    """Check whether a reader falls behind or has stopped."""
    found = inputs.found
    groups = _standings(inputs)
    for group in groups:
        _judge(group, inputs)
    if found.damaged_readers:
        what = f"{pluralize(found.damaged_readers, 'file')} of readers can't be read"
        return Check("readers", Level.AMBER, what, inputs.command("readers show"))
    bad = sorted((g for g in groups if g.level is not Level.GREEN), key=lambda g: -g.lag)
    if bad:
        what = bad[0].what + (f"; {len(bad) - 1} more readers" if len(bad) > 1 else "")
        return Check("readers", Level.AMBER, what, _reader_command(bad[0], inputs))
    if not groups:
        return Check("readers", Level.GREEN, "no reader is registered")
    last = max(groups, key=lambda group: group.lag)
    if not last.lag:
        what = f"{pluralize(len(groups), 'reader')}, none is behind"
        gone = [group.text for group in groups if not group.keys]
        if gone:
            what += f"; the partitions of {count_with_names(gone, 'reader')} were deleted"
        return Check("readers", Level.GREEN, what)
    more = f"; {len(groups) - 1} more" if len(groups) > 1 else ""
    return Check("readers", Level.GREEN, last.what + more)


def _reader_command(standing: Standing, inputs: HealthInputs) -> str:
    """Return the command that shows details, or that previews a reset of an invalid position."""
    which = ("--group", standing.group)
    if standing.kind == GROUP and (standing.ahead or standing.lost):
        to = "--to-latest" if standing.ahead else "--to-earliest"
        return inputs.command("readers reset", *which, "--all-topics", to, "--dry-run")
    return inputs.command("readers show", *which)


def _standings(inputs: HealthInputs) -> list[Standing]:
    """Return the standings of the groups that have not expired, by name."""
    found, trail = inputs.found, inputs.found.detail.trail
    spans = {
        TopicPartition(one.topic, one.partition): (one.log_start_offset, one.log_end_offset)
        for one in found.partitions
    }
    groups: dict[str, Standing] = {}
    for one in found.readers:
        if one.expired:
            continue
        group = groups.setdefault(one.group, Standing(one.group, one.kind, one.name))
        key = TopicPartition(one.topic, one.partition)
        group.time_ms = max(group.time_ms, one.time_ms)
        if one.lag is None or key not in spans:
            continue
        start, end = spans[key]
        group.keys.append(key)
        group.lag += one.lag
        if one.offset > end:
            group.ahead.append(key)
        elif one.offset < start:
            group.lost.append(key)
        elif one.lag:
            written_ms = trail.written_ms(key, one.offset) or trail.since_ms
            if written_ms is not None:
                group.unread_ms = min(written_ms, group.unread_ms or written_ms)
    return [groups[name] for name in sorted(groups)]


def _judge(group: Standing, inputs: HealthInputs) -> None:
    now_ms, limits = inputs.now_ms, inputs.limits
    pace = inputs.found.detail.paces.get(group.group)
    silent_ms = now_ms - group.time_ms
    unread_ms = 0 if group.unread_ms is None else now_ms - group.unread_ms
    behind = f"{group.text} is {records_text(group.lag)} behind"
    behind += f" ({duration_text(unread_ms)})" if unread_ms >= 1000 else ""
    if group.ahead:
        group.level = Level.AMBER
        group.what = f"{group.text} is past the end of {group.ahead[0]}: was the log restored?"
    elif group.lost and silent_ms <= limits.ended_ms:
        group.level = Level.AMBER
        lost = group.lost[0]
        group.what = f"{group.text} is before the log start of {lost}: unread records were deleted"
    elif not group.lag:
        group.what = f"{group.text} has read everything"
    elif pace is None:
        group.what = f"{behind}, its last commit {duration_text(silent_ms)} ago"
    elif _has_stopped(pace, now_ms, limits) and unread_ms > limits.silence_ms:
        group.level = Level.AMBER
        group.what = f"{behind} and has committed nothing for {duration_text(silent_ms)}"
    elif _is_silent(pace, now_ms, limits):
        group.what = f"{behind}, and seems to have ended {duration_text(silent_ms)} ago"
    else:
        speeds = _speeds(group, pace, inputs)
        group.what = behind + ("" if speeds is None else _trend(group.lag, *speeds))
        if speeds is not None and unread_ms > limits.silence_ms:
            read, come = speeds
            group.level = Level.AMBER if come > _SLOWER * read else Level.GREEN


def _speeds(
    standing: Standing, pace: CommitRate, inputs: HealthInputs
) -> tuple[float, float] | None:
    """Return the recent (records read per ms, records appended per ms), if known."""
    found, trail = pace.speed(), inputs.found.detail.trail
    if found is None or trail.since_ms is None:
        return None
    read, over_ms = found
    over_ms = min(max(over_ms, MINUTE_MS), inputs.now_ms - trail.since_ms)
    if over_ms <= 0:
        return None
    return read, trail.records_since(standing.keys, inputs.now_ms - over_ms) / over_ms


def _trend(lag: int, read: float, come: float) -> str:
    """Describe whether the reader catches up, and when."""
    if come > _SLOWER * read:
        return f" and falls behind: {_rate(come)} come, it reads {_rate(read)}"
    if read > _SLOWER * come:
        left_ms = lag / (read - come)
        is_far = left_ms > _FAR_MS
        when = f"more than {duration_text(_FAR_MS)}" if is_far else duration_text(left_ms)
        return f", reads {_rate(read)} where {_rate(come)} come, and has caught up in {when}"
    return f", and stays so: it reads what comes, {_rate(read)}"


def _rate(speed: float) -> str:
    """Format a speed in records per ms."""
    a_second = speed * 1000
    if 0 < a_second < 0.1:
        return f"{a_second * 60:,.1f}/min"
    return f"{a_second:,.0f}/s" if a_second >= 10 else f"{a_second:,.1f}/s"


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
        (one, paces[one.writer])
        for one in sorted(found.writers, key=lambda one: one.writer)
        if one.writer in paces and _has_stopped(paces[one.writer], now_ms, inputs.limits)
    ]
    if stopped:
        writer, pace = max(stopped, key=lambda one: one[1].last_ms)
        more = f"; {len(stopped) - 1} more stopped" if len(stopped) > 1 else ""
        what = (
            f"writer {writer.text} has committed nothing for "
            f"{duration_text(now_ms - pace.last_ms)}, where its longest pause had been "
            f"{duration_text(pace.longest_ms)}{more}"
        )
        help_ = inputs.command("commits", "--writer", writer.writer, "--last", "5")
        return Check("writers", Level.AMBER, what, help_)
    return Check("writers", Level.GREEN, _last_commits(inputs, found.last_commit_ms))


def _last_commits(inputs: HealthInputs, last_ms: int) -> str:
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


# --- both ----------------------------------------------------------------------------------------


def _is_silent(pace: CommitRate, now_ms: int, limits: Limits) -> bool:
    """Return True if the silence exceeds `silence_ms` and three times the longest earlier pause."""
    return now_ms - pace.last_ms > max(limits.silence_ms, _PAUSES * pace.longest_ms)


def _has_stopped(pace: CommitRate, now_ms: int, limits: Limits) -> bool:
    """Return True if a reader or writer is silent and has probably failed, not ended."""
    worked_ms = pace.last_ms - pace.since_ms
    silence_ms = now_ms - pace.last_ms
    return _is_silent(pace, now_ms, limits) and silence_ms <= min(limits.ended_ms, worked_ms)
