"""The commands as one group, and what becomes of errors: one line, an exit code, no traceback."""

import logging
import sys
from collections.abc import Sequence
from typing import Final

import click

import sparklog
from sparklog.cli.command import LazyGroup, drop_output, one_line
from sparklog.cli.exit_codes import EXIT_FAILED, EXIT_STOPPED, EXIT_UNREAD
from sparklog.cli.kafka_tools import tool_words
from sparklog.cli.terminal import RowFormatter
from sparklog.errors import SparklogError

_EPILOG: Final = (
    "Exit codes: 0 all is well; 1 damage or a difference was found, or the command failed; "
    "2 wrong use; 130 stopped by Ctrl-C; 141 nobody reads the output any more. "
    "Kafka's tools go by their own names and flags, too, with PATH as --bootstrap-server: sparklog "
    "kafka-topics.sh --create --topic t --bootstrap-server PATH. "
    'Completion for bash: eval "$(_SPARKLOG_COMPLETE=bash_source sparklog)" '
    "(zsh_source, fish_source likewise)."
)


_COMMANDS: Final = {  # name: (where it is, what the list of commands says of it)
    "alerts": ("alerts:alerts", "Alert rules for Prometheus."),
    "checkpoint": (
        "checkpoint:checkpoint", "A streaming query's checkpoint: look, check, go back.",
    ),
    "commits": ("ledger:commits", "Which micro-batch wrote which offsets."),
    "compact": ("upkeep:compact", "Clean compacted topics now."),
    "configs": ("configs:configs", "Topic configs: describe, alter (kafka-configs)."),
    "consume": ("consume:consume", "Print a topic's records (kafka-console-consumer)."),
    "dashboard": ("dashboard:dashboard", "A dashboard for Grafana."),
    "delete-records": ("delete_records:delete", "Delete the records before an offset."),
    "dump-log": ("dump_log:dump_log", "What partitions' files hold (kafka-dump-log)."),
    "erase": ("erase:erase", "Records of some keys go for good; a report says which."),
    "export": ("moving:export", "Copy a topic to Kafka or to another log."),
    "fork": ("fork:fork", "A new log as this one stood after a commit."),
    "get-offsets": (
        "get_offsets:offsets", "Offsets by time, earliest, latest (kafka-get-offsets).",
    ),
    "handover": ("handover:handover", "Make a log one that a Kafka broker starts on."),
    "import": ("moving:import_", "Copy a topic from a live Kafka, offsets kept."),
    "kafka-users": ("kafka_users:users", "Users of serve --kafka, and what they may do."),
    "leader-election": (
        "leader_election:elect", "Offline partitions go on without what is missing.",
    ),
    "log-dirs": ("log_dirs:log_dirs", "Sizes of partitions; moving them (kafka-log-dirs)."),
    "metrics": ("metrics:metrics", "A log's metrics once, as Prometheus reads them."),
    "produce": ("produce:produce", "Append lines, JSON, CSV or Parquet to a topic."),
    "readers": ("readers:readers", "How far queries and other readers are; resets."),
    "reassign-partitions": (
        "reassign_partitions:reassign",
        "Move partitions, as kafka-reassign-partitions does.",
    ),
    "report": ("report:report", "A log as one HTML page."),
    "retain": ("upkeep:retain", "Delete what retention says; --dry-run: show it."),
    "serve": ("serve:serve", "Keep a log in shape: roll, expire, compact, tier."),
    "spark-conf": (
        "spark_conf:spark_conf", "Settings of Spark: the jar, checkpoints as logs.",
    ),
    "status": ("status:status", "Is the log healthy? Green, amber or red, and what helps."),
    "tier": ("tier:tier", "Segments in object storage: where they are, and back."),
    "topics": ("topics:topics", "A log's topics: list, describe, create, alter, delete."),
    "ui": ("ui:ui", "A log in a browser: its report, topics and records."),
    "verify": ("verify:verify", "Check a log; --repair: mend what can be mended."),
}  # fmt: skip


@click.group(
    cls=LazyGroup,
    lazy={name: (f"sparklog.cli.{place}", text) for name, (place, text) in _COMMANDS.items()},
    other_names=tool_words,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(sparklog.__version__, prog_name="sparklog", message="%(prog)s %(version)s")
@click.option("-v", "--verbose", count=True, help="Say what is done; twice: everything.")
def app(verbose: int) -> None:
    """Tools for a sparklog log directory (several joined by ",")."""
    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    handler = logging.StreamHandler()
    handler.setFormatter(RowFormatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])
    logging.getLogger("sparklog").setLevel(level)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    try:
        code = app.main(args=arguments, prog_name="sparklog", standalone_mode=False)
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
    except OSError as error:  # the disk that the output goes to is full, say
        drop_output()
        return _fail(f"{error.filename or 'standard output'}: {error.strerror or error}")
    return int(code or 0)


def _fail(text: str) -> int:
    click.ClickException(text).show()
    return EXIT_FAILED
