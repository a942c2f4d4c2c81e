"""`--crash-seed N` runs that one seed of the seeded tests again.

It needs tests/crash on the command line; SPARKLOG_CRASH_SEED=N works from anywhere.
"""

import os

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--crash-seed", type=int, default=None, help="run one crash seed, verbosely")


@pytest.fixture
def crash_seed(request: pytest.FixtureRequest) -> int | None:
    """The one seed to run, if the command line or the environment names one."""
    given: int | None = request.config.getoption("--crash-seed", default=None)
    named = os.environ.get("SPARKLOG_CRASH_SEED")
    return given if given is not None else int(named) if named else None
