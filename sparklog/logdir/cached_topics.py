"""A writer's cache of topic metadata between micro-batches."""

import os
from collections.abc import Callable

from sparklog.logdir.commit_log import LogDirCommits
from sparklog.logdir.topics_file import TOPICS_NAME
from sparklog.storage.view import TopicInfo


class CachedTopics:
    """The topics of a log that is open for writing, read again if the topics file changed."""

    def __init__(self) -> None:
        self._stamp: tuple[int, ...] = ()
        self._topics: dict[str, TopicInfo] = {}

    def read(
        self, commits: LogDirCommits, topics: Callable[[], dict[str, TopicInfo]]
    ) -> dict[str, TopicInfo]:
        """Return the result of `topics`. Cost: two stats if it is cached.

        Raises: LogReplacedError: the log was removed since it was opened.
        """
        path = os.path.join(commits.home, TOPICS_NAME)
        try:
            stamp = (*commits.file_id, *commits.fs.identity(path), commits.fs.mtime_ms(path))
        except FileNotFoundError:
            with commits.exclusive():  # raises if the log was removed
                return dict(topics())
        if stamp != self._stamp:
            self._stamp, self._topics = stamp, topics()
        return dict(self._topics)
