"""`sparklog readers`: shows and resets positions of readers, like kafka-consumer-groups."""

from collections.abc import Mapping, Sequence
from typing import Final

import click

from sparklog.cli.exit_codes import EXIT_FAILED, EXIT_OK
from sparklog.cli.kafka_tools import KafkaToolGroup
from sparklog.cli.open_log import to_read
from sparklog.cli.output import matching_rows, print_arrow, print_json, print_table
from sparklog.cli.reader_resets import reset
from sparklog.cli.storage import StoreAccess, access_options
from sparklog.cli.terminal import one_row
from sparklog.errors import SparklogError
from sparklog.log.log import Log, home_of
from sparklog.storage.group_members import Member
from sparklog.storage.groups import GROUP
from sparklog.tools.reader_groups import (
    STATES,
    TYPES,
    ReaderGroup,
    describe_groups,
    parse_topics,
)

_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
_groups = click.option(
    "--group", "groups", metavar="NAME", multiple=True, help="Select this group. Repeatable."
)
_all_groups = click.option(
    "--all-groups", is_flag=True, help="Select all groups. Excludes --group."
)
_MEMBER: Final = ("member", "host", "client")
_NO_MEMBER: Final = (None, None, None)
_FORGOTTEN: Final = "forgotten"
_UNKNOWN: Final = "is not in this log"


class _Readers(KafkaToolGroup):
    """The group of commands `readers`, with the flag `--delete GROUP` of earlier versions.

    Kafka's flag --delete takes no value, and requires --group.
    """

    def is_action(self, args: Sequence[str], at: int) -> bool:
        """Return True if an argument is an action."""
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
    """Show, reset and delete the offsets of readers, like kafka-consumer-groups.

    Readers of a log are streaming queries and consumer groups. A log remembers how far each of its
    registered readers has read, and retention can wait for them. `show` is an overview of all
    readers, `describe` prints groups in the format of Kafka's tool, and `list` prints only names.
    `sparklog readers PATH` is the same as `sparklog readers show PATH`.
    """


@readers.command("show")
@click.argument("path")
@click.option("--topic", metavar="NAME", help="Show only the offsets in this topic.")
@click.option(
    "--group", metavar="NAME", help="Show only the reader with this group name or query id."
)
@click.option(
    "--delete", metavar="GROUP",
    help="Delete this reader instead, as `sparklog readers delete --group` does. Excludes --topic "
    "and --group.",
)  # fmt: skip
@access_options
@_json
def show_readers(
    path: str,
    topic: str | None,
    group: str | None,
    delete: str | None,
    access: StoreAccess,
    as_json: bool,
) -> int:
    """Show the offsets of all registered readers of a log: streaming queries and consumer groups.

    The column lag shows the number of offsets between the reader and the high watermark.
    """
    with to_read(path, access, archives=False) as log:
        if delete is not None:
            if topic is not None or group is not None:
                raise click.UsageError("--delete can't be combined with --topic or --group")
            known = log.delete_reader(delete)
            if as_json:
                print_json({"deleted": [delete] if known else []})
            else:
                said = "forgotten" if known else "is no reader of this log"
                click.echo(f"group {delete}: {said}", err=not known)
            return EXIT_OK if known else EXIT_FAILED
        table = matching_rows(log.readers(), topic=topic, group=group)
    columns = ["query", "group", "kind", "topic", "partition", "offset", "log_start",
               "high_watermark", "lag", "time", "expired"]  # fmt: skip
    without = "no reader is registered" + (" that matches" if topic or group else "")
    print_arrow(table, columns, without, as_json=as_json)
    return EXIT_OK


# --- list, describe ----------------------------------------------------------------------------


