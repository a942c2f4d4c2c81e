"""The commands as one group, and what becomes of errors: one line, an exit code, no traceback."""

import contextlib
import logging
import os
import sys
from collections.abc import Sequence
from typing import Final

import click

import sparklog
from sparklog.cli.alerts import alerts
from sparklog.cli.archive import archive, points, prune, restore
from sparklog.cli.checkpoint import checkpoint
from sparklog.cli.configs import configs
from sparklog.cli.consume import consume
from sparklog.cli.delete_records import delete as delete_records
from sparklog.cli.dump_log import dump_log
from sparklog.cli.fork import fork
from sparklog.cli.get_offsets import offsets as get_offsets
from sparklog.cli.ledger import commits, readers
from sparklog.cli.log_dirs import log_dirs
from sparklog.cli.metrics import metrics
from sparklog.cli.moving import export, import_
from sparklog.cli.output import EXIT_FAILED, EXIT_MISUSED
from sparklog.cli.produce import produce
from sparklog.cli.report import report
from sparklog.cli.serve import serve
from sparklog.cli.spark_conf import spark_conf
from sparklog.cli.tier import tier
from sparklog.cli.topics import topics
from sparklog.cli.upkeep import compact, retain
from sparklog.cli.verify import verify
from sparklog.errors import InvalidRequestError, SparklogError

_EPILOG: Final = (
    "Exit codes: 0 all is well; 1 damage or a difference was found, or the command failed; "
    "2 wrong use; 130 stopped by Ctrl-C. Completion for bash: "
    'eval "$(_SPARKLOG_COMPLETE=bash_source sparklog)" '
    "(zsh_source, fish_source likewise)."
)


@click.group(epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(sparklog.__version__, prog_name="sparklog", message="%(prog)s %(version)s")
@click.option("-v", "--verbose", count=True, help="Say what is done; twice: everything.")
def app(verbose: int) -> None:
    """Tools for a sparklog log directory (several joined by ",")."""
    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("sparklog").setLevel(level)


app.add_command(alerts)
app.add_command(checkpoint)
app.add_command(commits)
app.add_command(compact)
app.add_command(configs)
app.add_command(consume)
app.add_command(delete_records)
app.add_command(dump_log)
app.add_command(export)
app.add_command(fork)
app.add_command(get_offsets)
app.add_command(import_)
app.add_command(log_dirs)
app.add_command(metrics)
app.add_command(produce)
app.add_command(readers)
app.add_command(report)
app.add_command(retain)
app.add_command(serve)
app.add_command(spark_conf)
app.add_command(tier)
app.add_command(topics)
app.add_command(verify)
for command in (archive, restore, points, prune):
    checkpoint.add_command(command)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    try:
        code = app.main(args=arguments, prog_name="sparklog", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return _say("stopped", 130)
    except BrokenPipeError:  # `sparklog ... | head`: the reader has had enough
        _drop_output()
        return EXIT_FAILED
    except InvalidRequestError as error:
        return _say(str(error), EXIT_MISUSED)
    except SparklogError as error:
        return _say(str(error), EXIT_FAILED)
    except OSError as error:  # the disk that the output goes to is full, say
        _drop_output()
        where = f"{error.filename}: " if error.filename else ""
        return _say(f"{where}{error.strerror or error}", EXIT_FAILED)
    return int(code or 0)


def _drop_output() -> None:
    """Let what is still to be written go nowhere, for the interpreter would complain at its end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(text: str, code: int) -> int:
    click.echo(f"sparklog: {' '.join(text.split())}", err=True)
    return code
