"""Commands of `sparklog checkpoint` that read and write state, by Spark on this machine."""

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import click

from sparklog.cli.archive import check_checkpoint
from sparklog.cli.command import Command
from sparklog.cli.exit_codes import EXIT_FAILED, EXIT_OK
from sparklog.cli.output import print_json
from sparklog.cli.spark_session import spark_session
from sparklog.cli.storage import parse_storage_options, storage_option
from sparklog.cli.user_functions import load_function
from sparklog.spark_errors import brief

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOGGER: Final = logging.getLogger(__name__)

_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
_output_mode = click.option(
    "--output-mode", type=click.Choice(["append", "update", "complete"]), default="append",
    show_default=True, help="Run the query in this output mode.",
)  # fmt: skip
_in_place = click.option(
    "--in-place", is_flag=True,
    help="Change SOURCE itself, and name no TARGET. SOURCE is a directory or a checkpoint in runs, "
    "and its query is stopped. The original is kept as a restore point, whose name is printed.",
)  # fmt: skip
_optional_target = click.argument("target", required=False)
_scratch = click.option(
    "--scratch", metavar="DIRECTORY",
    help="Use this directory for temporary copies. Executors must reach it. The default is the "
    "directory of temporary files. If executors share no disk with the driver, rewrite, erase and "
    "diff also take a URL of Spark, such as s3a://bucket/tmp.",
)  # fmt: skip
_to = click.option(
    "--to", type=int, metavar="BATCH",
    help="Select the batch after which the query continues. The default is the newest committed "
    "batch.",
)  # fmt: skip
_dry_run = click.option(
    "--dry-run", is_flag=True, help="Write the new state, report its rows, and keep nothing."
)


class _Report(Protocol):
    def to_dict(self) -> dict[str, Any]: ...


