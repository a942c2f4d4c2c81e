"""`sparklog checkpoint archive`, `restore` and `points`: archives of checkpoints."""

from datetime import UTC, datetime
from functools import partial

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from sparklog.checkpoint.backup.archiving import archive as archive_checkpoint
from sparklog.checkpoint.backup.restoring import list_points
from sparklog.checkpoint.backup.restoring import restore as restore_checkpoint
from sparklog.checkpoint.backup.snapshots import no_snapshots
from sparklog.checkpoint.files import local_path
from sparklog.checkpoint.query_sink import NAMED
from sparklog.cli.command import Command
from sparklog.cli.exit_codes import EXIT_OK
from sparklog.cli.open_log import check_directory
from sparklog.cli.output import bytes_bar, console, print_json
from sparklog.cli.parsing import as_text
from sparklog.cli.storage import parse_storage_options, storage_option
from sparklog.pluralize import pluralize
from sparklog.quantities import size_text

_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
_keyring = click.option(
    "--keyring", metavar="FILE",
    help="Encrypt the archive with the keys in this file (docs/encryption.md). The default is no "
    "encryption; the environment variable SPARKLOG_KEYRING is not read.",
)  # fmt: skip
output_option = click.option(
    "--output", metavar="DIRECTORY",
    help="Name the output directory, if the query writes files (parquet, csv, ...). The later "
    "batches are removed from the directory's _spark_metadata, so that Spark does not skip these "
    "batches when the query repeats them. Their files remain in the directory.",
)  # fmt: skip
sink_option = click.option(
    "--sink", type=click.Choice([str(kind) for kind in NAMED]),
    help="Name the sink to which the query will write. A sink may skip repeated batches; the "
    "command then warns or refuses. Required only if the checkpoint does not record the sink, or "
    "if the sink will be a different one.",
)  # fmt: skip
_threads = click.option(
    "--threads", default=4, show_default=True, type=click.IntRange(1, 64), metavar="N",
    help="Transfer this many files at the same time.",
)  # fmt: skip


def check_checkpoint(path: str) -> None:
    """Raise InvalidRequestError unless `path`, which should be a checkpoint, exists."""
    local = local_path(path)
    if local is not None:
        check_directory(local, "the query's checkpointLocation")


@click.command(cls=Command)
@click.argument("path")
@click.argument("url")
@click.option(
    "--batch", type=int, metavar="N",
    help="Archive the checkpoint as of this batch. The default is the newest committed batch.",
)  # fmt: skip
@click.option(
    "--log", metavar="PATH",
    help="Archive the log to which the query writes as well, as of the same batch.",
)  # fmt: skip
@click.option(
    "--writer", callback=as_text, metavar="NAME",
    help="Name the query's writer in the log of --log. Required only if the sink writes under "
    "another name (its option writerId). The default is the query's id, which selects all sinks "
    "of the query.",
)  # fmt: skip
@click.option(
    "--leave-remote", is_flag=True,
    help="Leave out segments of the log that exist in remote storage only.",
)  # fmt: skip
@click.option(
    "--rewrite-days", default=30, show_default=True, type=click.IntRange(1), metavar="DAYS",
    help="Upload a file again if the archive's copy is older than this many days, so that "
    "lifecycle rules can delete files by age. If a rule deletes points after N days, files must be "
    "kept for at least N + DAYS + 2 days.",
)  # fmt: skip
@_keyring
@_threads
@storage_option
@_json
def archive(
    path: str,
    url: str,
    batch: int | None,
    log: str | None,
    writer: str | None,
    leave_remote: bool,
    rewrite_days: int,
    keyring: str | None,
    threads: int,
    storage_options: str,
    as_json: bool,
) -> int:
    """Back up a streaming query's checkpoint, as a new point of an archive in an object store.

    A point is a snapshot of the checkpoint after a batch, and with --log also of the log to which
    the query writes. `checkpoint restore` restores a point. The query may be running. Files that
    the archive already has are not uploaded again. PATH is a directory, or the URL of a checkpoint
    in a bucket.
    """
    check_checkpoint(path)
    with bytes_bar("archiving", shown=not as_json) as progress:
        made = archive_checkpoint(
            path,
            url,
            batch=batch,
            log=log,
            writer=writer,
            leave_remote=leave_remote,
            storage_options=parse_storage_options(storage_options),
            keyring=keyring,
            rewrite_days=rewrite_days,
            threads=threads,
            progress=progress,
        )
    if as_json:
        print_json(made.to_dict())
        return EXIT_OK
    of = "" if made.batch is None else f" of batch {made.batch}"
    click.echo(
        f"{made.point}{of}: {pluralize(made.files, 'file')}, {size_text(made.bytes)}, of which "
        f"{size_text(made.new_bytes)} were new, in {made.took_ms / 1000:.1f} s"
    )
    return EXIT_OK


