"""`sparklog readers`: who reads a log how far, and resets: kafka-consumer-groups, on a log."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import click

from sparklog.cli.arrow_tables import as_rows, only, show
from sparklog.cli.exit_codes import EXIT_FAILED, EXIT_OK
from sparklog.cli.kafka_tools import KafkaToolGroup
from sparklog.cli.open_log import to_read
from sparklog.cli.output import print_json
from sparklog.cli.reader_resets import reset
from sparklog.cli.storage import Reach, reach_options
from sparklog.cli.terminal import one_row
from sparklog.errors import SparklogError
from sparklog.log.log import Log, home_of
from sparklog.storage.groups import GROUP
from sparklog.tools.reader_groups import (
    STATES,
    TYPES,
    ReaderGroup,
    describe_groups,
    parse_topics,
)

_json = click.option("--json", "as_json", is_flag=True, help="One JSON document.")
_groups = click.option("--group", "groups", multiple=True, help="A group; again for another.")
_all_groups = click.option("--all-groups", is_flag=True, help="All groups.")
_NONE: Final = "-"
_UNKNOWN: Final = "Error: This server does not host this topic-partition."


class _Readers(KafkaToolGroup):
    """The flag --delete was `--delete GROUP` here before it was Kafka's, which has --group."""

    def is_action(self, args: Sequence[str], at: int) -> bool:
        """Tell whether an argument says what is to be done."""
        if not super().is_action(args, at):
            return False
        if args[at] != "--delete" or any(a.startswith(("--group", "--all-groups")) for a in args):
            return True
        return at + 1 == len(args) or args[at + 1].startswith("-")


@click.group(
    cls=_Readers,
    actions={
        "--list": "list", "--describe": "describe", "--reset-offsets": "reset",
        "--delete": "delete", "--delete-offsets": "delete-offsets",
    },
    default="show",
)  # fmt: skip
def readers() -> None:
    """Who reads a log how far: queries, groups; resets (kafka-consumer-groups).

    `sparklog readers PATH` is `sparklog readers show PATH`.
    """


@readers.command("show")
@click.argument("path")
@click.option("--topic", help="Only this one.")
@click.option("--group", help="Only this one.")
@click.option("--delete", metavar="GROUP", help="Forget a group, so that nothing waits for it.")
@reach_options
@_json
def show_readers(
    path: str, topic: str | None, group: str | None, delete: str | None, reach: Reach, as_json: bool
) -> int:
    """Show how far streaming queries and other registered readers of the log at PATH are.

    The lag is what lies between a reader and the high watermark.
    """
    with to_read(path, reach, archives=False) as log:
        if delete is not None:
            if topic is not None or group is not None:
                raise click.UsageError("--delete goes alone")
            known = log.delete_reader(delete)
            if as_json:
                print_json({"deleted": [delete] if known else []})
            else:
                said = "forgotten" if known else "is no reader of this log"
                click.echo(f"group {delete}: {said}", err=not known)
            return EXIT_OK if known else EXIT_FAILED
        table = only(log.readers(), topic=topic, group=group)
    if as_json:
        print_json(as_rows(table))
        return EXIT_OK
    if not table.num_rows:
        click.echo("no reader is registered" + (" there" if topic or group else ""))
        return EXIT_OK
    named = ["query"] if table["query"].null_count < table.num_rows else []
    show(table, [*named, "group", "kind", "topic", "partition", "offset", "log_start",
                 "high_watermark", "lag", "time", "expired"])  # fmt: skip
    return EXIT_OK


# --- list, describe ----------------------------------------------------------------------------


@readers.command("list")
@click.argument("path")
@click.option(
    "--state", is_flag=False, flag_value="", metavar="[S1,S2]",
    help=f"Show states, or only groups in these: {', '.join(STATES)}.",
)  # fmt: skip
@click.option(
    "--type", "kind", is_flag=False, flag_value="", metavar="[T1,T2]",
    help=f"Show types, or only groups of these: {', '.join(TYPES)}.",
)  # fmt: skip
@reach_options
@_json
def list_groups(path: str, state: str | None, kind: str | None, reach: Reach, as_json: bool) -> int:
    """Print the names of the groups of the log at PATH."""
    states, kinds = _wanted(state, STATES, "--state"), _wanted(kind, TYPES, "--type")
    with to_read(path, reach, archives=False) as log:
        found = [
            each for each in describe_groups(log).values()
            if (not states or each.state in states) and (not kinds or each.kind in kinds)
        ]  # fmt: skip
    if as_json:
        print_json([{"group": g.group, "type": g.kind, "state": g.state} for g in found])
        return EXIT_OK
    columns: dict[str, Callable[[ReaderGroup], str]] = {"GROUP": lambda g: g.group}
    if kind is not None:
        columns["TYPE"] = lambda g: g.kind
    if state is not None:
        columns["STATE"] = lambda g: g.state
    rows = [[of(group) for of in columns.values()] for group in found]
    if len(columns) == 1:
        for row in rows:
            click.echo(one_row(row[0]))
        return EXIT_OK
    widths = [max([15, *(len(g.group) for g in found)]) + 10, 20, 20][: len(columns)]
    for row in [list(columns), *rows]:
        click.echo(_line(row, widths))
    return EXIT_OK


