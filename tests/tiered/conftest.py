"""The S3 server that the tests of a worker share."""

from collections.abc import Iterator

import pytest

from tests import jars
from tests.tiered.s3 import Minio


@pytest.fixture(scope="session")
def minio() -> Iterator[Minio]:
    """A MinIO server in a container. Skips where there is no Docker engine."""
    with jars.or_skip("MinIO"):
        server = Minio()
    yield server
    server.remove()
