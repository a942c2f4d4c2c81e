"""Classifies a store's errors: transient or not, and what to do about it.

fsspec's implementations raise the errors of their libraries. They are classified by their common
properties (built-in classes, HTTP status, S3's error codes) and by class names, so that the
libraries need not be installed.
"""

import enum
import errno
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sparklog.errors import SparklogError, StorageUnavailableError


class Failure(enum.Enum):
    """Why a request failed. The value is the advice in the message."""

    PASSING = "is the store running, and does the network reach it? This is tried again by itself"
    MISSING = "there is no such object"
    BUCKET = "make the bucket, or correct the URL"
    CREDENTIALS = (
        "check key, secret and rights: storage options of this call, or the store's own places "
        "(environment, profile, instance role)"
    )
    CERTIFICATE = (
        "have the store's certificate trusted: for S3 the storage options "
        '{"client_kwargs": {"verify": "<ca.pem>"}}'
    )
    ADDRESS = (
        "correct where the store is: its endpoint_url (http or https, host, port) and its region: "
        "storage options of this call, or the store's own places (environment, profile)"
    )
    CLOCK = "set this machine's clock"
    RANGE = "ask for bytes before the object's end"
    OTHER = "see the store's message before this text"


_PASSING_STATUS: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_PASSING_CODES: Final = re.compile(
    "SlowDown|Throttl|TooManyRequests|RequestLimitExceeded|BandwidthLimitExceeded|RequestTimeout$"
    "|InternalError|ServiceUnavailable|OperationAborted|BadDigest|IncompleteBody"
    "|ConditionalRequestConflict"  # S3: another such request is in progress; undecided
    "|ContentSHA256Mismatch|ChecksumMismatch|ServerBusy|OperationTimedOut"
)
_PASSING_ERRNO: Final = frozenset(
    {
        errno.EAGAIN, errno.EBUSY, errno.ETIMEDOUT, errno.EREMOTEIO, errno.ENETDOWN, errno.EINTR,
        errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ESTALE, errno.EPIPE,
    }
)  # fmt: skip
_PASSING_NAMES: Final = frozenset(
    {
        "TimeoutError", "ConnectionError", "HTTPClientError", "ClientConnectionError",
        "ClientPayloadError", "IncompleteRead", "IncompleteReadError", "ResponseParserError",
        "ServiceRequestError", "ServiceResponseError", "TransportError", "ChecksumError",
        "FlexibleChecksumError", "gaierror",
    }
)  # fmt: skip
_CREDENTIAL_NAMES: Final = frozenset(
    {
        "PermissionError", "NoCredentialsError", "PartialCredentialsError", "NoAuthTokenError",
        "CredentialRetrievalError", "TokenRetrievalError", "ProfileNotFound",
        "ClientAuthenticationError", "DefaultCredentialsError", "RefreshError",
    }
)  # fmt: skip
_CERTIFICATE_NAMES: Final = frozenset(
    {"SSLCertVerificationError", "ClientConnectorCertificateError", "CertificateError"}
)
_ELSEWHERE: Final = re.compile(  # S3: the bucket exists, but at another address
    "PermanentRedirect|TemporaryRedirect|AuthorizationHeaderMalformed"
    "|IllegalLocationConstraintException|InvalidRegionName"
)
_NO_ENDPOINT: Final = "Invalid endpoint: "  # a ValueError of botocore
_REDIRECTS: Final = frozenset({301, 302, 307, 308})
_REFUSALS: Final = frozenset(
    {Failure.CREDENTIALS, Failure.CERTIFICATE, Failure.BUCKET, Failure.ADDRESS, Failure.CLOCK}
)
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
_SECRET: Final = re.compile("key|secret|token|pass|credential|connection_string|sas|auth", re.I)
_SECRET_CHARACTERS_MIN: Final = 6  # replacing shorter secrets would make messages unreadable


class RedirectedError(OSError):
    """The store redirects requests without saying where to."""

    status = 301


def failure_of(error: BaseException, outside: BaseException | None = None) -> Failure:
    """Classify an error of fsspec or of the libraries below.

    `outside`: the error that was being handled when the request was made, if any: Python chains it
    to new errors although it is unrelated.
    """
    for link in _chain(error, outside):
        failure = _of_one(link, told=link is error)
        if failure is not None:
            return failure
    return Failure.OTHER


def is_transient(error: Exception, outside: BaseException | None = None) -> bool:
    """Return True if the same request may succeed later.

    Returns False for sparklog's own errors, because their requests were retried already.
    """
    return not isinstance(error, SparklogError) and failure_of(error, outside) is Failure.PASSING


def is_refusal(error: BaseException, outside: BaseException | None = None) -> bool:
    """Return True if the store answered with a rejection of the request.

    The store may reject the credentials or the request itself (HTTP 4xx, except codes that mean
    "later"), or a disk may be full or mounted read-only. A request without an answer does not count
    as rejected.
    """
    failure = failure_of(error, outside)
    if failure in _REFUSALS:
        return True
    return failure is Failure.OTHER and any(
        400 <= (_code_and_status(link)[1] or 0) < 500
        or (isinstance(link, OSError) and link.errno in _FULL)
        for link in _chain(error, outside)
    )