def _wanted(text: str | None, known: Sequence[str], option: str) -> set[str]:
    """Return the states or types that are named, in any case. Raises click.BadParameter."""
    by_name = {name.lower(): name for name in known}
    named = [name.strip().lower() for name in (text or "").split(",") if name.strip()]
    for name in named:
        if name not in by_name:
            raise click.BadParameter(
                f"{name}: want some of {', '.join(known)}", param_hint=f"'{option}'"
            )
    return {by_name[name] for name in named}


@readers.command("describe")
@click.argument("path")
@_groups
@_all_groups
@click.option("--offsets", is_flag=True, help="How far they are: so by default.")
@click.option("--members", is_flag=True, help="Who is in them.")
@click.option("--state", is_flag=True, help="Their state, and who coordinates them.")
@click.option("--verbose", is_flag=True, help="Also leader epochs, and members' partitions.")
@reach_options
@_json
def describe(
    path: str,
    groups: Sequence[str],
    all_groups: bool,
    offsets: bool,
    members: bool,
    state: bool,
    verbose: bool,
    reach: Reach,
    as_json: bool,
) -> int:
    """Show groups as kafka-consumer-groups --describe does; all where none is named.

    Members are those of an endpoint that is at work (serve --kafka), as of a second ago.
    """
    if offsets + members + state > 1:
        raise click.UsageError("give at most one of --offsets, --members, --state")
    _check_one_scope(groups, all_groups)
    with to_read(path, reach, archives=False) as log:
        found = describe_groups(log, groups or None)
        holder = home_of(log).endpoint_lease({}).holder() if state else {}
    missing = [name for name in groups if name not in found]
    if as_json:
        print_json([group.to_dict() for group in found.values()])
    else:
        for group in found.values():
            if group.state == "Empty":
                click.echo(f"\nConsumer group '{group.group}' has no active members.", err=True)
            if members:
                _print_members(group, verbose=verbose)
            elif state:
                _print_state(group, holder)
            else:
                _print_offsets(group, verbose=verbose)
    for name in missing:
        click.echo(f"\nError: Consumer group '{name}' does not exist.", err=True)
    return EXIT_FAILED if missing else EXIT_OK


def _print_offsets(group: ReaderGroup, *, verbose: bool) -> None:
    if not group.offsets:
        return
    epoch = ["LEADER-EPOCH"] * verbose
    rows = [
        ["GROUP", "TOPIC", "PARTITION", *epoch, "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG",
         "CONSUMER-ID", "HOST", "CLIENT-ID"],
    ]  # fmt: skip
    for at in group.offsets:
        who = [_NONE] * 3 if at.member is None else [
            at.member.member_id, at.member.host, at.member.client_id,
        ]  # fmt: skip
        numbers = [at.leader_epoch] * verbose + [at.offset, at.end, at.lag]
        rows.append([group.group, at.topic, str(at.partition), *map(_text, numbers), *who])
    places = {0, 1, len(rows[0]) - 3, len(rows[0]) - 2}
    widths = [
        max([15, *(len(row[at]) for row in rows[1:])]) if at in places else 10 if at == 2 else 15
        for at in range(len(rows[0]) - 1)
    ]
    print_rows(rows, widths)


def _print_members(group: ReaderGroup, *, verbose: bool) -> None:
    instance = any(member.instance_id for member in group.members)
    rows = [["GROUP", "CONSUMER-ID", *["GROUP-INSTANCE-ID"] * instance, "HOST", "CLIENT-ID",
             "#PARTITIONS", *["CURRENT-ASSIGNMENT"] * verbose]]  # fmt: skip
    for each in group.members:
        assigned = ";".join(
            f"{topic}:{','.join(map(str, sorted(by)))}"
            for topic, by in sorted(each.assigned.items())
        )
        rows.append([
            group.group, each.member_id, *[each.instance_id] * instance, each.host, each.client_id,
            str(each.partition_count), *[assigned or _NONE] * verbose,
        ])  # fmt: skip
    widths = [max([15, *(len(row[at]) for row in rows)]) for at in range(len(rows[0]))]
    print_rows(rows, widths)


