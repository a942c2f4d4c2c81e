"""The S3 server that the tests of a worker share."""

from collections.abc import Iterator

import pytest

from tests import jars
from tests.tiered.s3 import Minio, S3Server, Unavailable, started


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A running server; a test that stops it starts it again. Skips where there is none."""
    try:
        server = started(tmp_path_factory.mktemp("s3"))
    except Unavailable as reason:
        pytest.skip(f"S3: {reason}")
    yield server
    server.kill()


@pytest.fixture(scope="session")
def minio() -> Iterator[Minio]:
    """A MinIO server in a container. Skips where there is no Docker engine."""
    try:
        server = Minio()
    except jars.Unavailable as reason:
        pytest.skip(f"MinIO: {reason}")
    yield server
    server.remove()