@click.command(cls=Command)
@click.argument("source")
@_optional_target
@_to
@click.option(
    "--operator", default=0, show_default=True, type=click.IntRange(0), metavar="N",
    help="Select the operator whose state --with changes.",
)  # fmt: skip
@click.option(
    "--with", "with_", multiple=True, metavar="[NAME=]MODULE:FUNCTION",
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
@_in_place
@_dry_run
@_scratch
@storage_option
@_json
def rewrite(
    source: str,
    target: str | None,
    to: int | None,
    operator: int,
    with_: Sequence[str],
    provider: str | None,
    partitions: int | None,
    template: str | None,
    in_place: bool,
    dry_run: bool,
    scratch: str | None,
    storage_options: str,
    as_json: bool,
) -> int:
    """Create a checkpoint whose query continues with changed state.

    Use it to correct rows of state, to change the query, to move state to another provider, and to
    change the number of state partitions. SOURCE is a directory, or the URL of a checkpoint in a
    bucket. Without --in-place it is not changed, and its query may be running. TARGET is a new
    directory or URL. Runs Spark on this machine.
    """
    check_checkpoint(source)
    functions = _state_functions(with_)
    with _spark() as spark:
        from sparklog.checkpoint import rewrite as rewrite_checkpoint

        done = rewrite_checkpoint(
            source,
            target,
            to=to,
            operator=operator,
            with_=functions,
            provider=provider,
            partitions=partitions,
            template=template,
            in_place=in_place,
            dry_run=dry_run,
            scratch=scratch,
            spark=spark,
            storage_options=parse_storage_options(storage_options),
        )
    _print(done, as_json=as_json)
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
    with _spark() as spark:
        from sparklog.checkpoint import diff as diff_checkpoints

        found = diff_checkpoints(
            first,
            second,
            batch=batch,
            scratch=scratch,
            spark=spark,
            storage_options=parse_storage_options(storage_options),
        )
    _print(found, as_json=as_json)
    return EXIT_OK if found.is_equal else EXIT_FAILED


@click.command(cls=Command)
@click.argument("source")
@_optional_target
@click.option(
    "--where", multiple=True, required=True, metavar="SQL",
    help="Erase the rows that match this condition in SQL, such as 'key.customer = 17'. It applies "
    "to all rows that have its columns, in all operators. The columns are key, the struct of the "
    "operator's key, and value, the struct of a row's value. In addition, an entry of a map of "
    "transformWithState has userKey, a timer expiryTimestampMs, and a value with a TTL "
    "ttlExpirationMs. Repeatable: a row that matches one of the conditions is erased.",
)  # fmt: skip
@click.option(
    "--archive", "archives", multiple=True, metavar="URL",
    help="Report the snapshots of the checkpoint in this archive, which still contain the rows. "
    "Repeatable.",
)  # fmt: skip
@_to
@_in_place
@_dry_run
@_scratch
@storage_option
@_json
def erase(
    source: str,
    target: str | None,
    where: Sequence[str],
    archives: Sequence[str],
    to: int | None,
    in_place: bool,
    dry_run: bool,
    scratch: str | None,
    storage_options: str,
    as_json: bool,
) -> int:
    """Create a checkpoint whose query continues without the rows of state that match a condition.

    Use it to erase a person from the state of a query. SOURCE is a directory, or the URL of a
    checkpoint in a bucket. Without --in-place it is not changed, and still contains the rows:
    delete it when the query runs with TARGET, a new directory or URL. With --in-place delete the
    restore point, whose name is printed. Runs Spark on this machine.
    """
    check_checkpoint(source)
    with _spark() as spark:
        from sparklog.checkpoint import erase as erase_rows

        done = erase_rows(
            source,
            target,
            where,
            to=to,
            archives=archives,
            in_place=in_place,
            dry_run=dry_run,
            scratch=scratch,
            spark=spark,
            storage_options=parse_storage_options(storage_options),
        )
    _print(done, as_json=as_json)
    return EXIT_OK


@click.command(cls=Command)
@click.argument("target")
@click.option(
    "--query", required=True, metavar="MODULE:FUNCTION",
    help="Run the query that this function returns: a streaming DataFrame, not started. The "
    "function gets the Spark session; with --from it gets a streaming DataFrame for each --from "
    "instead. The module is searched for in the current directory, too.",
)  # fmt: skip
@click.option(
    "--from", "from_", multiple=True, metavar="MODULE:FUNCTION",
    help="Read the history from the DataFrame that this function returns, in place of the query's "
    "source. The function gets the Spark session. Repeatable: once for each source, in the order "
    "of the parameters of --query's function. The default is the history that the query's own "
    "sources have.",
)  # fmt: skip
@_output_mode
@_scratch
@storage_option
@_json
def bootstrap(
    target: str,
    query: str,
    from_: Sequence[str],
    output_mode: str,
    scratch: str | None,
    storage_options: str,
    as_json: bool,
) -> int:
    """Create a checkpoint with the state that a query has after a history.

    The query reads the history, and its output is dropped. Then start the query with TARGET, a new
    directory or URL, as checkpointLocation. Settings in spark-defaults.conf and PYSPARK_SUBMIT_ARGS
    apply, for example spark.sql.shuffle.partitions, and so do settings that the functions set. The
    new checkpoint is log-backed (`sparklog checkpoint export` converts it into Spark's files). Runs
    Spark on this machine.
    """
    query_function = load_function(query, "--query")
    histories = [load_function(path, "--from") for path in from_]
    with _spark() as spark:
        from sparklog.checkpoint import bootstrap as bootstrap_checkpoint

        done = bootstrap_checkpoint(
            target,
            query_function if histories else query_function(spark),
            from_=[history(spark) for history in histories] or None,
            output_mode=output_mode,
            scratch=scratch,
            storage_options=parse_storage_options(storage_options),
        )
    _print(done, as_json=as_json)
    return EXIT_OK


@click.command(cls=Command)
@click.argument("source")
@click.argument("target")
@click.option(
    "--query", required=True, metavar="MODULE:FUNCTION",
    help="Rebuild the state by the query that this function returns: a streaming DataFrame, not "
    "started. The function gets the Spark session. The module is searched for in the current "
    "directory, too.",
)  # fmt: skip
@_output_mode
@_to
@_scratch
@storage_option
@_json
def rebuild(
    source: str,
    target: str,
    query: str,
    output_mode: str,
    to: int | None,
    scratch: str | None,
    storage_options: str,
    as_json: bool,
) -> int:
    """Create a checkpoint with the state of a batch, although files of this state are lost.

    The query reads its sources again, up to the offsets of the batch, and its output is dropped.
    State partitions that can be read must be equal in the result; otherwise nothing is written.
    SOURCE is a directory, or the URL of a checkpoint in a bucket, which is not changed. TARGET is a
    new directory or URL. Runs Spark on this machine.
    """
    check_checkpoint(source)
    query_function = load_function(query, "--query")
    with _spark() as spark:
        from sparklog.checkpoint import rebuild as rebuild_state

        done = rebuild_state(
            source,
            target,
            query_function(spark),
            to=to,
            output_mode=output_mode,
            scratch=scratch,
            storage_options=parse_storage_options(storage_options),
        )
    _print(done, as_json=as_json)
    return EXIT_OK


@contextlib.contextmanager
def _spark() -> "Iterator[SparkSession]":
    """Start Spark.

    Raises:
        ClickException: Spark failed, for example in a function or a condition of the user.
    """
    with spark_session() as spark:
        from pyspark.errors import PySparkException

        try:
            yield spark
        except PySparkException as error:
            _LOGGER.info("Spark failed", exc_info=True)
            raise click.ClickException(f"Spark failed: {brief(error)}") from error


def _print(report: _Report, *, as_json: bool) -> None:
    if as_json:
        print_json(report.to_dict())
    else:
        click.echo(str(report))


def _state_functions(
    given: Sequence[str],
) -> Callable[..., Any] | dict[str, Callable[..., Any]] | None:
    named: dict[str, Callable[..., Any]] = {}
    for text in given:
        name, equals, path = text.rpartition("=")
        if name in named or (not equals and len(given) > 1):
            raise click.BadParameter(
                "use it once, or with a different NAME each time", param_hint="'--with'"
            )
        named[name] = load_function(path, "--with")
    return named.get("", named or None)
