"""`sparklog commits`: shows which micro-batch wrote which offsets."""

import click
import pyarrow.compute as pc

from sparklog.cli.command import Command
from sparklog.cli.exit_codes import EXIT_OK
from sparklog.cli.open_log import to_read
from sparklog.cli.output import matching_rows, print_arrow
from sparklog.cli.parsing import as_text
from sparklog.cli.storage import StoreAccess, access_options


@click.command(cls=Command)
@click.argument("path")
@click.option(
    "--writer", callback=as_text, metavar="NAME",
    help="Show only commits of this writer. The id of a query selects all sinks of the query.",
)
@click.option("--topic", metavar="NAME", help="Show only commits to this topic.")
@click.option(
    "--last", metavar="N", type=click.IntRange(1),
    help="Show only the newest N commits. The default is all commits in the ledger.",
)  # fmt: skip
@access_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def commits(
    path: str,
    writer: str | None,
    topic: str | None,
    last: int | None,
    access: StoreAccess,
    as_json: bool,
) -> int:
    """Show the commits of a log: which micro-batch of which query wrote which offsets, and when.

    The commits are read from the ledger (the log of commits), oldest first. A writer is a sink of a
    streaming query, under the query's id or the sink's option writerId, or the name that was passed
    to `sparklog produce --writer`.
    """
    with to_read(path, access, archives=False) as log:
        table = log.commits()
    if writer is not None:
        mine = pc.equal(table["writer"], writer)
        sinks = pc.starts_with(table["writer"], f"{writer}/")
        table = table.filter(pc.or_(mine, sinks))
    table = matching_rows(table, topic=topic)
    if last is not None:
        newest = pc.unique(table["offset"])[-last:]
        table = table.filter(pc.is_in(table["offset"], value_set=newest))
    columns = ["offset", "time", "kind", "query", "writer", "batch", "topic", "partition", "first",
               "end"]  # fmt: skip
    without = "the ledger has no commit" + (" of these" if writer or topic else "")
    print_arrow(table, columns, without, as_json=as_json)
    return EXIT_OK
