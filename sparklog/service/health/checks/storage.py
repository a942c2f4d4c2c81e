"""Checks of a log's storage: writable, partitions, disk."""

import os
from typing import Final

from sparklog.log.topic_names import INTERNAL
from sparklog.pluralize import pluralize
from sparklog.quantities import DAY_MS, HOUR_MS, size_text
from sparklog.service.health.disk_forecast import HORIZON_MS, DiskForecast
from sparklog.service.health.formatting import count_with_names, disk_free, duration_text, process
from sparklog.service.health.inputs import HealthInputs
from sparklog.service.health.model import Check, Level, worst

_OFFLINE: Final = "the partition is offline: "
_SMALL: Final = 20  # a small disk is amber when less than 1/20 is free


def writable(inputs: HealthInputs) -> Check:
    """Check whether the log can be written; red with the reason if not."""
    if inputs.nothing:
        help_ = disk_free(()) if inputs.is_mountable else None
        return Check("writable", Level.RED, inputs.nothing, help_)
    if inputs.kind == "archive":
        return Check("writable", Level.GREEN, "an archive, for reading only")
    if inputs.unwritable:
        what = f"it can't be written: {'; '.join(inputs.unwritable)}"
        return Check("writable", Level.RED, what, _look(inputs))
    if inputs.kind == "broker":
        return Check("writable", Level.GREEN, "a broker's log dirs, for reading only here")
    if not inputs.is_write_tried:
        return Check("writable", Level.GREEN, "its store answers; no write was tried")
    if inputs.read_only is not None:
        return Check("writable", Level.GREEN, _read_only(inputs.read_only, inputs.in_store))
    return Check("writable", Level.GREEN, "the log is writable")


def _read_only(place: str, in_store: bool) -> str:
    """Describe missing write permission. Green, because a monitoring user needs none."""
    user = "these credentials" if in_store else f"this user (uid {os.geteuid()})"
    return f"{user} may only read {place}; nothing seen that would stop its writers"


def _look(inputs: HealthInputs) -> str | None:
    if inputs.lock_holder is not None:
        return process(inputs.lock_holder)
    if inputs.ledger_fault is not None:
        return inputs.command("verify", "--repair")
    if not inputs.is_known:
        return inputs.command("verify")
    if inputs.in_store:
        return None
    directories = inputs.found.directories
    if any(one.free_bytes is None for one in directories):
        return disk_free(())  # shows all mounted disks, because this disk is not mounted
    return disk_free(one.directory for one in directories)


def partitions(inputs: HealthInputs) -> Check:
    """Check whether all partitions can be read and written."""
    found = inputs.found
    offline_names = [str(key) for key in sorted(found.offline)]
    if offline_names:
        error = found.offline[min(found.offline)]
        reason = (error.partition(_OFFLINE)[2] or error).partition(";")[0]  # without the advice
        what = f"{count_with_names(offline_names, 'partition')} offline: {reason}"
        # Without --give-up, `verify` requires all log dirs.
        is_dir_missing = any(entry.free_bytes is None for entry in found.directories)
        flags = ("--give-up", "--dry-run") if is_dir_missing else ()
        return Check("partitions", Level.RED, what, inputs.command("verify", *flags))
    if not inputs.is_known:
        return Check("partitions", Level.RED, "the partitions can't be determined",
                     inputs.command("verify"))  # fmt: skip
    unreadable = found.detail.unreadable
    if unreadable:
        names = [str(key) for key in sorted(unreadable)]
        what = f"records of {count_with_names(names, 'partition')} can't be read: "
        what += unreadable[min(unreadable)]
        return Check("partitions", Level.RED, what, inputs.command("verify"))
    if inputs.unreadable:
        what = f"reads or writes fail: {inputs.unreadable[0]}"
        return Check("partitions", Level.RED, what, inputs.command("verify"))
    if found.errors and not inputs.unwritable:
        what = f"not all of it could be read: {found.errors[0]}"
        return Check("partitions", Level.AMBER, what, inputs.command("verify"))
    count = sum(one.topic not in INTERNAL for one in found.partitions)
    return Check("partitions", Level.GREEN, f"{pluralize(count, 'partition')}, none offline")


def disk(inputs: HealthInputs) -> Check:
    """Check the disk that will be full first."""
    levels = {one: _level(one, inputs) for one in inputs.disks}
    level = worst(levels.values())
    worst_disks = [one for one in inputs.disks if levels[one] is level]
    fullest = min(worst_disks, key=lambda one: (one.full_ms or HORIZON_MS, one.free_bytes))
    where = fullest.directories[0]
    what = f"{size_text(fullest.free_bytes)} free in {where}, {_how_long(fullest)}"
    waiting = [one for one in inputs.found.awaiting_deletion if one.storage == "local"]
    if waiting:
        size = size_text(sum(one.size_bytes for one in waiting))
        what += f"; {size} more when deleted files are removed"
    help_ = disk_free([where])
    if inputs.kind == "log":
        help_ = inputs.command("serve", "--once", "--task", "retain", "--dry-run")
    return Check("disk", level, what, None if level is Level.GREEN else help_)


def _level(one: DiskForecast, inputs: HealthInputs) -> Level:
    limits = inputs.limits
    # After a large import the mean rate of a day is high although writing has stopped. So the last
    # hour's rate alone must fill the disk as soon.
    fills = one.free_bytes < limits.disk_red_ms * one.recent_rate
    if one.full_ms is not None and one.full_ms < limits.disk_red_ms and fills:
        return Level.RED
    soon = one.full_ms is not None and one.full_ms < limits.disk_amber_ms
    least = limits.disk_free_bytes
    if one.total_bytes is not None:
        least = min(least, one.total_bytes // _SMALL)
    return Level.AMBER if soon or one.free_bytes < least else Level.GREEN


def _how_long(one: DiskForecast) -> str:
    """Describe when the disk will be full, and the write rate that this follows from."""
    if not one.over_ms:
        return "at an unknown rate"
    if not one.rate:
        return "nothing was written recently"
    rate = f"{size_text(one.rate * DAY_MS)} a day (of the last {duration_text(one.over_ms)})"
    if one.full_ms is None:
        return f"enough for {duration_text(HORIZON_MS)} and more at {rate}"
    what = f"full in {duration_text(one.full_ms)} at {rate}, net of retention"
    if one.recent_rate < one.rate / 2:
        what += f"; in the last hour {size_text(one.recent_rate * HOUR_MS)} came"
    return what
