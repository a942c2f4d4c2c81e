"""Checks of the background work: which service leads, and which work is overdue."""

from collections.abc import Iterator

from sparklog.pluralize import pluralize
from sparklog.quantities import SECOND_MS, size_text
from sparklog.service.health.formatting import ago_text, count_with_names, duration_text, process
from sparklog.service.health.inputs import HealthInputs, Leader
from sparklog.service.health.model import Check, Level


def service(inputs: HealthInputs) -> Check:
    """Check that a service leads, or that no work is due."""
    leader, now_ms = inputs.leader, inputs.now_ms
    if inputs.service_status is not None and inputs.service_status.dead:
        what = f"threads of the service have died: {', '.join(inputs.service_status.dead)}"
        return Check("service", Level.RED, what, None)
    if leader is None or leader.alive is False:
        return _without(inputs)
    who = f"process {leader.pid} on {leader.host}"
    since = "" if leader.since_ms is None else f" for {duration_text(now_ms - leader.since_ms)}"
    silent_ms = 0 if leader.beat_ms is None else now_ms - leader.beat_ms
    if silent_ms > inputs.limits.beat_ms:
        what = f"the service, {who}, gives no sign of life for {duration_text(silent_ms)}"
        return Check("service", Level.AMBER, what, _look_at(inputs, leader))
    return Check("service", Level.GREEN, f"led by {who}{since}")


def retention(inputs: HealthInputs) -> Check:
    """Warn if the first retention in a topic is about to delete most of its records."""
    first = inputs.found.first_deletions
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
    command = inputs.command("configs alter", "--topic", topic, *keep)
    return Check("retention", Level.AMBER, what, command)


def _look_at(inputs: HealthInputs, leader: Leader) -> str:
    if leader.alive is None:  # in a bucket a dead service looks like a blocked service
        return inputs.command("serve")
    return process(leader.pid)


def _without(inputs: HealthInputs) -> Check:
    due = list(_due(inputs))
    last = inputs.leader
    none = "no service runs"
    if last is not None and last.since_ms is not None:
        began = ago_text(last.since_ms, inputs.now_ms)
        none += f" (the last one began {began} on {last.host})"
    if not due:
        return Check("service", Level.GREEN, f"{none}, and no work is due")
    what = f"{none}, though {', '.join(due)}"
    return Check("service", Level.AMBER, what, inputs.command("serve"))


def _due(inputs: HealthInputs) -> Iterator[str]:
    """Yield descriptions of overdue work."""
    found = inputs.found
    late = sum(one.due_bytes for one in found.partitions)
    if late:
        yield f"retention should have deleted {size_text(late)}"
    waiting = sum(one.copy_lag_bytes for one in found.tiers)
    if waiting:
        yield f"{size_text(waiting)} wait for a copy"
    if inputs.dirty:
        yield f"{pluralize(len(inputs.dirty), 'partition')} should be compacted"
    merges = [one for one in found.merges if one.age_ms > inputs.limits.merge_lag_ms]
    if merges:
        oldest = max(one.age_ms for one in merges)
        size = size_text(sum(one.size_bytes for one in merges))
        yield f"{size} wait to be merged, the oldest for {duration_text(oldest)}"


def tier(inputs: HealthInputs) -> Check:
    """Check that the tier can be reached and that copies are not late."""
    if inputs.found.tier_fault is not None:
        what = f"remote segments can't be read: {inputs.found.tier_fault}"
        url = () if inputs.found.remote_url is not None else ("--remote", "URL")
        return Check("tier", Level.RED, what, inputs.command("tier rebuild", *url))
    late = max(inputs.found.tiers, key=lambda one: one.copy_lag_ms, default=None)
    waiting = sum(one.copy_lag_bytes for one in inputs.found.tiers)
    held = sum(one.remote_bytes for one in inputs.found.tiers)
    what = f"all closed segments have a copy, {size_text(held)} in all"
    is_late = False
    if late is not None and waiting:
        what = f"{size_text(waiting)} wait for a copy, {late.topic} for "
        what += duration_text(late.copy_lag_ms)
        is_late = late.copy_lag_ms > inputs.limits.tier_lag_ms
    if inputs.tier_error is not None:
        what = f"{inputs.found.remote_url} can't be reached from here: {inputs.tier_error}; {what}"
        return Check("tier", Level.AMBER, what, inputs.command("tier verify"))
    if is_late:
        return Check("tier", Level.AMBER, what, inputs.command("tier status"))
    return Check("tier", Level.GREEN, what)


def cleaner(inputs: HealthInputs) -> Check:
    """Check that the cleaner cleans compacted topics as fast as they become dirty."""
    count = pluralize(inputs.compacted, "compacted partition")
    status = inputs.service_status
    skipped = [] if status is None else [str(key) for key in sorted(status.uncleanable)]
    if skipped:
        what = f"{count_with_names(skipped, 'partition')} left alone after an error"
        return Check("cleaner", Level.AMBER, what, inputs.command("verify"))
    if not inputs.dirty:
        return Check("cleaner", Level.GREEN, f"{count}, none is due for cleaning")
    worst = max(inputs.dirty, key=lambda one: one.waits_ms)
    size = size_text(sum(one.bytes for one in inputs.dirty))
    just_now = worst.waits_ms < SECOND_MS
    waiting = "since just now" if just_now else f"for {duration_text(worst.waits_ms)}"
    what = (
        f"{len(inputs.dirty)} of {count} want{'s' if len(inputs.dirty) == 1 else ''} cleaning "
        f"({size}), {worst.key} {waiting}"
    )
    if worst.waits_ms > inputs.limits.cleaner_lag_ms:
        command = inputs.command("serve", "--once", "--task", "compact")
        return Check("cleaner", Level.AMBER, what, command)
    return Check("cleaner", Level.GREEN, what)


def erasures(inputs: HealthInputs) -> Check:
    """Check for erasures that began and are not complete. The log does not store their keys."""
    first, now_ms = inputs.erasures[0], inputs.now_ms
    began = ago_text(first.since_ms, now_ms)
    more = "" if len(inputs.erasures) == 1 else f"; {len(inputs.erasures) - 1} more incomplete"
    command = inputs.command("erase", "--topic", first.topic, "--key-file", "KEYS")
    if first.left:
        what = f"an erasure of topic {first.topic} that began {began} isn't complete: "
        return Check("erasures", Level.AMBER, f"{what}{first.left[0]}{more}", command)
    who = f"process {first.pid} on {first.host}"
    if inputs.is_erasing:
        return Check("erasures", Level.GREEN, f"topic {first.topic} is erased from, by {who}{more}")
    what = f"an erasure of topic {first.topic}, begun {began} by {who}, did not end"
    return Check("erasures", Level.AMBER, f"{what}{more}", command)
