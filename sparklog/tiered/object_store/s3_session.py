"""An HTTP session for s3fs that sends each request exactly once.

aiohttp sends a PUT a second time if the connection breaks before an answer arrives. The answer to
the second request contains no information about the first, so a rejected commit could not be
distinguished from a successful commit. The retries of `ObjectStore` replace the retries of aiohttp.
"""

import inspect

import aiohttp
from aiobotocore.config import AioConfig  # type: ignore[import-untyped]
from aiobotocore.httpsession import AIOHTTPSession  # type: ignore[import-untyped]

_SWITCH = "_retry_connection"  # aiohttp's own test client sets it as well


class SingleSendSession(AIOHTTPSession):  # type: ignore[misc]
    """A session of aiobotocore with requests that aiohttp does not repeat."""

    async def _get_session(self, proxy_url: str | None) -> aiohttp.ClientSession:
        session: aiohttp.ClientSession = await super()._get_session(proxy_url)
        setattr(session, _SWITCH, False)
        return session


def is_supported() -> bool:
    """Return whether `SingleSendSession` works with the installed aiobotocore and aiohttp."""
    return (
        "http_session_cls" in inspect.signature(AioConfig).parameters
        and hasattr(AIOHTTPSession, "_get_session")
        and _SWITCH in aiohttp.ClientSession.ATTRS
    )
