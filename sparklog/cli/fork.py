"""`sparklog fork`: creates a log with the contents of another log at a commit."""

import json
from dataclasses import asdict
from typing import Any

import click

from sparklog.cli.command import Command
from sparklog.cli.exit_codes import EXIT_OK
from sparklog.cli.open_log import check_log
from sparklog.cli.output import bytes_bar, print_json
from sparklog.cli.parsing import as_text, parse_time
from sparklog.cli.storage import StoreAccess, access_options
from sparklog.diskless.import_objects import BucketTarget, MadeLog
from sparklog.diskless.log_creation import fork as fork_in_store
from sparklog.errors import InvalidRequestError
from sparklog.log.fork_points import ForkPointRequest
from sparklog.logdir.forking.fork import Forked
from sparklog.logdir.forking.fork import fork as fork_log
from sparklog.opening import url_of
from sparklog.pluralize import pluralize
from sparklog.quantities import size_text
from sparklog.tiered.reading.options import RemoteOptions
from sparklog.tiered.target import open_store


@click.command(cls=Command)
@click.argument("path")
@click.argument("new_path")
@click.option(
    "--writer",
    callback=as_text,
    metavar="NAME",
    help="Fork after a micro-batch of this writer. The id of a query selects all sinks of the "
    "query. Requires --batch.",
)
@click.option(
    "--batch", type=int, metavar="N",
    help="Fork after the micro-batch with this number. Requires --writer.",
)  # fmt: skip
@click.option(
    "--time", "when", metavar="TIME",
    help="Fork after the last commit at or before this time, in ms since the epoch or in ISO form "
    "(2013-07-03T14:00Z, UTC unless it has a zone).",
)  # fmt: skip
@click.option(
    "--offsets", metavar="JSON",
    help="Fork after the last commit at which every partition ends at or before these offsets: "
    '{"topic": {"0": 500}}.',
)  # fmt: skip
@click.option(
    "--leave-remote", is_flag=True,
    help="Leave out records that exist in remote storage only: the fork's partitions begin at the "
    "local log start.",
)  # fmt: skip
@click.option(
    "--dry-run", is_flag=True,
    help="Show what the fork would contain, and create nothing. Only for logs in a bucket.",
)  # fmt: skip
@access_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def fork(
    path: str,
    new_path: str,
    writer: str | None,
    batch: int | None,
    when: str | None,
    offsets: str | None,
    leave_remote: bool,
    dry_run: bool,
    access: StoreAccess,
    as_json: bool,
) -> int:
    """Create a new log with the contents that a log had after an earlier commit.

    Exactly one of --writer with --batch, --time and --offsets is required: it selects the commit.
    Use a fork to test changes on real data, or to go back to an earlier state. The original log is
    not changed and may be in use. Log dirs share closed segments by hard links, so a fork takes
    little time and space. In a bucket the object store copies the segments. Both logs must be in
    log dirs, or both in buckets.
    """
    if (writer is None) != (batch is None):
        raise click.UsageError("--writer and --batch require each other")
    if [writer, when, offsets].count(None) != 2:
        raise click.UsageError(
            "pass exactly one fork point: --writer with --batch, --time or --offsets"
        )
    wanted = ForkPointRequest(
        writer=writer,
        batch=batch,
        time_ms=parse_time(when, "--time"),
        offsets=_offsets(offsets),
        leave_remote=leave_remote,
    )
    if url_of(path) is not None or url_of(new_path, mode="rw") is not None:
        return _fork_in_store(path, new_path, wanted, access, dry_run=dry_run, as_json=as_json)
    if dry_run:
        raise click.UsageError("--dry-run requires a log in a bucket")
    check_log(path, archives=False)
    made = fork_log(path, new_path, wanted)
    if as_json:
        print_json(to_dict(made))
        return EXIT_OK
    _print_contents(made)
    click.echo(
        f"{made.path}: leader epoch {made.epoch}, {size_text(made.linked_bytes)} linked, "
        f"{size_text(made.copied_bytes)} copied in {made.took_ms / 1000:.1f} s"
    )
    return EXIT_OK


def _fork_in_store(
    path: str,
    new_path: str,
    wanted: ForkPointRequest,
    access: StoreAccess,
    *,
    dry_run: bool,
    as_json: bool,
) -> int:
    for one, mode in ((path, "r"), (new_path, "rw")):
        if url_of(one, mode=mode) is None:
            raise InvalidRequestError(
                f"{one} is a log dir and the other path a URL: a fork must have the same kind of "
                "home; use `sparklog export --all --to` instead",
                path=one,
            )
    source, store = open_store(path, access.storage), open_store(new_path, access.storage)
    with bytes_bar("copying", shown=not as_json) as progress:
        made = fork_in_store(
            source, BucketTarget(store=store, dry_run=dry_run), wanted,
            options=RemoteOptions.parse(access.options)[0], progress=progress,
        )  # fmt: skip
    print_made(made, as_json=as_json)
    return EXIT_OK


def print_made(made: MadeLog, *, as_json: bool) -> None:
    """Print the path, offsets and writers of a log that was copied from another log."""
    if as_json:
        print_json(asdict(made))
        return
    _print_contents(made)
    verb = "would be copied" if made.dry_run else "copied"
    objects = pluralize(made.copied_objects, "object")
    click.echo(
        f"{made.path}: leader epoch {made.epoch}, {objects}, {size_text(made.copied_bytes)} "
        f"{verb} in {made.took_ms / 1000:.1f} s"
    )


def _print_contents(made: Forked | MadeLog) -> None:
    """Print the offsets of a new log, and the newest batch of each writer."""
    for topic, spans in made.offsets.items():
        for partition, (start, end) in spans.items():
            click.echo(f"{topic}-{partition}: offsets [{start}, {end})")
    for name, last in made.writers.items():
        click.echo(f"writer {name}: batch {last}")


def to_dict(made: Forked) -> dict[str, Any]:
    """Return the JSON document of a fork."""
    return {
        "path": made.path,
        "ledger_offset": made.offset,
        "time": made.time_ms,
        "epoch": made.epoch,
        "offsets": made.offsets,
        "writers": made.writers,
        "linked_files": made.linked_files,
        "linked_bytes": made.linked_bytes,
        "copied_bytes": made.copied_bytes,
        "locked_ms": made.locked_ms,
        "took_ms": made.took_ms,
    }


def _offsets(text: str | None) -> dict[str, dict[int, int]] | None:
    if text is None:
        return None
    try:
        found = {
            str(topic): {int(p): int(end) for p, end in ends.items()}
            for topic, ends in json.loads(text).items()
        }
    except (ValueError, AttributeError, TypeError):
        raise click.BadParameter(
            f'{text!r} must be JSON, such as {{"topic": {{"0": 500}}}}', param_hint="'--offsets'"
        ) from None
    return found
