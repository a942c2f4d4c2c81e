"""`Gate`: checks the Host header, method and token of every request, and adds security headers.

The pages are read-only: the server accepts GET and HEAD, and POST for login and logout. Every
response closes its connection. A request is cancelled when its client disconnects.
"""

import logging
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qs, quote, unquote_to_bytes

import anyio
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sparklog.errors import InvalidRequestError
from sparklog.ui.access import Access
from sparklog.ui.page_request import INTERNAL_ERROR, PageRequest
from sparklog.ui.templating import document, policy_of_data, render

TARGET_MAX: Final = 32 << 10
"""Maximum bytes of path and query together."""
_FORM_MAX: Final = 8 << 10
# Bytes of a response that are sent at once. The transport copies them, and retains the copy for
# a client that doesn't read: so at most this much, not a second copy of the whole response.
_PIECE: Final = 256 << 10
_LOGGER: Final = logging.getLogger("sparklog.ui")


def common_headers() -> dict[str, str]:
    """Return the default headers of a response. A header that a page sets itself wins."""
    return {
        "Content-Security-Policy": policy_of_data(),
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cache-Control": "no-store",
        "Connection": "close",
        "Date": formatdate(usegmt=True),
    }


class Gate:
    """The ASGI application that a server runs: `site` behind the checks of `access`."""

    def __init__(self, site: ASGIApp, access: Access, port: int) -> None:
        self._site, self._access, self._port = site, access, port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, started = Request(scope, receive), False

        async def send_safely(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                _LOGGER.debug("%s %.500r: %s", request.method, scope["path"], message["status"])
                headers = MutableHeaders(scope=message)
                for name, value in common_headers().items():
                    headers.setdefault(name, value)
                await send(message)
                return
            body = message["body"]
            for start in range(0, len(body), _PIECE):
                piece = body[start : start + _PIECE]
                await send({**message, "body": piece, "more_body": True})
            await send({**message, "body": b""})

        try:
            answer = await self._answer(request)
        except InvalidRequestError as error:
            answer = _text(str(error), HTTPStatus.BAD_REQUEST)
        except ClientDisconnect:
            return
        except Exception as error:  # noqa: BLE001 - the client gets a response in any case
            answer = _failed(scope, error)
        # The response and `watch` run side by side: whichever ends first cancels the other, so a
        # page is no longer computed when its client has disconnected.
        async with anyio.create_task_group() as group:

            async def watch() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                group.cancel_scope.cancel()

            group.start_soon(watch)
            try:
                await answer(scope, receive, send_safely)
            except Exception as error:
                if started:  # the status has been sent; closing the connection shows the failure
                    raise
                await _failed(scope, error)(scope, receive, send_safely)
            group.cancel_scope.cancel()

    async def _answer(self, request: Request) -> ASGIApp:
        """Return the site, or the response that rejects the request."""
        scope, access, path = request.scope, self._access, request.scope["path"]
        if not access.is_own_name(request.headers.get("Host", "")):
            return _text(
                "the Host header contains an unknown name: the server accepts localhost, 127.0.0.1 "
                "and the names of --ui-name", HTTPStatus.FORBIDDEN,
            )  # fmt: skip
        target = scope["raw_path"] + b"?" + scope["query_string"]
        if len(target) > TARGET_MAX:
            return _text(
                f"path and query of the request are longer than {TARGET_MAX} bytes",
                HTTPStatus.REQUEST_URI_TOO_LONG,
            )
        # No topic name contains a zero byte, and file system calls raise ValueError for one.
        if b"\0" in unquote_to_bytes(target):
            raise InvalidRequestError("path or query of the request contains a zero byte")
        if request.method == "POST" and access.asks and path in ("/login", "/logout"):
            return await self._posted(request)
        if request.method not in ("GET", "HEAD"):
            return _text(
                "the pages are read-only and accept GET and HEAD", HTTPStatus.METHOD_NOT_ALLOWED,
                {"Allow": "GET, HEAD"},
            )  # fmt: skip
        if access.asks and path == "/login":
            return _login_page(request)
        request.state.admitted = access.admits(request.headers, self._port)
        # /healthz is open to probes without a token, which get nothing but the level.
        if request.state.admitted or path == "/healthz":
            return self._site
        if "text/html" in request.headers.get("Accept", ""):
            to = target.decode().removesuffix("?")
            return _login_page(request, HTTPStatus.UNAUTHORIZED, to=to)
        return _text(
            "the token is missing or wrong: send it as `Authorization: Bearer TOKEN`, or log in at "
            "/login",
            HTTPStatus.UNAUTHORIZED, {"WWW-Authenticate": 'Bearer realm="sparklog"'},
        )  # fmt: skip

    async def _posted(self, request: Request) -> Response:
        """Handle the login form and the logout button."""
        # Browsers set this header: a form on another site must not log the viewer in or out.
        access, port = self._access, self._port
        site = request.headers.get("Sec-Fetch-Site", "same-origin")
        if site not in ("same-origin", "none"):
            return _text("the form was sent from a page of another site", HTTPStatus.FORBIDDEN)
        if request.scope["path"] == "/logout":
            return _redirect("./", access.end_cookie(port))
        form = await _form(request)
        to = form.get("to", [""])[0].lstrip("/\\")
        if not access.is_token(form.get("token", [""])[0].strip()):
            client = "a client" if request.client is None else request.client.host
            _LOGGER.warning("%s sent a wrong token", client)
            return _login_page(request, HTTPStatus.UNAUTHORIZED, to=to, wrong=True)
        # Relative to /login, whatever `to` is: it can't lead to another site.
        place = "./" + quote(to, safe="/?&=%+:,_-.~@")
        return _redirect(place, access.session_cookie(port))


async def _form(request: Request) -> dict[str, list[str]]:
    """Return the fields of a submitted form.

    Raises:
        InvalidRequestError: The body is too long or not a form.
        ClientDisconnect: The client disconnected before the body was complete.
    """
    length = request.headers.get("Content-Length", "")
    is_chunked = "Transfer-Encoding" in request.headers  # the length doesn't limit the body
    if is_chunked or not length.isdigit() or int(length) > _FORM_MAX:
        raise InvalidRequestError(f"the form must have a Content-Length of at most {_FORM_MAX}")
    try:
        return parse_qs((await request.body()).decode(), max_num_fields=10)
    except ValueError:
        raise InvalidRequestError("the body of the request is not a form") from None


def _login_page(
    request: Request, status: HTTPStatus = HTTPStatus.OK, *, to: str = "", wrong: bool = False
) -> Response:
    """Return the login form.

    `to`: path and query of the requested page, which follows the login. `wrong`: the form was sent
    with a wrong token.
    """
    inner = render("login.html", root=PageRequest.of(request).root, to=to, wrong=wrong)
    made = document("sparklog", inner, served=True)
    return HTMLResponse(made.text, status, {"Content-Security-Policy": made.policy})


def _redirect(place: str, cookie: str) -> Response:
    return Response(status_code=HTTPStatus.SEE_OTHER, headers={"Location": place,
                                                               "Set-Cookie": cookie})  # fmt: skip


def _failed(scope: Scope, error: Exception) -> Response:
    _LOGGER.error("the request for %.300r failed", scope["path"], exc_info=error)
    return _text(INTERNAL_ERROR, HTTPStatus.INTERNAL_SERVER_ERROR)


def _text(words: str, status: HTTPStatus, headers: dict[str, Any] | None = None) -> Response:
    return PlainTextResponse(f"{words}\n", status, headers)
