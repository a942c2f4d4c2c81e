"""The command `sparklog`. Only this package needs the extra `cli`.

Exit codes: 0 success; 1 damage or a difference was found, or the command failed; 2 the command line
is wrong; 130 stopped by Ctrl-C; 141 the reader of the output has ended, as with `| head`.

- `app`: the list of commands, errors and exit codes; each command or family has a module:
  `import_export` (import, export), `ledger` (commits), `readers` and `reader_resets`, `archive`
  (checkpoint archive, restore, ...), all others by their names
- `command`, `parsing`, `output`, `findings`, `exit_codes`: shared by commands; `terminal`: safe
  output of a log's data on terminals
- `arguments`, `examples`: descriptions of each command's arguments, and examples of the command
- `kafka_tools`: names and flags of Kafka's tools
- `open_log`: opens the log of a command; `storage`: options of remote storage
"""

import os
import sys

from sparklog.cli.exit_codes import EXIT_MISUSED, EXIT_STOPPED
from sparklog.cli.terminal import guard_streams
from sparklog.extras import hint


def main() -> None:
    """Run the command line of this process and exit."""
    _fill_streams()
    guard_streams()
    try:
        from sparklog.cli.app import run

        code = run()
    except KeyboardInterrupt:  # before click handles it
        code = EXIT_STOPPED
    except ModuleNotFoundError as error:
        advice = hint(error)
        if advice is None:
            raise
        sys.stderr.write(f"Error: {advice}\n")
        code = EXIT_MISUSED
    sys.exit(code)


def _fill_streams() -> None:
    """Open missing standard streams (`>&-`), so that no file of a log gets their descriptors."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - for the process's life
