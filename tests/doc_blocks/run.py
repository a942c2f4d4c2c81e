"""A page's session as a test has it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests import depth
from tests.doc_blocks import pages
from tests.doc_blocks.session import Session
from tests.tiered.s3 import KEY, SECRET

WRITE = "SPARKLOG_DOCS_WRITE"


def cases(*, spark: bool) -> list[Any]:
    """The pages with code that runs, those that name `spark` or the others."""
    return [
        pytest.param(
            page,
            id=pages.name_of(page),
            marks=[pytest.mark.deep] if pages.is_deep(page) else [],
        )
        for page in pages.PAGES
        if pages.runs(page) and pages.wants_spark(page) == spark
    ]


def run(page: Path, directory: Path, request: pytest.FixtureRequest, **namespace: Any) -> Session:
    """Run the page; with WRITE in the environment, write what it prints into it."""
    bucket, environment = "", {}
    if pages.wants_s3(page):
        server = request.getfixturevalue("s3")
        bucket, endpoint = server.bucket(), server.options()["endpoint_url"]
        keys = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
        environment = {"AWS_ENDPOINT_URL": endpoint, **keys}
    session = Session(
        page, directory, bucket=bucket, environment=environment,
        namespace={"__name__": "__main__", **namespace}, write=bool(os.environ.get(WRITE)),
        in_process=depth.by_depth(small=True, ci=True, all=False),
        spark_in_tests=depth.by_depth(small=False, ci=True, all=True),
    )  # fmt: skip
    session.run()
    return session
