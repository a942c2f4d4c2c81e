"""The group of all commands, and error handling: a single line, an exit code, no traceback."""

import logging
import sys
from collections.abc import Sequence
from typing import Final

import click

import sparklog
from sparklog.cli.command import LazyGroup, drop_output, one_line
from sparklog.cli.exit_codes import EXIT_FAILED, EXIT_STOPPED, EXIT_UNREAD
from sparklog.cli.kafka_tools import tool_command
from sparklog.cli.terminal import RowFormatter
from sparklog.errors import SparklogError

_EPILOG: Final = (
    "Exit codes: 0 success; 1 the command failed, or found damage or a difference; "
    "2 the command line is wrong; 130 stopped by Ctrl-C; 141 the reader of the output has ended."
    "\n\n"
    "The names and flags of Kafka's tools are also accepted, with PATH as --bootstrap-server: "
    "sparklog kafka-topics.sh --create --topic t --bootstrap-server PATH."
    "\n\n"
    'To enable completion in bash, run eval "$(_SPARKLOG_COMPLETE=bash_source sparklog)"; for '
    "other shells replace bash_source by zsh_source or fish_source."
)


_COMMANDS: Final = {  # heading: {name: (module and attribute, line in the list of commands)}
    "Data": {
        "topics": ("topics:topics", "List, describe, create, alter and delete topics."),
        "configs": ("configs:configs", "Describe and alter topic configs (kafka-configs)."),
        "produce": ("produce:produce", "Append lines, JSON, CSV or Parquet to a topic."),
        "consume": ("consume:consume", "Print a topic's records (kafka-console-consumer)."),
        "get-offsets": (
            "get_offsets:offsets", "Print offsets of partitions: start, end or by time.",
        ),
        "delete-records": (
            "delete_records:delete", "Delete the records before an offset permanently.",
        ),
        "log-dirs": (
            "log_dirs:log_dirs", "Show sizes of partitions, and move partitions.",
        ),
        "dump-log": ("dump_log:dump_log", "Print the contents of segment files (kafka-dump-log)."),
        "readers": (
            "readers:readers", "Show and reset offsets of queries and consumer groups.",
        ),
        "commits": ("ledger:commits", "Show which micro-batch wrote which offsets, and when."),
    },
    "Operate": {
        "serve": ("serve:serve", "Run the background service, and serve Kafka clients."),
        "status": ("status:status", "Report whether a log is healthy, and why not."),
        "verify": ("verify:verify", "Check a log for damage, and repair it."),
        "metrics": ("metrics:metrics", "Print metrics, alert rules or a Grafana dashboard."),
        "ui": ("ui:ui", "Show a log in a browser, or export an HTML report."),
        "erase": ("erase:erase", "Erase all records with given keys permanently."),
    },
    "Copy": {
        "tier": ("tier:tier", "Show, verify and restore copies in tiered storage."),
        "fork": ("fork:fork", "Copy a log as of an earlier commit."),
        "import": ("import_export:import_", "Copy a topic from Kafka, with its offsets."),
        "export": (
            "import_export:export", "Copy a topic to Kafka or to another log.",
        ),
        "handover": ("handover:handover", "Prepare a log dir for a Kafka broker."),
    },
    "Spark": {
        "checkpoint": (
            "checkpoint:checkpoint", "Inspect, verify, reset and back up checkpoints.",
        ),
        "doctor": ("doctor:doctor", "Check Spark, and print the settings that it needs."),
    },
    "Kafka": {
        "kafka-users": ("kafka_users:users", "Manage the users of the endpoint (serve --kafka)."),
    },
}  # fmt: skip


def _other_names(name: str) -> Sequence[str] | None:
    # The name of earlier versions.
    return ["doctor", "--spark-conf"] if name == "spark-conf" else tool_command(name)


@click.group(
    cls=LazyGroup,
    package="sparklog.cli",
    headings=_COMMANDS,
    other_names=_other_names,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(sparklog.__version__, prog_name="sparklog", message="%(prog)s %(version)s")
@click.option(
    "-v", "--verbose", count=True,
    help="Log informational messages on standard error. -vv also logs debug messages.",
)  # fmt: skip
def app(verbose: int) -> None:
    """Read, write and operate logs: Kafka topics that are stored in directories or in a bucket.

    A command's PATH is the directory of a log (several log dirs are joined by commas) or its URL,
    such as s3://bucket/log. No server needs to run. `sparklog COMMAND --help` describes a command
    and shows examples.
    """
    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    handler = logging.StreamHandler()
    handler.setFormatter(RowFormatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])
    # basicConfig does nothing if the root logger has handlers already, for example under pytest.
    logging.getLogger("sparklog").setLevel(level)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command, and return the exit code."""
    try:
        # In standalone mode click would end the process itself, before the handlers below.
        code = app.main(args=arguments, prog_name="sparklog", standalone_mode=False)
        # Here, where a full disk or a closed pipe can still become an exit code: at the
        # interpreter's exit Python only prints the error.
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return EXIT_STOPPED
    except BrokenPipeError:  # at the last flush
        drop_output()
        return EXIT_UNREAD
    except SparklogError as error:
        return _fail(one_line(error))
    except OSError as error:  # for example a full disk under the output file
        drop_output()
        return _fail(f"{error.filename or 'standard output'}: {error.strerror or error}")
    return int(code or 0)


def _fail(text: str) -> int:
    click.ClickException(text).show()
    return EXIT_FAILED
