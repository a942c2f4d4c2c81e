"""A disk that hosts share."""

from sparklog.fs import LocalFileSystem


class Shared(LocalFileSystem):
    """A network file system, as far as its name tells: locks and fsync can't be relied on."""

    def kind(self, path: str) -> str:
        return "nfs4"
