"""`python -m sparklog`: runs the command `sparklog` with this Python."""

from sparklog.cli import main

if __name__ == "__main__":
    main()
