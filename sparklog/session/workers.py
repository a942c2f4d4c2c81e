"""Check whether Spark's Python workers can import sparklog without --py-files."""

import functools
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from typing import Final

_PYTHON_KEY: Final = "spark.pyspark.python"
_MASTER_KEY: Final = "spark.master"
_TIMEOUT_S: Final = 60
_LOOK: Final = "import importlib.util as u, sys; sys.exit(u.find_spec('sparklog') is None)"


def workers_find_daemon(conf: Mapping[str, str]) -> bool:
    """Return whether sparklog is known to be installed for the Python of a session's workers.

    False on a cluster, where this is unknown. `conf`: the session's settings. Cost: starts that
    Python, once.
    """
    submitted = _submitted()
    master = conf.get(_MASTER_KEY) or submitted.get(_MASTER_KEY) or "local"
    if re.fullmatch(r"local(\[.*\])?", master) is None:
        return False
    given = conf.get(_PYTHON_KEY) or submitted.get(_PYTHON_KEY)
    return _finds(given or os.environ.get("PYSPARK_PYTHON") or sys.executable)


@functools.cache
def _finds(python: str) -> bool:
    """Check without PYTHONPATH, which has the --py-files in a driver but not in the daemon."""
    try:
        done = subprocess.run(
            [python, "-E", "-c", _LOOK], cwd="/", capture_output=True, timeout=_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _submitted() -> dict[str, str]:
    """Return the settings of spark-submit: of the running driver, or PYSPARK_SUBMIT_ARGS."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        from pyspark import SparkConf, SparkContext

        SparkContext._ensure_initialized()
        return dict(SparkConf().getAll())
    found = re.search(r"--master[ =](\S+)", os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    return {} if found is None else {_MASTER_KEY: found[1]}
