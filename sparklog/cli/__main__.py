"""`python -m sparklog.cli`, for where no script was installed."""

from sparklog.cli import main

main()
