"""The command `sparklog`. It needs the extra `cli`; the rest of the package does without.

Exit codes: 0 all is well; 1 damage or a difference was found, or the command failed; 2 wrong use;
130 stopped by Ctrl-C; 141 nobody reads the output any more, as of `| head`.

- `app`: the list of commands, errors, exit codes; a module for each command or family of them:
  `import_export` (import, export), `ledger` (commits), `readers` and
  `reader_resets`, `archive` (checkpoint archive, restore, ...), all others by their names
- `command`, `parsing`, `output`, `arrow_tables`, `findings`, `stop_signal`, `exit_codes`: what
  commands share; `terminal`: what a terminal is shown of a log's own bytes
- `examples`: a call of each command
- `kafka_tools`: Kafka's tools by their names, and Kafka's flags
- `open_log`: the log that a command works on; `storage`: how remote storage is reached
"""

import os
import sys

from sparklog.cli.exit_codes import EXIT_MISUSED, EXIT_STOPPED
from sparklog.cli.terminal import guard_streams
from sparklog.extras import hint


def main() -> None:
    """Run the command line of this process and leave it."""
    _fill_streams()
    guard_streams()
    try:
        from sparklog.cli.app import run

        code = run()
    except KeyboardInterrupt:  # before click took over
        code = EXIT_STOPPED
    except ModuleNotFoundError as error:
        said = hint(error)
        if said is None:
            raise
        sys.stderr.write(f"Error: {said}\n")
        code = EXIT_MISUSED
    sys.exit(code)


def _fill_streams() -> None:
    """Open what the process was started without (`>&-`), lest a log's file get its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - for the process's life