def _print_state(group: ReaderGroup, holder: Mapping[str, object]) -> None:
    endpoint = f"{holder['endpoint']}  ({holder.get('node_id')})" if "endpoint" in holder else _NONE
    rows = [
        ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"],
        [group.group, endpoint, group.assignor or _NONE, group.state, str(len(group.members))],
    ]
    print_rows(rows, [max(15, len(group.group)), max(25, len(endpoint)), 20, 20])


def print_rows(rows: Sequence[Sequence[str]], widths: Sequence[int]) -> None:
    """Print rows as Kafka's tools do: an empty line, and columns as wide as said."""
    click.echo("\n" + "\n".join(_line(row, widths) for row in rows))


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = zip(map(one_row, row), [*widths, 0], strict=False)
    return " ".join(text.ljust(width) for text, width in cells)


def _text(value: object) -> str:
    return _NONE if value is None else str(value)


# --- delete ------------------------------------------------------------------------------------


@readers.command("delete")
@click.argument("path")
@_groups
@_all_groups
@reach_options
@_json
def delete(path: str, groups: Sequence[str], all_groups: bool, reach: Reach, as_json: bool) -> int:
    """Forget groups, so that nothing waits for them; none that has members."""
    _check_one_scope(groups, all_groups, needed=True)
    done, failed = [], {}
    with to_read(path, reach, archives=False) as log:
        at_work = log.groups_at_work()
        for name in _named(log, groups):
            if name in at_work:
                failed[name] = "The group is not empty."
            elif log.delete_reader(name):
                done.append(name)
            else:
                failed[name] = "The group id does not exist."
    names = ", ".join(f"'{name}'" for name in done)
    if as_json:
        print_json({"deleted": done, "failed": failed})
    elif not failed:
        click.echo(f"Deletion of requested consumer groups ({names}) was successful.")
    else:
        click.echo("\nError: Deletion of some consumer groups failed:", err=True)
        for name, why in failed.items():
            click.echo(f"* Group '{name}' could not be deleted due to: {why}", err=True)
        if done:
            click.echo(f"\nThese consumer groups were deleted successfully: {names}")
    return EXIT_FAILED if failed else EXIT_OK


@readers.command("delete-offsets")
@click.argument("path")
@click.option("--group", required=True, help="The group.")
@click.option(
    "--topic", "topics", multiple=True, required=True, metavar="TOPIC[:0,1]",
    help="A topic, or some of its partitions; again for another.",
)  # fmt: skip
@reach_options
@_json
def delete_offsets(
    path: str, group: str, topics: Sequence[str], reach: Reach, as_json: bool
) -> int:
    """Forget how far a group is in some topics."""
    status: list[tuple[str, int | None, str]] = []
    with to_read(path, reach, archives=False) as log:
        known, infos = home_of(log).groups.positions(group), log.topics()
        if not known:
            click.echo("\nError: The group id does not exist.", err=True)
            return EXIT_FAILED
        for topic, wanted in parse_topics(topics).items():
            dirs = infos[topic].dirs if topic in infos else {}
            for p in wanted or sorted(dirs):
                done = _forget(log, group, topic, p, is_there=p in dirs)
                status.append((topic, p, done))
            if not wanted and not dirs:
                status.append((topic, None, _UNKNOWN))
    failed = any(said != "Successful" for _, _, said in status)
    if as_json:
        print_json([{"topic": t, "partition": p, "status": said} for t, p, said in status])
        return EXIT_FAILED if failed else EXIT_OK
    if failed:
        click.echo("\nError: Encountered some partition-level error, see the follow-up details.")
    else:
        click.echo(f"Request succeeded for deleting offsets from group {group}.")
    rows = [["TOPIC", "PARTITION", "STATUS"], *([t, _text(p), said] for t, p, said in status)]
    print_rows([[*r[:2], r[2].ljust(15)] for r in rows], [max(15, *(len(r[0]) for r in rows)), 10])
    return EXIT_FAILED if failed else EXIT_OK


def _forget(log: Log, group: str, topic: str, partition: int, *, is_there: bool) -> str:
    if not is_there:
        return _UNKNOWN
    try:
        log.delete_reader(group, {topic: [partition]})
    except SparklogError as error:
        return f"Error: {error}"
    return "Successful"


def _check_one_scope(groups: Sequence[str], all_groups: bool, *, needed: bool = False) -> None:
    if groups and all_groups:
        raise click.UsageError("give --group or --all-groups")
    if needed and not groups and not all_groups:
        raise click.UsageError("want --group or --all-groups")


def _named(log: Log, groups: Sequence[str]) -> list[str]:
    """Return the groups that are named; else all of plain readers and Kafka clients."""
    return list(dict.fromkeys(groups)) or [
        reader.group for reader in home_of(log).groups.readers().groups if reader.kind == GROUP
    ]


readers.add_command(reset)
