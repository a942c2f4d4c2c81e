"""The command `sparklog`. It needs the extra `cli`; the rest of the package does without.

Exit codes: 0 all is well; 1 damage or a difference was found, or the command failed; 2 wrong use.
"""

import sys


def main() -> None:
    """Run the command line of this process and leave it."""
    try:
        from sparklog.cli.app import run
    except ModuleNotFoundError as error:
        if error.name not in ("click", "rich"):
            raise
        sys.stderr.write(
            f"sparklog: the command line needs {error.name}; run: pip install 'sparklog[cli]'\n"
        )
        sys.exit(2)
    sys.exit(run())
