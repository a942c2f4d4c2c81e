"""`python -m sparklog.cli`, for environments without the script."""

from sparklog.cli import main

main()