@click.command(cls=Command)
@click.argument("url")
@click.argument("path")
@click.option(
    "--batch", type=int, metavar="N",
    help="Restore the newest point of this batch. The default is the newest point of all. With "
    "--point, the point must be of this batch.",
)  # fmt: skip
@click.option(
    "--point", metavar="NAME",
    help="Restore the point with this name, from the list of `sparklog checkpoint points`.",
)  # fmt: skip
@click.option(
    "--log", metavar="PATH",
    help="Restore the log of the point as well, to this new path. The default is only the "
    "checkpoint.",
)  # fmt: skip
@output_option
@sink_option
@click.option(
    "--keyring", metavar="FILE",
    help="Decrypt the archive with the keys in this file (docs/encryption.md). Required if the "
    "archive is encrypted; the environment variable SPARKLOG_KEYRING is not read.",
)  # fmt: skip
@_threads
@storage_option
@_json
def restore(
    url: str,
    path: str,
    batch: int | None,
    point: str | None,
    log: str | None,
    output: str | None,
    sink: str | None,
    keyring: str | None,
    threads: int,
    storage_options: str,
    as_json: bool,
) -> int:
    """Restore a checkpoint from a point of an archive, verifying the checksum of every file.

    A query that is started with the restored checkpoint continues with the batch after the point's
    batch. PATH is a new directory, or a URL; in a bucket the checkpoint is kept in runs.
    """
    with bytes_bar("restoring", shown=not as_json) as progress:
        done = restore_checkpoint(
            url,
            path,
            batch=batch,
            point=point,
            log=log,
            output=output,
            sink=sink,
            announce=partial(click.echo, err=True),
            storage_options=parse_storage_options(storage_options),
            keyring=keyring,
            threads=threads,
            progress=progress,
        )
    if as_json:
        print_json(done.to_dict())
        return EXIT_OK
    of = "" if done.batch is None else f" of batch {done.batch}"
    where = done.path if done.log is None else f"{done.path} and {done.log}"
    click.echo(
        f"{done.point}{of}: {pluralize(done.files, 'file')}, {size_text(done.bytes)} in {where}, "
        f"{done.took_ms / 1000:.1f} s"
    )
    return EXIT_OK


@click.command(cls=Command)
@click.argument("url")
@storage_option
@_json
def points(url: str, storage_options: str, as_json: bool) -> int:
    """List the points that `checkpoint archive` created in an archive, oldest first.

    The list shows the name, time and batch of each point, and whether the point contains a log.
    """
    found = list_points(url, storage_options=parse_storage_options(storage_options))
    if not found:
        raise no_snapshots(url)
    if as_json:
        print_json([point.to_dict() for point in found])
        return EXIT_OK
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("point", "time", "batch", "log"):
        table.add_column(name, justify="right" if name == "batch" else "left", no_wrap=True)
    for point in found:
        when = f"{datetime.fromtimestamp(point.time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}Z"
        batch = "-" if point.batch is None else str(point.batch)
        table.add_row(point.name, when, batch, "yes" if point.has_log else "no")
    console().print(table)
    return EXIT_OK
