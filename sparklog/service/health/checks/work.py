"""The background work: who does it, and what is late."""

from collections.abc import Iterator

from sparklog.pluralize import pluralize
from sparklog.quantities import SECOND_MS, size_text
from sparklog.service.health.checks.commands import process, sparklog
from sparklog.service.health.model import Check, Level
from sparklog.service.health.sight import Leader, Sight
from sparklog.service.health.words import ago_text, duration_text, named


def service(sight: Sight) -> Check:
    """Who leads since when; and if nobody does, is any work due?"""
    leader, now_ms = sight.leader, sight.now_ms
    if sight.own is not None and sight.own.dead:
        what = f"threads of the service have died: {', '.join(sight.own.dead)}"
        return Check("service", Level.RED, what, None)
    if leader is None or leader.alive is False:
        return _without(sight)
    who = f"process {leader.pid} on {leader.host}"
    since = "" if leader.since_ms is None else f" for {duration_text(now_ms - leader.since_ms)}"
    silent_ms = 0 if leader.beat_ms is None else now_ms - leader.beat_ms
    if silent_ms > sight.limits.beat_ms:
        what = f"the service, {who}, gives no sign of life for {duration_text(silent_ms)}"
        return Check("service", Level.AMBER, what, _look_at(sight, leader))
    return Check("service", Level.GREEN, f"led by {who}{since}")


def retention(sight: Sight) -> Check:
    """Is a topic about to lose most of its records, for the first time?"""
    first = sight.found.first_deletions
    topic = max(first, key=lambda name: first[name])
    due_bytes, size_bytes = first[topic]
    what = (
        f"a service's next rounds delete {size_text(due_bytes)} of {size_text(size_bytes)} "
        f"({100 * due_bytes // size_bytes}%) of topic {topic}, by its retention and for the first "
        "time"
    )
    if len(first) > 1:
        what += f"; and most of {pluralize(len(first) - 1, 'more topic')}"
    keep = ("--add-config", "retention.ms=-1,retention.bytes=-1")
    command = sparklog("configs alter", sight, "--topic", topic, *keep)
    return Check("retention", Level.AMBER, what, command)


def _look_at(sight: Sight, leader: Leader) -> str:
    if leader.alive is None:  # in a store nobody tells a dead one from one that stands still
        return sparklog("serve", sight)
    return process(leader.pid)


def _without(sight: Sight) -> Check:
    due = list(_due(sight))
    last = sight.leader
    none = "no service runs"
    if last is not None and last.since_ms is not None:
        began = ago_text(last.since_ms, sight.now_ms)
        none += f" (the last one began {began} on {last.host})"
    if not due:
        return Check("service", Level.GREEN, f"{none}, and no work is due")
    what = f"{none}, though {', '.join(due)}"
    return Check("service", Level.AMBER, what, sparklog("serve", sight))


def _due(sight: Sight) -> Iterator[str]:
    """The work that waits for a service."""
    found = sight.found
    late = sum(one.due_bytes for one in found.partitions)
    if late:
        yield f"retention should have deleted {size_text(late)}"
    waiting = sum(one.copy_lag_bytes for one in found.tiers)
    if waiting:
        yield f"{size_text(waiting)} wait for a copy"
    if sight.dirty:
        yield f"{pluralize(len(sight.dirty), 'partition')} should be compacted"
    merges = [one for one in found.merges if one.age_ms > sight.limits.merge_lag_ms]
    if merges:
        oldest = max(one.age_ms for one in merges)
        size = size_text(sum(one.size_bytes for one in merges))
        yield f"{size} wait to be merged, the oldest for {duration_text(oldest)}"


def tier(sight: Sight) -> Check:
    """Does it answer, and do copies keep up?"""
    if sight.found.tier_fault is not None:
        what = f"remote segments can't be read: {sight.found.tier_fault}"
        url = () if sight.found.remote_url is not None else ("--remote", "URL")
        return Check("tier", Level.RED, what, sparklog("tier rebuild", sight, *url))
    late = max(sight.found.tiers, key=lambda one: one.copy_lag_ms, default=None)
    waiting = sum(one.copy_lag_bytes for one in sight.found.tiers)
    held = sum(one.remote_bytes for one in sight.found.tiers)
    what = f"all closed segments have a copy, {size_text(held)} in all"
    is_late = False
    if late is not None and waiting:
        what = f"{size_text(waiting)} wait for a copy, {late.topic} for "
        what += duration_text(late.copy_lag_ms)
        is_late = late.copy_lag_ms > sight.limits.tier_lag_ms
    if sight.tier_error is not None:
        what = f"{sight.found.remote_url} can't be reached from here: {sight.tier_error}; {what}"
        return Check("tier", Level.AMBER, what, sparklog("tier verify", sight))
    if is_late:
        return Check("tier", Level.AMBER, what, sparklog("tier status", sight))
    return Check("tier", Level.GREEN, what)


def _for(waits_ms: int) -> str:
    return f" for {duration_text(waits_ms)}" if waits_ms >= SECOND_MS else " since just now"


def cleaner(sight: Sight) -> Check:
    """Do compacted topics stay compact?"""
    count = pluralize(sight.compacted, "compacted partition")
    lost = [] if sight.own is None else [str(key) for key in sorted(sight.own.uncleanable)]
    if lost:
        what = f"{named(lost, 'partition')} left alone after an error"
        return Check("cleaner", Level.AMBER, what, sparklog("verify", sight))
    if not sight.dirty:
        return Check("cleaner", Level.GREEN, f"{count}, none wants cleaning")
    worst = max(sight.dirty, key=lambda one: one.waits_ms)
    size = size_text(sum(one.bytes for one in sight.dirty))
    what = (
        f"{len(sight.dirty)} of {count} want{'s' if len(sight.dirty) == 1 else ''} cleaning "
        f"({size}), {worst.key}{_for(worst.waits_ms)}"
    )
    if worst.waits_ms > sight.limits.cleaner_lag_ms:
        command = sparklog("serve", sight, "--once", "--task", "compact")
        return Check("cleaner", Level.AMBER, what, command)
    return Check("cleaner", Level.GREEN, what)


def erasures(sight: Sight) -> Check:
    """Is an erasure begun and not complete, and since when? Keys are known to nobody."""
    first, now_ms = sight.erasures[0], sight.now_ms
    began = ago_text(first.since_ms, now_ms)
    more = "" if len(sight.erasures) == 1 else f"; {len(sight.erasures) - 1} more aren't either"
    command = sparklog("erase", sight, "--topic", first.topic, "--key-file", "KEYS")
    if first.left:
        what = f"an erasure of topic {first.topic} that began {began} isn't complete: "
        return Check("erasures", Level.AMBER, f"{what}{first.left[0]}{more}", command)
    who = f"process {first.pid} on {first.host}"
    if sight.is_erasing:
        return Check("erasures", Level.GREEN, f"topic {first.topic} is erased from, by {who}{more}")
    what = f"an erasure of topic {first.topic}, begun {began} by {who}, did not end"
    return Check("erasures", Level.AMBER, f"{what}{more}", command)
