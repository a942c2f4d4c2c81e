"""Registry of object stores: which driver, package and capabilities each URL scheme has.

Other packages add a scheme through the entry-point group `sparklog.object_stores`: the name of the
entry point is the scheme, its value an `ObjectStoreType`. docs/bucket.md has an example.
"""

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, Protocol

from sparklog.errors import InvalidRequestError
from sparklog.tiered.object_store.driver import Driver
from sparklog.tiered.object_store.file_driver import LocalDriver
from sparklog.tiered.object_store.fsspec_driver import (
    AzureDriver,
    Connection,
    FsspecDriver,
    GoogleDriver,
    HdfsDriver,
    WholeObjectDriver,
)
from sparklog.tiered.object_store.memory_driver import MemoryDriver
from sparklog.tiered.object_store.s3_driver import PART_BYTES_MIN, S3Driver
from sparklog.tiered.object_store.s3_driver import options as s3_options

GROUP: Final = "sparklog.object_stores"
"""The group of entry points in which other packages register their object stores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """Limits that a driver has to respect.

    Attributes:
        parallel: How many requests may be sent at the same time. A connection pool should be as
            large.
        timeout_ms: After this time without an answer a request fails with TimeoutError.

    Examples:
        >>> from sparklog.tiered import RequestLimits
        >>> limits = RequestLimits(parallel=16, timeout_ms=30_000)
    """

    parallel: int
    timeout_ms: int


class OpenDriver(Protocol):
    """Makes the driver of a URL. No request is sent before the driver's first method is called.

    Examples:
        >>> from sparklog.tiered import OpenDriver
        >>> def open_driver(url, storage_options, limits):
        ...     raise ImportError("sketchdb")
        >>> factory: OpenDriver = open_driver
    """

    def __call__(
        self, url: str, storage_options: Mapping[str, Any], limits: RequestLimits, /
    ) -> Driver:
        """Return the driver.

        Args:
            url: The user's URL, without a slash at the end.
            storage_options: The user's options for this store: credentials, endpoint, ... Messages
                must not show them.
            limits: How many requests run at the same time, and for how long.

        Raises:
            ImportError: The library of the store is not installed.
            TypeError: An option that the store does not know. Drivers may also raise ValueError and
                KeyError.
            OSError: The library can't be loaded, or the store can't be reached.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectStoreType:
    """A kind of object store, which the scheme of a URL selects.

    A package adds a kind with an entry point in the group `sparklog.object_stores`.

    Attributes:
        schemes: The schemes of the URLs. URLs that differ in the scheme only name the same objects;
            URLs are compared by the first scheme.
        open: Makes the driver of a URL.
        package: The argument of `pip install` that installs the store's library, or "" without a
            package.
        part_bytes_min: The smallest part, in bytes, of an object that is sent in parts. The last
            part may be smaller.
        needs_two_slashes: Whether `scheme:/name` is no valid spelling of `scheme:///name`.

    Examples:
        >>> from sparklog.tiered import ObjectStoreType
        >>> def open_driver(url, storage_options, limits):
        ...     raise ImportError("sketchdb")
        >>> ObjectStoreType(schemes=("sketch",), open=open_driver, package="sketchdb").schemes
        ('sketch',)
    """

    schemes: tuple[str, ...]
    open: OpenDriver
    package: str = ""
    part_bytes_min: int = 0
    needs_two_slashes: bool = True


def _over_fsspec(driver: type[FsspecDriver]) -> OpenDriver:
    """Return the function that opens a driver over fsspec's file system of the same scheme."""

    def open_driver(url: str, given: Mapping[str, Any], limits: RequestLimits, /) -> FsspecDriver:
        return driver(url, _connect(url, given, given))

    return open_driver