def is_refused(error: StorageUnavailableError) -> bool:
    """Return True if the store refused the request that caused this error of a `Store`."""
    return error.__cause__ is not None and is_refusal(error.__cause__)


def says_exists(error: BaseException, outside: BaseException | None = None) -> bool:
    """Return True if a store refused to create an object because the object exists.

    HTTP 412 of S3 and Google, which s3fs turns into FileExistsError only if the answer names the
    condition (SeaweedFS's doesn't); 409 of Azure by its code, because S3's 409 decides nothing.
    """
    for link in _chain(error, outside):
        code, status = _code_and_status(link)
        # s3fs turns S3's 412 into FileExistsError only if the answer names the condition, which
        # SeaweedFS's answer doesn't.
        if status == 412 or code in ("PreconditionFailed", "BlobAlreadyExists"):
            return True
        if status is not None:  # adlfs raises FileExistsError for every 409
            return False
    return isinstance(error, FileExistsError) or type(error).__name__ == "AlreadyExistsError"


def _chain(error: BaseException, outside: BaseException | None = None) -> Iterator[BaseException]:
    """Yield an error and all causes. The innermost, with the store's own code, comes first."""
    links: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link is not outside and link not in links and len(links) < 16:
        links.append(link)
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    # The innermost error has the store's own code. The outer errors are the libraries'
    # translations.
    return reversed(links)


def _of_one(error: BaseException, *, told: bool) -> Failure | None:
    """Classify an error of a chain of errors, by its type, HTTP status and error code.

    Args:
        error: The error.
        told: True if the driver raised this error itself; False if the error is only the cause of
            another error.

    Returns:
        The kind of failure; None if this error alone does not show it.
    """
    code, status = _code_and_status(error)
    names = {kind.__name__ for kind in type(error).__mro__}
    if code == "NoSuchBucket" or code == "ContainerNotFound":
        return Failure.BUCKET
    if names & _CERTIFICATE_NAMES or getattr(error, "reason", "") == "CERTIFICATE_VERIFY_FAILED":
        return Failure.CERTIFICATE
    if status in _REDIRECTS or _ELSEWHERE.search(code) or str(error).startswith(_NO_ENDPOINT):
        return Failure.ADDRESS
    if code == "RequestTimeTooSkewed":
        return Failure.CLOCK
    if status == 416 or code == "InvalidRange":
        return Failure.RANGE
    if status in _PASSING_STATUS or _PASSING_CODES.search(code):
        return Failure.PASSING
    # A missing file that is only a cause says nothing about the object: it may be a certificate or
    # a token file.
    if (told and isinstance(error, FileNotFoundError)) or status == 404:
        return Failure.MISSING
    if names & _CREDENTIAL_NAMES or status in (401, 403):
        return Failure.CREDENTIALS
    if names & _PASSING_NAMES or (isinstance(error, OSError) and error.errno in _PASSING_ERRNO):
        return Failure.PASSING
    return None


def _code_and_status(error: BaseException) -> tuple[str, int | None]:
    """Return S3's error code ("" if none) and the HTTP status, from the libraries' attributes."""
    response = getattr(error, "response", None)
    if isinstance(response, Mapping):
        code = str(response.get("Error", {}).get("Code", ""))
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        if status is None and code.isdigit():
            status = int(code)
        return code, status if isinstance(status, int) else None
    for name in ("status_code", "status", "code"):  # Azure, aiohttp, Google
        status = getattr(error, name, None)
        if isinstance(status, int) and not isinstance(status, bool) and status >= 300:
            return str(getattr(error, "error_code", "")), status
    return str(getattr(error, "error_code", "")), None


def secrets_in(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the secrets in `storage_options` and the environment, for removal from messages."""
    secrets = set(_texts("", options))
    for name, value in os.environ.items():
        # A variable such as AWS_WEB_IDENTITY_TOKEN_FILE contains a path, which messages may show.
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_")) and not name.endswith("_FILE"):
            secrets.update(_texts(name, value))
    return tuple(sorted(secrets, key=len, reverse=True))


def message_of(error: BaseException) -> str:
    """Return the first line of an error's message, without the errno that Python prepends."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    first, _, _ = text.strip().partition("\n")  # Azure's messages have many lines
    return first.strip().rstrip(".") or repr(error)


def _texts(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(str(key), inner)
    elif isinstance(value, str) and len(value) >= _SECRET_CHARACTERS_MIN and _SECRET.search(name):
        yield value


def without(text: str, secrets: tuple[str, ...]) -> str:
    """Return `text` with each secret replaced."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


def may_show(error: BaseException, secrets: tuple[str, ...]) -> bool:
    """Return True if an error can be chained: no error in its chain contains a secret."""
    return not any(secret in str(link) for link in _chain(error) for secret in secrets)