@readers.command("list")
@click.argument("path")
@click.option(
    "--state", is_flag=False, flag_value="", metavar="[S1,S2]",
    help=f"Show the state of each group, and only groups in these states: {', '.join(STATES)}. The "
    "default is all states. Without a value, place the option after PATH.",
)  # fmt: skip
@click.option(
    "--type", "kind", is_flag=False, flag_value="", metavar="[T1,T2]",
    help=f"Show the type of each group, and only groups of these types: {', '.join(TYPES)}. The "
    "default is both types. Without a value, place the option after PATH.",
)  # fmt: skip
@access_options
@_json
def list_groups(
    path: str, state: str | None, kind: str | None, access: StoreAccess, as_json: bool
) -> int:
    """Print the names of all readers of a log, like kafka-consumer-groups --list."""
    states, kinds = _wanted(state, STATES, "--state"), _wanted(kind, TYPES, "--type")
    with to_read(path, access, archives=False) as log:
        found = [
            each for each in describe_groups(log).values()
            if (not states or each.state in states) and (not kinds or each.kind in kinds)
        ]  # fmt: skip
    if as_json:
        print_json([{"group": g.group, "type": g.kind, "state": g.state} for g in found])
        return EXIT_OK
    if state is None and kind is None:
        for group in found:
            click.echo(one_row(group.group))
    else:
        print_table(["group", "type", "state"], [[g.group, g.kind, g.state] for g in found])
    return EXIT_OK


def _wanted(text: str | None, known: Sequence[str], option: str) -> set[str]:
    """Return the states or types that an option names, in upper or lower case.

    Raises:
        click.BadParameter: A state or type is unknown.
    """
    by_name = {name.lower(): name for name in known}
    named = [name.strip().lower() for name in (text or "").split(",") if name.strip()]
    for name in named:
        if name not in by_name:
            raise click.BadParameter(
                f"{name} is unknown; the known values are {', '.join(known)}",
                param_hint=f"'{option}'",
            )
    return {by_name[name] for name in named}


@readers.command("describe")
@click.argument("path")
@_groups
@_all_groups
@click.option("--offsets", is_flag=True, help="Show offsets and lag. This is the default.")
@click.option(
    "--members", is_flag=True, help="Show the members instead. Excludes --offsets and --state."
)
@click.option(
    "--state", is_flag=True,
    help="Show the state, the coordinating endpoint and the number of members instead. Excludes "
    "--offsets and --members.",
)  # fmt: skip
@click.option(
    "--verbose", is_flag=True,
    help="Show the leader epochs of offsets, and the partitions of members, as well.",
)  # fmt: skip
@access_options
@_json
def describe(
    path: str,
    groups: Sequence[str],
    all_groups: bool,
    offsets: bool,
    members: bool,
    state: bool,
    verbose: bool,
    access: StoreAccess,
    as_json: bool,
) -> int:
    """Show the offsets, the members or the state of groups, like kafka-consumer-groups --describe.

    Without --group all groups are shown. Members are the Kafka clients that are connected to a
    running endpoint (`sparklog serve --kafka`). The exit code is 1 if a group does not exist.
    """
    if offsets + members + state > 1:
        raise click.UsageError(
            "--offsets, --members and --state exclude each other: use a single option"
        )
    _check_one_scope(groups, all_groups)
    with to_read(path, access, archives=False) as log:
        found = describe_groups(log, groups or None)
        holder = home_of(log).endpoint_lease({}).holder() if state else {}
    missing = [name for name in groups if name not in found]
    if as_json:
        print_json([group.to_dict() for group in found.values()])
    else:
        for group in found.values():
            if group.state == "Empty":
                click.echo(f"group {one_row(group.group)} has no active members", err=True)
            if members:
                _print_members(group, verbose=verbose)
            elif state:
                _print_state(group, holder)
            else:
                _print_offsets(group, verbose=verbose)
    for name in missing:
        click.echo(f"group {name} does not exist", err=True)
    return EXIT_FAILED if missing else EXIT_OK


def _print_offsets(group: ReaderGroup, *, verbose: bool) -> None:
    rows = [
        [group.group, at.topic, at.partition, *[at.leader_epoch] * verbose, at.offset, at.end,
         at.lag, *(_NO_MEMBER if at.member is None else _member(at.member))]
        for at in group.offsets
    ]  # fmt: skip
    epoch = ["leader epoch"] * verbose
    columns = ["group", "topic", "partition", *epoch, "offset", "end", "lag", *_MEMBER]
    if rows:
        print_table(columns, rows)


def _print_members(group: ReaderGroup, *, verbose: bool) -> None:
    rows = [
        [group.group, *_member(each), each.instance_id or None, each.partition_count,
         *[_assigned(each)] * verbose]
        for each in group.members
    ]  # fmt: skip
    print_table(["group", *_MEMBER, "instance", "partitions", *["assigned"] * verbose], rows)


