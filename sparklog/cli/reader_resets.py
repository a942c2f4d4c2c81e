"""`sparklog readers reset`: resets offsets, like kafka-consumer-groups --reset-offsets."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import click

from sparklog.cli.exit_codes import EXIT_FAILED, EXIT_OK
from sparklog.cli.kafka_tools import KafkaTool
from sparklog.cli.open_log import to_read
from sparklog.cli.output import print_json, print_table
from sparklog.cli.parsing import parse_when, read_text
from sparklog.cli.storage import StoreAccess, access_options
from sparklog.cli.terminal import one_row
from sparklog.errors import GroupNotEmptyError, SparklogError
from sparklog.log.log import Log, home_of
from sparklog.log.reader_reset import Place, ResetPlan, Target
from sparklog.storage.groups import GROUP
from sparklog.storage.query_origin import query_text
from sparklog.tools.reader_groups import parse_duration, parse_plans, parse_topics, plans_csv

_NOTHING_DONE: Final = (
    "Nothing was changed: these are the new offsets. --execute applies them; --dry-run omits this "
    "line."
)
_PLACES: Final[dict[str, Place]] = {
    "to_earliest": "earliest", "to_latest": "latest", "to_current": "current",
}  # fmt: skip
Plan = Callable[[Log, str], ResetPlan | None]
"""Plans the reset of a group, or None if there is no plan for it."""

_SCENARIOS: Final = {
    "to_earliest": click.option(
        "--to-earliest", is_flag=True, help="Reset to the log start offset."
    ),
    "to_latest": click.option(
        "--to-latest", is_flag=True, help="Reset to the end (the high watermark)."
    ),
    "to_offset": click.option(
        "--to-offset", type=int, metavar="OFFSET",
        help="Reset to this offset in each partition. An offset outside the log is replaced by the "
        "log start or the end.",
    ),
    "to_datetime": click.option(
        "--to-datetime", metavar="TIME",
        help="Reset to the first record at or after this time, in ISO form (UTC unless it has a "
        "zone) or in ms since the epoch.",
    ),
    "by_duration": click.option(
        "--by-duration", metavar="PnDTnHnMnS",
        help="Reset to the first record that is at most this old: PT1H is an hour, P2D two days.",
    ),
    "shift_by": click.option(
        "--shift-by", type=int, metavar="N",
        help="Move the committed offset forward by this many offsets, or back if N is negative.",
    ),
    "to_current": click.option(
        "--to-current", is_flag=True,
        help="Keep the committed offset, or use the end in partitions without a committed offset.",
    ),
    "from_file": click.option(
        "--from-file", type=click.File("r", encoding="utf-8"), metavar="CSV",
        help="Reset to the offsets in a CSV file that --export printed. Excludes --topic and "
        '--all-topics. "-" is standard input.',
    ),
}  # fmt: skip


def _scenarios(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options for the new offset (--to-earliest, ...) to a command.

    The command gets the chosen option as the argument `scenario`: {name: value}.
    """

    @functools.wraps(command)
    def run(*args: Any, **given: Any) -> int:
        taken = {name: given.pop(name) for name in _SCENARIOS}
        named = {n: value for n, value in taken.items() if value is not None and value is not False}
        if len(named) != 1:
            options = ", ".join(f"--{name.replace('_', '-')}" for name in _SCENARIOS)
            raise click.UsageError(f"exactly one of these options is required: {options}")
        return command(*args, scenario=named, **given)

    decorated: Callable[..., int] = run
    for option in reversed(_SCENARIOS.values()):
        decorated = option(decorated)
    return decorated