def _connect(url: str, given: Mapping[str, Any], options: Mapping[str, Any]) -> Connection:
    from fsspec.core import url_to_fs

    def make() -> tuple[Any, str]:
        # A separate instance, not fsspec's shared instance: the driver changes its retries, and
        # must not see a listing that another user of the shared instance has cached.
        made: tuple[Any, str] = url_to_fs(
            url, **{**options, "use_listings_cache": False, "skip_instance_cache": True}
        )
        return made

    return Connection(make, {**given, "protocol": usual_scheme(scheme_of(url))})


def _open_s3(url: str, given: Mapping[str, Any], limits: RequestLimits, /) -> Driver:
    connection = _connect(url, given, s3_options(given, limits.parallel))
    return S3Driver(url, connection, limits.timeout_ms)


def _open_files(url: str, given: Mapping[str, Any], limits: RequestLimits, /) -> Driver:
    path = url.partition(":")[2].removeprefix("//")  # Hadoop writes file:/directory
    return LocalDriver(os.path.abspath(path or "/"))  # file:/// comes without its slashes


_BUILT_IN: Final = (
    ObjectStoreType(schemes=("file", "local"), open=_open_files, needs_two_slashes=False),
    ObjectStoreType(schemes=("memory",), open=_over_fsspec(MemoryDriver), needs_two_slashes=False),
    ObjectStoreType(
        schemes=("s3", "s3a", "s3n"), open=_open_s3, package="sparklog[s3]",
        part_bytes_min=PART_BYTES_MIN,
    ),
    ObjectStoreType(schemes=("gs", "gcs"), open=_over_fsspec(GoogleDriver), package="gcsfs"),
    ObjectStoreType(
        schemes=("abfs", "abfss", "az"), open=_over_fsspec(AzureDriver), package="adlfs"
    ),
    ObjectStoreType(schemes=("oss",), open=_over_fsspec(WholeObjectDriver), package="ossfs"),
    ObjectStoreType(schemes=("hdfs",), open=_over_fsspec(HdfsDriver)),
)  # fmt: skip


def scheme_of(url: str) -> str:
    """Return the scheme of a URL."""
    return url.partition(":")[0].lower()


def usual_scheme(scheme: str) -> str:
    """Return the scheme by which URLs of a kind of object store are compared."""
    return store_type(scheme).schemes[0]


@functools.cache
def store_type(scheme: str) -> ObjectStoreType:
    """Return the object store of a URL scheme.

    sparklog's own come first, then those that installed packages register, then any file system of
    fsspec, of which only the common denominator is known: files are written under another name and
    renamed, and no object is created on the condition that there is none.

    Raises:
        InvalidRequestError: A package registers something that is no object store, can't be
            imported, or registers a scheme that another package has registered too.

    Cost: a look at the metadata of all installed packages, once per scheme that isn't built in.
    """
    for each in _BUILT_IN:
        if scheme in each.schemes:
            return each
    # A package that is on the path twice is listed twice.
    points = {point.value: point for point in entry_points(group=GROUP, name=scheme)}
    registered = list(points.values())
    if len(registered) > 1:
        packages = ", ".join(sorted(_package_of(point) for point in registered))
        raise InvalidRequestError(
            f"{scheme}://: {packages} register an object store for this scheme; uninstall all but "
            "a single package"
        )
    if registered:
        return _load(registered[0])
    return ObjectStoreType(schemes=(scheme,), open=_over_fsspec(FsspecDriver))


def _load(point: EntryPoint) -> ObjectStoreType:
    place = f"the entry point {point.name} = {point.value} of {_package_of(point)}"
    try:
        loaded = point.load()
    except Exception as error:
        raise InvalidRequestError(
            f"{point.name}://: {place} can't be imported ({type(error).__name__}: {error}); "
            "install a working version of this package, or uninstall it"
        ) from error
    if not isinstance(loaded, ObjectStoreType) or point.name not in loaded.schemes:
        raise InvalidRequestError(
            f"{point.name}://: {place} is not a sparklog.tiered.ObjectStoreType of this scheme; "
            "install a working version of this package, or uninstall it"
        )
    return loaded


def _package_of(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "an installed package"