def _member(member: Member) -> list[str]:
    return [member.member_id, member.host, member.client_id]


def _assigned(member: Member) -> str | None:
    parts = sorted(member.assigned.items())
    return ";".join(f"{topic}:{','.join(map(str, sorted(by)))}" for topic, by in parts) or None


def _print_state(group: ReaderGroup, holder: Mapping[str, object]) -> None:
    print_table(
        ["group", "endpoint", "node", "assignor", "state", "members"],
        [[group.group, holder.get("endpoint"), holder.get("node_id"), group.assignor or None,
          group.state, len(group.members)]],
    )  # fmt: skip


# --- delete ------------------------------------------------------------------------------------


@readers.command("delete")
@click.argument("path")
@_groups
@_all_groups
@access_options
@_json
def delete(
    path: str, groups: Sequence[str], all_groups: bool, access: StoreAccess, as_json: bool
) -> int:
    """Delete consumer groups or streaming queries, so that retention no longer waits for them.

    Either --group or --all-groups is required; --all-groups selects no streaming queries. Groups
    with active members are not deleted, and the exit code is then 1.
    """
    _check_one_scope(groups, all_groups, needed=True)
    done, failed = [], {}
    with to_read(path, access, archives=False) as log:
        at_work = log.groups_at_work()
        # delete_reader checks this as well, but its error would end the command before the others.
        for name in _named(log, groups):
            if name in at_work:
                failed[name] = "has members"
            elif log.delete_reader(name):
                done.append(name)
            else:
                failed[name] = "does not exist"
    if as_json:
        print_json({"deleted": done, "failed": failed})
    else:
        for name in done:
            click.echo(f"group {one_row(name)}: forgotten")
        for name, why in failed.items():
            click.echo(f"group {one_row(name)}: {why}", err=True)
    return EXIT_FAILED if failed else EXIT_OK


@readers.command("delete-offsets")
@click.argument("path")
@click.option(
    "--group", metavar="NAME", required=True, help="Delete the offsets of this group."
)
@click.option(
    "--topic", "topics", multiple=True, required=True, metavar="TOPIC[:0,1]",
    help="Delete the offsets in this topic, or only in these partitions. Repeatable.",
)  # fmt: skip
@access_options
@_json
def delete_offsets(
    path: str, group: str, topics: Sequence[str], access: StoreAccess, as_json: bool
) -> int:
    """Delete the committed offsets of a group in some topics or partitions.

    The exit code is 1 if offsets could not be deleted.
    """
    status: list[tuple[str, int | None, str]] = []
    with to_read(path, access, archives=False) as log:
        known, infos = home_of(log).groups.positions(group), log.topics()
        if not known:
            click.echo(f"group {group} does not exist", err=True)
            return EXIT_FAILED
        for topic, wanted in parse_topics(topics).items():
            dirs = infos[topic].dirs if topic in infos else {}
            for p in wanted or sorted(dirs):
                done = _forget(log, group, topic, p, is_there=p in dirs)
                status.append((topic, p, done))
            if not wanted and not dirs:
                status.append((topic, None, _UNKNOWN))
    failed = any(said != _FORGOTTEN for _, _, said in status)
    if as_json:
        print_json([{"topic": t, "partition": p, "status": said} for t, p, said in status])
    else:
        print_table(["topic", "partition", "status"], status)
    return EXIT_FAILED if failed else EXIT_OK


def _forget(log: Log, group: str, topic: str, partition: int, *, is_there: bool) -> str:
    if not is_there:
        return _UNKNOWN
    try:
        log.delete_reader(group, {topic: [partition]})
    except SparklogError as error:
        return str(error)
    return _FORGOTTEN


def _check_one_scope(groups: Sequence[str], all_groups: bool, *, needed: bool = False) -> None:
    if groups and all_groups:
        raise click.UsageError("--group and --all-groups exclude each other")
    if needed and not groups and not all_groups:
        raise click.UsageError("pass either --group or --all-groups")


def _named(log: Log, groups: Sequence[str]) -> list[str]:
    """Return the named groups, or all groups of plain readers and Kafka clients."""
    return list(dict.fromkeys(groups)) or [
        reader.group for reader in home_of(log).groups.readers().groups if reader.kind == GROUP
    ]


readers.add_command(reset)
