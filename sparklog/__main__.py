"""`python -m sparklog`: the command `sparklog`, by the Python that is asked for."""

from sparklog.cli import main

if __name__ == "__main__":
    main()
