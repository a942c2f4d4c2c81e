"""Directories that are made beside their names, and what is swept of those that were left."""

import os
from pathlib import Path

from sparklog.fs import LOCAL
from sparklog.logdir.staged_directory import StagedDirectories, remove_all


def test_a_link_that_somebody_put_there_leads_nowhere(tmp_path: Path) -> None:
    """In a directory that others write to, /tmp say, what is left over may be a trap."""
    others = tmp_path / "others"
    (others / "deep").mkdir(parents=True)
    (others / "deep" / "file").write_bytes(b"theirs")
    trap = tmp_path / ".new.archive-0123" / "new"
    trap.mkdir(parents=True)
    os.symlink(others, trap / "link")
    os.symlink(others / "deep" / "file", trap / "file")
    os.symlink(others, tmp_path / ".new.archive-4567")
    with StagedDirectories(LOCAL, [str(tmp_path / "new")], "archive"):
        pass
    assert not trap.exists()
    assert (others / "deep" / "file").read_bytes() == b"theirs"
    os.symlink(others, tmp_path / "link")
    remove_all(LOCAL, str(tmp_path / "link"))
    assert sorted(os.listdir(others)) == ["deep"]
    assert sorted(os.listdir(tmp_path)) == [".new.archive-4567", "others"]
