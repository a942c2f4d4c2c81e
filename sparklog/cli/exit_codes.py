"""Exit codes of the command `sparklog`, which docs/cli.md explains."""

from typing import Final

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_MISUSED: Final = 2
EXIT_STOPPED: Final = 130
EXIT_UNREAD: Final = 141
