"""`sparklog checkpoint rewrite` and `diff`: change and compare state, by Spark on this machine."""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from sparklog.cli.archive import check_checkpoint
from sparklog.cli.command import Command
from sparklog.cli.exit_codes import EXIT_FAILED, EXIT_OK
from sparklog.cli.output import print_json
from sparklog.cli.spark_session import spark_session
from sparklog.cli.storage import parse_storage_options, storage_option

if TYPE_CHECKING:
    from sparklog.state.functions import StateFunction, StateFunctions

_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
_scratch = click.option(
    "--scratch", metavar="DIRECTORY",
    help="Use this directory for temporary copies of checkpoints in a bucket. Executors must reach "
    "it. The default is the directory of temporary files.",
)  # fmt: skip


@click.command(cls=Command)
@click.argument("source")
@click.argument("target")
@click.option(
    "--to", type=int, metavar="BATCH",
    help="Select the batch after which the query continues. The default is the newest committed "
    "batch.",
)  # fmt: skip
@click.option(
    "--operator", default=0, show_default=True, type=click.IntRange(0), metavar="N",
    help="Select the operator whose state --with changes.",
)  # fmt: skip
@click.option(
    "--with", "functions", multiple=True, metavar="[NAME=]MODULE:FUNCTION",
    help="Change the rows by this function, which gets and returns a DataFrame with the columns "
    "key and value. The module is searched for in the current directory, too. NAME is the side of "
    "a join (left, right), a state variable of transformWithState, or timers. Repeatable with "
    "names.",
)  # fmt: skip
@click.option(
    "--provider", type=click.Choice(["hdfs", "rocksdb"]),
    help="Move the state of all operators to this state store provider of Spark.",
)  # fmt: skip
@click.option(
    "--partitions", type=click.IntRange(1), metavar="N",
    help="Set the number of state partitions of all operators.",
)  # fmt: skip
@click.option(
    "--template", metavar="CHECKPOINT",
    help="Use the schemas of a changed query. CHECKPOINT is one in which that query has run at "
    "least one batch, with any input. --with returns rows of its columns.",
)  # fmt: skip
@click.option(
    "--dry-run", is_flag=True, help="Write the new state, report its rows, and keep nothing."
)
@_scratch
@storage_option
@_json
def rewrite(
    source: str,
    target: str,
    to: int | None,
    operator: int,
    functions: Sequence[str],
    provider: str | None,
    partitions: int | None,
    template: str | None,
    dry_run: bool,
    scratch: str | None,
    storage_options: str,
    as_json: bool,
) -> int:
    """Create a checkpoint whose query continues with changed state.

    Use it to correct rows of state, to change the query, to move state to another provider, and to
    change the number of state partitions. SOURCE is a directory, or the URL of a checkpoint in a
    bucket. It is not changed, and its query may be running. TARGET is a new directory or URL. Runs
    Spark on this machine.
    """
    check_checkpoint(source)
    with_ = _functions(functions)
    with spark_session() as spark:
        from sparklog.checkpoint import rewrite as rewrite_checkpoint

        done = rewrite_checkpoint(
            source,
            target,
            to=to,
            operator=operator,
            with_=with_,
            provider=provider,
            partitions=partitions,
            template=template,
            dry_run=dry_run,
            scratch=scratch,
            spark=spark,
            storage_options=parse_storage_options(storage_options),
        )
    if as_json:
        print_json(done.to_dict())
    else:
        click.echo(str(done))
    return EXIT_OK


@click.command(cls=Command)
@click.argument("first")
@click.argument("second")
@click.option(
    "--batch", type=click.IntRange(0), metavar="N",
    help="Compare the state after this batch. The default is the newest batch of both.",
)  # fmt: skip
@_scratch
@storage_option
@_json
def diff(
    first: str,
    second: str,
    batch: int | None,
    scratch: str | None,
    storage_options: str,
    as_json: bool,
) -> int:
    """Compare the state of two checkpoints after a batch.

    Prints where they differ, with some keys. Provider and number of partitions may differ. Exits
    with 1 if the state differs. FIRST and SECOND are each a directory, or the URL of a checkpoint
    in a bucket; their queries may be running. Runs Spark on this machine.
    """
    check_checkpoint(first)
    check_checkpoint(second)
    with spark_session() as spark:
        from sparklog.checkpoint import diff as diff_checkpoints

        found = diff_checkpoints(
            first,
            second,
            batch=batch,
            scratch=scratch,
            spark=spark,
            storage_options=parse_storage_options(storage_options),
        )
    if as_json:
        print_json(found.to_dict())
    else:
        click.echo(str(found))
    return EXIT_OK if found.is_equal else EXIT_FAILED


def _functions(given: Sequence[str]) -> "StateFunctions | None":
    named: dict[str, StateFunction] = {}
    for text in given:
        name, equals, path = text.rpartition("=")
        if name in named or (not equals and len(given) > 1):
            raise click.BadParameter(
                "use it once, or with a different NAME each time", param_hint="'--with'"
            )
        named[name] = _function(path)
    return named.get("", named or None)


def _function(path: str) -> "StateFunction":
    module, colon, name = path.partition(":")
    if not colon or not module or not name:
        raise click.BadParameter(
            f"{path!r} must have the form MODULE:FUNCTION", param_hint="'--with'"
        )
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise click.BadParameter(
            f"{path} can't be loaded: {error}", param_hint="'--with'"
        ) from None
    if not callable(function):
        raise click.BadParameter(f"{path} is no function", param_hint="'--with'")
    found: StateFunction = function
    return found