@click.command("reset", cls=KafkaTool)
@click.argument("path")
@click.option(
    "--group", "groups", metavar="NAME", multiple=True, help="Reset this group. Repeatable."
)
@click.option(
    "--all-groups", is_flag=True,
    help="Reset all groups except streaming queries. Either this option or --group is required.",
)  # fmt: skip
@click.option(
    "--topic", "topics", multiple=True, metavar="TOPIC[:0,1]",
    help="Reset the offsets of this topic, or only of these partitions. Repeatable.",
)  # fmt: skip
@click.option(
    "--all-topics", is_flag=True,
    help="Reset all topics for which the group has committed offsets. Either this option or "
    "--topic is required, except with --from-file.",
)  # fmt: skip
@_scenarios
@click.option("--execute", is_flag=True, help="Commit the new offsets. Excludes --dry-run.")
@click.option(
    "--dry-run", is_flag=True,
    help="Show the new offsets, and commit none. This is the default.",
)  # fmt: skip
@click.option("--export", is_flag=True, help="Print the new offsets as CSV, for --from-file.")
@access_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def reset(
    path: str,
    groups: Sequence[str],
    all_groups: bool,
    topics: Sequence[str],
    all_topics: bool,
    scenario: Mapping[str, Any],
    execute: bool,
    dry_run: bool,
    export: bool,
    access: StoreAccess,
    as_json: bool,
) -> int:
    """Set the committed offsets of consumer groups, like kafka-consumer-groups --reset-offsets.

    Without --execute the command only shows the new offsets. Exactly one option for the new offset
    is required: --to-earliest, --to-latest, --to-offset, --to-datetime, --by-duration, --shift-by,
    --to-current or --from-file. A group that does not exist is created. A group with active members
    is not changed, and the exit code is then 1. Reset a streaming query with `sparklog checkpoint
    reset` instead.
    """
    if execute and dry_run:
        raise click.UsageError("choose --execute or --dry-run: the options exclude each other")
    if bool(groups) == all_groups:
        raise click.UsageError("pass either --group or --all-groups")
    plan = _plan_of(scenario, topics, all_topics, groups)
    with to_read(path, access, archives=False) as log:
        wanted = list(dict.fromkeys(groups)) if groups else _all(log)
        plans = _planned(log, wanted, plan)
        if execute:
            plans = list(filter(_is_executed, plans))
    for each in plans:
        for warning in each.warnings:
            click.echo(f"Warn: {warning}", err=True)
    _print(plans, export=export, with_group=len(groups) != 1, as_json=as_json, executed=execute)
    if not execute and not dry_run:
        click.echo(_NOTHING_DONE, err=True)
    return EXIT_OK if len(plans) == len(wanted) else EXIT_FAILED


def _planned(log: Log, groups: Sequence[str], plan: Plan) -> list[ResetPlan]:
    """Return the plans of all groups before any is executed, so that an error causes no change.

    Groups that have members, or are missing in the file, are reported and left out.

    Raises:
        InvalidRequestError: The reset is impossible for a group.
    """
    plans = []
    for group in groups:
        try:
            found = plan(log, group)
        except GroupNotEmptyError as error:
            click.echo(f"{error}", err=True)
            continue
        if found is None:
            click.echo(f"the file has no offsets for group {group}", err=True)
        else:
            plans.append(found)
    return plans


def _is_executed(plan: ResetPlan) -> bool:
    """Execute a plan and return True, or report the error and return False."""
    try:
        plan.execute()
    except SparklogError as error:
        click.echo(f"{error}", err=True)
        return False
    return True


def _plan_of(
    scenario: Mapping[str, Any], topics: Sequence[str], all_topics: bool, groups: Sequence[str]
) -> Plan:
    """Return a function that plans the reset of a group.

    Raises:
        click.UsageError: Options contradict each other, or a required option is missing.
        InvalidRequestError: The value of an option is invalid.
    """
    ((name, value),) = scenario.items()
    if name == "from_file":
        if topics or all_topics:
            raise click.UsageError("--from-file names the topics itself, so --topic is not allowed")
        known = parse_plans(read_text(value, "--from-file"), groups)
        return lambda log, group: (
            log.reset_reader(group, offsets=known[group]) if group in known else None
        )
    if bool(topics) == all_topics:
        raise click.UsageError("One of the reset scopes should be defined: --all-topics, --topic.")
    wanted = None if all_topics else parse_topics(topics)
    if name == "shift_by":
        return lambda log, group: log.reset_reader(group, None, wanted, shift_by=value)
    to: Target
    if name == "to_datetime":
        to = parse_when(value, "--to-datetime")
    elif name == "by_duration":
        to = parse_duration(value)
    elif name == "to_offset":
        to = value
    else:
        to = _PLACES[name]
    return lambda log, group: log.reset_reader(group, to, wanted)


def _all(log: Log) -> list[str]:
    found = []
    for reader in home_of(log).groups.readers().groups:
        if reader.kind == GROUP:
            found.append(reader.group)
        else:
            query = one_row(query_text(reader.group, reader.name))
            click.echo(
                f"{query} is a streaming query, which continues from its checkpoint: it is "
                "skipped (`sparklog checkpoint reset CHECKPOINT --to BATCH`)", err=True,
            )  # fmt: skip
    return found


def _print(
    plans: Sequence[ResetPlan], *, export: bool, with_group: bool, as_json: bool, executed: bool
) -> None:
    if as_json:
        offsets = [{"group": plan.group, **asdict(each)} for plan in plans for each in plan.offsets]
        print_json({"executed": executed, "offsets": offsets})
        return
    if export:
        click.echo(plans_csv(plans, with_group=with_group), nl=False)
        return
    rows = [
        [plan.group, each.topic, each.partition, each.before, each.offset]
        for plan in plans for each in plan.offsets
    ]  # fmt: skip
    if rows:
        print_table(["group", "topic", "partition", "before", "offset"], rows)
