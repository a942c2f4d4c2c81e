"""`sparklog fork`: a new log as an old one stood at one of its commits."""

import json
from typing import Any

import click

from sparklog.cli.command import Command
from sparklog.cli.exit_codes import EXIT_OK
from sparklog.cli.open_log import check_log_dirs
from sparklog.cli.output import print_json, size_text
from sparklog.cli.parsing import parse_time
from sparklog.logdir.forking.fork import Forked
from sparklog.logdir.forking.fork import fork as fork_log


@click.command(cls=Command)
@click.argument("path")
@click.argument("new_path")
@click.option("--writer", help="A writer, or a query's id for all of its sinks; with --batch.")
@click.option("--batch", type=int, help="The writer's last micro-batch that is to be in the fork.")
@click.option("--time", "when", help="Instead: the last commit up to an ISO time.")
@click.option(
    "--offsets", metavar="JSON",
    help='Instead: the last commit that goes past none of these ends: {"topic": {"0": 500}}.',
)  # fmt: skip
@click.option(
    "--leave-remote", is_flag=True,
    help="Begin at the local log start where offsets are only in remote storage.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def fork(
    path: str,
    new_path: str,
    writer: str | None,
    batch: int | None,
    when: str | None,
    offsets: str | None,
    leave_remote: bool,
    as_json: bool,
) -> int:
    """Make the log NEW_PATH as the log at PATH stood right after a commit.

    Closed segments are shared by hard links, so that takes little time and room. The log at PATH
    stays as it is, and may be in use.
    """
    if (writer is None) != (batch is None):
        raise click.UsageError("--writer and --batch belong together")
    if [writer, when, offsets].count(None) != 2:
        raise click.UsageError("say where to fork: --writer with --batch, --time or --offsets")
    check_log_dirs(path, "`sparklog export --to` copies a range of a topic into a log dir")
    made = fork_log(
        path,
        new_path,
        writer=writer,
        batch=batch,
        time_ms=parse_time(when, "--time"),
        offsets=_offsets(offsets),
        leave_remote=leave_remote,
    )
    if as_json:
        print_json(to_dict(made))
        return EXIT_OK
    for topic, spans in made.offsets.items():
        for partition, (start, end) in spans.items():
            click.echo(f"{topic}-{partition}: offsets [{start}, {end})")
    for name, last in made.writers.items():
        click.echo(f"writer {name}: batch {last}")
    click.echo(
        f"{made.path}: leader epoch {made.epoch}, {size_text(made.linked_bytes)} linked, "
        f"{size_text(made.copied_bytes)} copied in {made.took_ms / 1000:.1f} s"
    )
    return EXIT_OK


def to_dict(made: Forked) -> dict[str, Any]:
    """Return what scripts get of a fork."""
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
            f'{text!r}: want JSON as {{"topic": {{"0": 500}}}}', param_hint="'--offsets'"
        ) from None
    return found
