"""Digests that stand for secrets in keys."""

import subprocess
import sys

from sparklog.secret_digest import secret_digest

GIVEN = {"secret": "s3cr3t", "nested": {"token": "t0k3n"}}
COMMAND = "from sparklog.secret_digest import secret_digest; print(secret_digest('s3cr3t'))"


def test_equal_options_have_one_digest_which_shows_nothing_of_them() -> None:
    digest = secret_digest("memory://a", GIVEN)
    assert secret_digest("memory://a", dict(reversed(GIVEN.items()))) == digest
    others = [("memory://b", GIVEN), ("memory://a", {**GIVEN, "secret": "other"}), (GIVEN,)]
    assert len({digest, *(secret_digest(*other) for other in others)}) == 4
    assert set(digest) <= set("0123456789abcdef")


def test_the_digest_of_another_process_confirms_no_guess() -> None:
    done = subprocess.run([sys.executable, "-c", COMMAND], capture_output=True, check=True)
    assert len(done.stdout.strip()) == len(secret_digest("s3cr3t"))
    assert done.stdout.strip().decode() != secret_digest("s3cr3t")
