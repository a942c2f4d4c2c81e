"""Errors of fsspec's libraries, told apart without those libraries where they aren't there."""

import errno
import ssl

import pytest

from sparklog.errors import StorageUnavailableError
from sparklog.tiered.object_store.failures import (
    Failure,
    RedirectedError,
    failure_of,
    is_refusal,
    is_transient,
    may_show,
    message_of,
    secrets_in,
    without,
)


class FakeClientError(Exception):
    """In the form of botocore's."""

    def __init__(self, code: str, status: int | None = None) -> None:
        super().__init__(f"An error occurred ({code})")
        metadata = {} if status is None else {"HTTPStatusCode": status}
        self.response = {"Error": {"Code": code}, "ResponseMetadata": metadata}


class HttpError(Exception):
    """In the form of gcsfs's (`code`), adlfs's (`status_code`) and aiohttp's (`status`)."""

    def __init__(self, **attributes: object) -> None:
        super().__init__("http")
        self.__dict__.update(attributes)


class ServiceRequestError(Exception):
    """Azure's for a connection that failed."""


class RefreshError(Exception):
    """Google's for credentials that can't be renewed."""


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


MEANINGS = [
    (TimeoutError(), Failure.PASSING),
    (ConnectionResetError(), Failure.PASSING),
    (BrokenPipeError(), Failure.PASSING),
    (OSError(errno.EHOSTUNREACH, "no route"), Failure.PASSING),
    (OSError(errno.EREMOTEIO, "internal error"), Failure.PASSING),
    (ServiceRequestError(), Failure.PASSING),
    (FakeClientError("SlowDown", 503), Failure.PASSING),
    (FakeClientError("InternalError", 500), Failure.PASSING),
    (FakeClientError("503"), Failure.PASSING),
    (FakeClientError("RequestTimeout", 400), Failure.PASSING),
    (FakeClientError("ThrottlingException", 400), Failure.PASSING),
    (FakeClientError("BadDigest", 400), Failure.PASSING),
    (FakeClientError("XAmzContentSHA256Mismatch", 400), Failure.PASSING),
    (caused(OSError(errno.EIO, "?"), FakeClientError("TooManyRequests", 429)), Failure.PASSING),
    (HttpError(code=502), Failure.PASSING),
    (HttpError(status_code=429), Failure.PASSING),
    (HttpError(status=504), Failure.PASSING),
    (FileNotFoundError(), Failure.MISSING),
    (caused(FileNotFoundError(), FakeClientError("NoSuchKey", 404)), Failure.MISSING),
    (HttpError(code=404), Failure.MISSING),
    (caused(FileNotFoundError(), FakeClientError("NoSuchBucket", 404)), Failure.BUCKET),
    (HttpError(status_code=404, error_code="ContainerNotFound"), Failure.BUCKET),
    (PermissionError(), Failure.CREDENTIALS),
    (FakeClientError("ExpiredToken", 403), Failure.CREDENTIALS),
    (HttpError(status_code=401), Failure.CREDENTIALS),
    (RefreshError(), Failure.CREDENTIALS),
    (ssl.SSLCertVerificationError(1, "certificate verify failed"), Failure.CERTIFICATE),
    (
        caused(ConnectionError(), ssl.SSLCertVerificationError(1, "certificate verify failed")),
        Failure.CERTIFICATE,
    ),
    (FakeClientError("InvalidRange", 416), Failure.RANGE),
    (FakeClientError("PermanentRedirect", 301), Failure.ADDRESS),
    (FakeClientError("301", 301), Failure.ADDRESS),
    (FakeClientError("AuthorizationHeaderMalformed", 400), Failure.ADDRESS),
    (HttpError(status=308), Failure.ADDRESS),
    (RedirectedError(), Failure.ADDRESS),
    (ValueError("Invalid endpoint: host:9000"), Failure.ADDRESS),
    (caused(PermissionError(), FakeClientError("RequestTimeTooSkewed", 403)), Failure.CLOCK),
    (FakeClientError("InvalidBucketName", 400), Failure.OTHER),
    (OSError(errno.ENOSPC, "full"), Failure.OTHER),
    (ValueError("?"), Failure.OTHER),
]


@pytest.mark.parametrize("at", range(len(MEANINGS)))
def test_what_errors_mean(at):
    error, failure = MEANINGS[at]
    assert failure_of(error) is failure
    assert is_transient(error) is (failure is Failure.PASSING)


REFUSALS = [
    (PermissionError(), True),
    (FakeClientError("AccessDenied", 403), True),
    (FakeClientError("ExpiredToken", 400), True),
    (FakeClientError("EntityTooLarge", 400), True),
    (FakeClientError("NoSuchBucket", 404), True),
    (FakeClientError("RequestTimeTooSkewed", 403), True),
    (OSError(errno.ENOSPC, "full"), True),
    (OSError(errno.EROFS, "read-only"), True),
    (FakeClientError("ConditionalRequestConflict", 409), False),
    (FakeClientError("SlowDown", 503), False),
    (FakeClientError("RequestTimeout", 400), False),
    (FakeClientError("InternalError", 500), False),
    (HttpError(status=429), False),
    (OSError(errno.EIO, "input/output error"), False),
    (TimeoutError(), False),
    (ConnectionResetError(), False),
    (ValueError("anything"), False),
]


@pytest.mark.parametrize("at", range(len(REFUSALS)))
def test_which_answers_are_refusals(at):
    error, refused = REFUSALS[at]
    assert is_refusal(error) is refused
    assert is_refusal(caused(StorageUnavailableError("ours"), error)) is refused


def test_what_was_tried_again_already_is_not_tried_once_more():
    assert not is_transient(caused(StorageUnavailableError("tried"), TimeoutError()))


def test_a_hidden_cause_counts_for_nothing():
    error = ValueError("ours")
    error.__context__ = TimeoutError()
    assert is_transient(error)
    error.__suppress_context__ = True
    assert not is_transient(error)


def test_secrets_are_found_wherever_they_are(monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "from-the-environment")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/a/path/to/show")
    options = {
        "key": "AKIA-identity",
        "secret": "longer-than-that",
        "endpoint_url": "https://store.example",
        "client_kwargs": {"aws_session_token": "token-within", "region_name": "eu-central-1"},
        "sas_token": "sig=abcdef",
        "token": "s",
        "anon": False,
    }
    secrets = secrets_in(options)
    text = " ".join([*map(str, options.values()), "from-the-environment", "/a/path/to/show"])
    shown = without(text, secrets)
    for secret in ("AKIA-identity", "longer-than-that", "token-within", "sig=abcdef", "from-the"):
        assert secret not in shown
    assert "https://store.example" in shown and "eu-central-1" in shown and "/a/path" in shown


def test_a_secret_within_another_leaves_no_rest():
    secrets = secrets_in({"secret": "secret-and-more", "key": "secret-and"})
    assert without("secret-and-more", secrets) == "***"


def test_an_error_whose_cause_holds_a_secret_is_not_chained():
    inner = caused(OSError("failed"), ValueError("connection to key=topsecret"))
    assert not may_show(inner, ("topsecret",))
    assert may_show(inner, ("another",))


def test_words():
    assert message_of(OSError(121, "We met an error.")) == "We met an error"
    assert message_of(ValueError("why")) == "why"
    assert (
        message_of(ValueError("No such container.\r\nRequestId: 1\nTime: 2")) == "No such container"
    )
    assert message_of(TimeoutError()) == "TimeoutError()"
