"""Write what the blocks print into the pages: python -m tests.doc_blocks --write [PAGE ...]."""

import argparse
import os
import subprocess
import sys

from tests.doc_blocks.run import WRITE
from tests.paths import ROOT

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="change the pages; else only compare")
    parser.add_argument("pages", nargs="*", help="README.md, docs/tour.md, ...; all of them")
    given = parser.parse_args()
    if given.write:
        os.environ[WRITE] = "1"
    files = ["tests/test_pages.py", "tests/spark/test_pages.py"]
    chosen = ["-k", " or ".join(p for p in given.pages if p != "or")] if given.pages else []
    # In a process of its own: pytest rewrites the asserts of what isn't imported yet.
    command = [sys.executable, "-m", "pytest", "-n0", "-q", "-m", "not slow", *chosen, *files]
    sys.exit(subprocess.run(command, cwd=ROOT).returncode)
