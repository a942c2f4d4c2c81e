"""Requests of s3fs are sent once, unless the caller asks for another client."""

import pytest

from sparklog.tiered.object_store.s3_driver import S3Driver
from sparklog.tiered.object_store.s3_session import is_supported
from sparklog.tiered.target import open_store


@pytest.mark.parametrize(
    ("config", "once"),
    [
        ({}, True),
        ({"read_timeout": 5}, True),
        ({"retries": {"total_max_attempts": 3}}, False),
        ({"http_session_cls": object}, False),
    ],
)
def test_a_client_that_may_repeat_requests_is_known(config: dict[str, object], once: bool) -> None:
    assert is_supported()
    store = open_store("s3://bucket/log", {"config_kwargs": config} if config else {})
    assert isinstance(store._driver, S3Driver)
    assert store.sends_once is once
