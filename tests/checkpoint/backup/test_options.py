"""Options of the stores of a checkpoint and its archive."""

from typing import Any

import pytest

from sparklog.checkpoint import archive, fork, history, restore
from sparklog.errors import StorageUnavailableError
from tests.checkpoint.conftest import Golden
from tests.tiered.s3 import S3Server

pytestmark = pytest.mark.s3


def test_options_of_a_checkpoint_and_its_archive(golden: Golden, s3: S3Server) -> None:
    """Each has its own, and the message names the one that is refused."""
    path, copy, points = golden("hdfs"), f"{s3.bucket()}/copy", f"{s3.bucket()}/points"
    right, wrong = s3.options(), s3.options(secret="wrong")
    fork(path, copy, to=history(path).batches[-1].batch, storage_options=right)

    def refused(place: str, own: dict[str, Any], storage_options: dict[str, Any]) -> None:
        given: Any = {"checkpoint_storage_options": own, "storage_options": storage_options}
        with pytest.raises(StorageUnavailableError, match=place):
            archive(copy, points, **given)
        with pytest.raises(StorageUnavailableError, match=place):
            restore(points, f"{copy}-2", **given)

    archive(copy, points, storage_options=right)
    refused(points, right, wrong)
    refused(copy, wrong, right)
    archive(copy, points, storage_options=right, checkpoint_storage_options=right)
    done = restore(points, f"{copy}-2", storage_options=right, checkpoint_storage_options=right)
    assert history(done.path, storage_options=right).batches
