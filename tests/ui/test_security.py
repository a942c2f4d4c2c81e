"""Who comes without the token, with other names, slowly, with odd requests, or with scripts."""

import contextlib
import html
import http.client
import json
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import trustme

import sparklog
from sparklog.clock import ManualClock
from sparklog.errors import InvalidRequestError, StorageUnavailableError
from sparklog.network.addresses import Address
from sparklog.opening import open_log
from sparklog.service.health import examine
from sparklog.ui import server as ui_server
from sparklog.ui.access import SESSION_MS, Access, check_listener, read_token, tls_files
from sparklog.ui.log_browser import LogBrowser
from sparklog.ui.report.build import make_report
from sparklog.ui.server import LiveServer
from sparklog.ui.site import LogSite
from tests.ui import UNHURRIED
from tests.waiting import until

TOKEN = "correct-horse-battery-staple"
HERE = Address("127.0.0.1", 0)
ROUTES = (
    "/", "/content", "/api/report", "/topics", "/topics/", "/topics/t", "/topics/t/records",
    "/topics/t/records?from=0", "/topics/t/records/0/0", "/topics/t/records/0/0/value", "/api",
    "/api/topics", "/api/topics/t", "/api/topics/t/records", "/api/topics/t/records/0/0",
    "/api/health", "/nothing", "/topics?part=1", "//", "/login/x", "/logout", "/%2e%2e/", "/%00",
)  # fmt: skip
HOSTILE = (
    b"<script>window.hacked=1</script>", b"\"><img src=x onerror=window.hacked=2>",
    b"</pre></details><svg onload=window.hacked=3>", b"'-window.hacked-'", b"javascript:hacked=4",
    b"{\"a\": \"</script><script>window.hacked=5</script>\"}", b"<!--", b"]]>", b"&lt;b&gt;",
    "\u202e<b>rtl\u2066".encode(), b"\0<script>window.hacked=6</script>", b"{{7*7}}${7*7}",
)  # fmt: skip


def site_of(path: Path, *, asks: bool = False) -> LogSite:
    browser = LogBrowser(str(path), lambda stopped: open_log(path, stopped=stopped))
    return LogSite(
        lambda: make_report(path), browser=browser, examine=lambda: examine(path), asks=asks,
    )  # fmt: skip


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log whose keys, values, headers, groups and configs hold scripts."""
    path = tmp_path_factory.mktemp("hostile") / "log"
    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    with sparklog.open(path, "rw", options={"flush": "none"}) as log:
        log.create_topic("t", config={"retention.ms": -1})
        headers = [[{"key": raw.decode(), "value": raw}] for raw in HOSTILE]
        log.append(
            "t",
            pa.table(
                {
                    "key": pa.array(HOSTILE, pa.binary()),
                    "value": pa.array(HOSTILE, pa.binary()),
                    "headers": pa.array(headers, header),
                }
            ),
        )
        log.commit_offsets("<img src=x onerror=window.hacked=7>", {"t": {0: 1}})
    return path


@pytest.fixture
def server(path: Path) -> Iterator[LiveServer]:
    with LiveServer(site_of(path), HERE, head_ms=UNHURRIED) as found:
        yield found


@pytest.fixture
def guarded(path: Path) -> Iterator[LiveServer]:
    access = Access(token=TOKEN)
    site = site_of(path, asks=True)
    with LiveServer(site, HERE, access=access, head_ms=UNHURRIED) as found:
        yield found


Answered = tuple[int, http.client.HTTPMessage, str]


def ask(server: LiveServer, path: str, method: str = "GET", body: str | None = None,
        **headers: str) -> Answered:  # fmt: skip
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=240)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    if body is not None:
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(None if body is None else body.encode())
    answer = connection.getresponse()
    text = answer.read().decode("utf-8", "replace")
    connection.close()
    return answer.status, answer.headers, text


def raw(server: LiveServer, sent: bytes) -> bytes:
    """What comes back for some bytes."""
    with socket.create_connection(("127.0.0.1", server.port), 240) as connection:
        connection.sendall(sent)
        found = b""
        with contextlib.suppress(ConnectionError):
            while part := connection.recv(1 << 16):
                found += part
        return found


# --- the token -----------------------------------------------------------------------------------


@pytest.mark.parametrize("route", ROUTES)
def test_nothing_is_shown_without_the_token(guarded: LiveServer, route: str) -> None:
    wrong: list[dict[str, str]] = [
        {}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": TOKEN}, {"Cookie": f"sparklog-{guarded.port}={TOKEN}"},
        {"Cookie": f"sparklog-{guarded.port}=9999999999999.{'0' * 64}"}, {"Cookie": "\"=;;\\"},
        {"Authorization": "Bearer " + "x" * 8000}, {"Accept": "text/html"},
    ]  # fmt: skip
    for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "BREW"):
        for headers in wrong[: 3 if method != "GET" else None]:
            status, _, text = ask(guarded, route, method, **headers)
            assert status in (400, 401, 405) or (status, route) == (303, "/logout")
            assert "hacked" not in text
            assert "retention" not in text


def test_the_token_opens(guarded: LiveServer) -> None:
    status, headers, text = ask(guarded, "/api/topics")
    assert (status, headers["WWW-Authenticate"]) == (401, 'Bearer realm="sparklog"')
    status, _, text = ask(guarded, "/api/topics", Authorization=f"Bearer {TOKEN}")
    assert (status, json.loads(text)["topics"][0]["name"]) == (200, "t")
    assert ask(guarded, "/topics", authorization=f"bearer  {TOKEN} ")[0] == 200


def test_the_form_sets_a_cookie_that_is_not_the_token(guarded: LiveServer) -> None:
    form = {"Content_Type": "application/x-www-form-urlencoded"}
    status, headers, text = ask(guarded, "/login", "POST", f"token={TOKEN}x", **form)
    assert (status, "Set-Cookie" in headers) == (401, False)
    assert "This token is wrong" in html.unescape(text)
    status, headers, _ = ask(guarded, "/login", "POST", f"token={TOKEN}&to=topics/t?q=1", **form)
    assert (status, headers["Location"]) == (303, "./topics/t?q=1")
    cookie = headers["Set-Cookie"]
    assert TOKEN not in cookie
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    value = cookie.partition(";")[0]
    assert ask(guarded, "/topics", Cookie=value)[0] == 200
    assert ask(guarded, "/topics", Cookie=f"other=1; {value}; x=y")[0] == 200
    assert ask(guarded, "/topics", Cookie=value[:-1] + "f")[0] in (200, 401)
    forged = re.sub(r"=\d+", "=9999999999999", value)
    assert ask(guarded, "/topics", Cookie=forged)[0] == 401
    status, headers, _ = ask(guarded, "/logout", "POST", "", Cookie=value)
    assert (status, "Max-Age=0" in headers["Set-Cookie"]) == (303, True)


@pytest.mark.parametrize("to", [
    "//evil.example", "/\\evil.example", "https://evil.example", "x%0d%0aSet-Cookie:%20a=b",
    "javascript:alert(1)", "%5c%5cevil", "..//evil.example",
])  # fmt: skip
def test_the_form_leads_nowhere_else(guarded: LiveServer, to: str) -> None:
    status, headers, _ = ask(guarded, "/login", "POST", f"token={TOKEN}&to={to}")
    assert status == 303
    assert headers["Location"].startswith("./")
    assert "\n" not in headers["Location"]
    assert headers["Set-Cookie"].startswith("sparklog-")


def test_forms_from_elsewhere_and_odd_ones(guarded: LiveServer) -> None:
    token = f"token={TOKEN}"
    assert ask(guarded, "/login", "POST", token, Sec_Fetch_Site="cross-site")[0] == 403
    assert ask(guarded, "/login", "POST", token, Sec_Fetch_Site="same-origin")[0] == 303
    assert ask(guarded, "/login", "POST")[0] == 400
    assert ask(guarded, "/login", "POST", "x" * 9000)[0] == 400
    assert ask(guarded, "/login", "POST", "&".join(f"a{n}=1" for n in range(99)))[0] == 400
    assert ask(guarded, "/topics", "POST", token)[0] == 405


def test_a_token_that_is_not_ascii() -> None:
    """Clients send UTF-8; headers are decoded as Latin-1."""
    token = "ein-schlüssel-aus-日本"
    sent = {"authorization": f"Bearer {token.encode().decode('latin-1')}"}
    assert Access(token=token).admits(sent, 8080)
    assert not Access(token=f"{token}x").admits(sent, 8080)
    assert not Access(token=token).admits({"authorization": "Bearer \xff\u65e5"}, 8080)


def test_the_cookies_of_other_ports_do_no_harm() -> None:
    access = Access(token=TOKEN)
    own = access.session_cookie(8080).partition(";")[0]
    for other in ('x={"a": 1}', "a b=1", "\xe9=\xe9", "=", '"', "x=\\", "sparklog-80801=x"):
        assert access.admits({"cookie": f"{other}; {own}"}, 8080)
        assert access.admits({"cookie": f"{own};{other}"}, 8080)
    began = time.process_time()  # Python before 3.11.10 unquotes in quadratic time
    assert not access.admits({"cookie": 'x="' + r"\a" * 30_000 + '"'}, 8080)
    assert time.process_time() - began < 1


def test_a_session_ends() -> None:
    clock = ManualClock()
    access = Access(token=TOKEN, clock=clock)
    cookie = access.session_cookie(8080).partition(";")[0]
    assert access.admits({"cookie": cookie}, 8080)
    assert not access.admits({"cookie": cookie}, 8081)
    assert not Access(token=TOKEN[1:], clock=clock).admits({"cookie": cookie}, 8080)
    clock.advance(SESSION_MS)
    assert not access.admits({"cookie": cookie}, 8080)


def test_the_health_check_tells_strangers_its_colour_alone(guarded: LiveServer) -> None:
    status, _, text = ask(guarded, "/healthz")
    assert (status, text) in [(200, "green\n"), (200, "amber\n"), (503, "red\n")]
    status, _, text = ask(guarded, "/healthz", Authorization=f"Bearer {TOKEN}")
    assert json.loads(text)["checks"]


def test_strangers_are_not_told_why_there_is_no_verdict(path: Path) -> None:
    def away() -> Any:
        raise StorageUnavailableError("/secret/place is away")

    site = LogSite(lambda: make_report(path), examine=away, asks=True)
    with LiveServer(site, HERE, access=Access(token=TOKEN), head_ms=UNHURRIED) as server:
        assert ask(server, "/healthz")[::2] == (503, "red\n")
        assert ask(server, "/healthz", Accept="text/html")[::2] == (503, "red\n")
        assert "/secret/place" in ask(server, "/healthz", Authorization=f"Bearer {TOKEN}")[2]


def test_where_the_token_comes_from(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\nmore\n")
    os.chmod(file, 0o644)
    with pytest.raises(InvalidRequestError, match="chmod 600"):
        read_token(str(file))
    os.chmod(file, 0o600)
    assert read_token(str(file)) == TOKEN
    assert read_token(None, {"SPARKLOG_UI_TOKEN": TOKEN}) == TOKEN
    assert read_token(None, {}) is None
    for wrong in (b"", b"short", b"\xff" * 40, b"x" * 9000, b"with a \x07 bell in it."):
        file.write_bytes(wrong)
        with pytest.raises(InvalidRequestError, match="token"):
            read_token(str(file))
    with pytest.raises(InvalidRequestError, match="no such file"):
        read_token(str(tmp_path / "nope"))


@pytest.mark.parametrize(("given", "said"), [
    ({}, "--ui-token-file"), ({"tls": True}, "--ui-token-file"), ({"insecure": True}, "token-file"),
    ({"token": True}, "--ui-certificate"),
])  # fmt: skip
def test_strangers_are_kept_out(given: dict[str, bool], said: str) -> None:
    flags = {"token": False, "tls": False, "insecure": False} | given
    for addresses in (["0.0.0.0"], ["::"], ["10.0.0.1"], ["127.0.0.1", "10.0.0.1"]):
        with pytest.raises(InvalidRequestError, match=said):
            check_listener(Address("h", 80), addresses, **flags)
    check_listener(Address("h", 80), ["127.0.0.1", "::1"], **flags)
    check_listener(Address("h", 80), ["0.0.0.0"], token=True, tls=True, insecure=False)
    check_listener(Address("h", 80), ["0.0.0.0"], token=True, tls=False, insecure=True)
    names = ["logs.example.com"]
    check_listener(Address("h", 80), ["127.0.0.1"], token=True, tls=False, insecure=False,
                   names=names)  # fmt: skip
    with pytest.raises(InvalidRequestError, match="token"):
        check_listener(Address("h", 80), ["127.0.0.1"], names=["logs.example.com"], **{
            **flags, "token": False})  # fmt: skip


# --- requests that nobody should send ------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost:1", 200), ("127.0.0.1", 200), ("[::1]:80", 200), ("LOCALHOST", 200),
     ("evil.example", 403), ("127.0.0.1.evil.example:80", 403), ("[::1].evil", 403), ("", 403),
     ("localhost@evil", 403), ("localhost\tevil", 403), ("proxy.example", 403)],
)  # fmt: skip
def test_another_sites_name_gets_nothing(server: LiveServer, host: str, status: int) -> None:
    for route in ("/api/topics", "/topics", "/healthz"):
        assert ask(server, route, Host=host)[0] == status


def test_a_proxys_name(path: Path) -> None:
    access = Access(names=["logs.example"], token=TOKEN)
    with LiveServer(site_of(path), HERE, access=access, head_ms=UNHURRIED) as server:
        given = {"Authorization": f"Bearer {TOKEN}"}
        assert ask(server, "/topics", Host="Logs.Example", **given)[0] == 200
        assert ask(server, "/topics", Host="evil.example", **given)[0] == 403


@pytest.mark.parametrize("route", [
    "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/..%2f..%2fetc%2fpasswd", "/topics/../../x",
    "/topics/%2e%2e", "/topics/..%2f..%2fetc%2fpasswd/records", "/topics/t%00/records",
    "/topics/t/records/0/0/../../../x", "/topics/t/records/0/-1", "/topics/t/records/x/1",
    "/topics/t/records/0/99999999999999999999", "/topics/t/records/7/0", "/topics/%ff%fe",
    "/topics/__sparklog_ledger", "/api/topics/t/records/0/0/passwd", "/browse.css", "/page.js",
    "/topics/" + "x" * 5000, "/content/x", "/api/topics/a%0d%0aX-Evil:%201",
])  # fmt: skip
def test_paths_lead_nowhere_else(server: LiveServer, route: str) -> None:
    status, headers, text = ask(server, route)
    assert status in (400, 404)
    assert "root:x:" not in text
    assert "X-Evil" not in headers


@pytest.mark.parametrize("query", [
    "limit=0", "limit=501", "limit=-1", "limit=1e3", "limit=\u0661", "partition=x",
    "partition=0-9", "partition=5", "partition=99999999999", "from=yesterday", "from=2013-13-01",
    "from=" + "9" * 30, "from=9999999999999999999", "from=-1", "text=x", "limt=5",
    "as=hex", "from=%00", "&".join(f"a{n}=1" for n in range(60)), "max_value_bytes=-5",
])  # fmt: skip
def test_queries_that_make_no_sense_are_told(server: LiveServer, query: str) -> None:
    status, _, text = ask(server, f"/api/topics/t/records?{query}".replace("\u0661", "%D9%A1"))
    assert status in (400, 404)
    assert json.loads(text)["error"] if status != 400 or text.startswith("{") else text
    assert len(text) < 1000


def test_long_requests(server: LiveServer) -> None:
    assert ask(server, "/api/topics?q=" + "x" * 40_000)[0] == 414
    assert b" 431 " in raw(server, b"GET /" + b"x" * 70_000)
    answered = raw(server, b"GET / HTTP/1.0\r\nA: " + b"x" * 70_000)
    assert b" 431 " in answered
    assert b"default-src 'none'" in answered
    for odd in (
        b"\0\0\0\0\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\r\n",
        b"GET http://evil/ HTTP/1.0\r\nHost: localhost\r\n\r\n",
        b"POST /login\r\n\r\n",
    ):
        assert b"200 OK" not in raw(server, odd)  # fmt: skip
    assert ask(server, "/topics")[0] == 200


def test_headers_have_room_together(tmp_path: Path) -> None:
    """A record with 100 large headers is one record, not 100."""
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = [{"key": "k" * 40_000, "value": b"\1" * 40_000} for _ in range(100)]
    with sparklog.open(tmp_path / "log", "rw", options={"flush": "none"}) as log:
        log.create_topic("t", config={"max.message.bytes": 20 << 20})
        log.append("t", pa.table({"value": ["v"], "headers": pa.array([headers], kind)}))
    with LiveServer(site_of(tmp_path / "log"), HERE, head_ms=UNHURRIED) as server:
        _, _, text = ask(server, "/api/topics/t/records")
        (record,) = json.loads(text)["records"]
        assert len(record["headers"]) == 1
        assert record["header_count"] == 100
        assert (record["headers"][0]["value_bytes"], record["headers"][0]["value_cut"]) == (
            40_000, True)  # fmt: skip
        assert "99 more headers are not shown" in html.unescape(ask(server, "/topics/t/records")[2])


def test_errors_have_the_security_headers(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> Any:
        raise ValueError("a fault of the code")

    def check(server: LiveServer) -> None:
        for route in ("/", "/topics", "/api/topics", "/healthz"):
            caplog.clear()
            status, headers, text = ask(server, route, Accept="text/html")
            assert (status, "a fault" in text) == (500, False)
            assert headers["Content-Security-Policy"].startswith("default-src 'none'")
            assert (headers["X-Frame-Options"], headers["Cache-Control"]) == ("DENY", "no-store")
            assert "a fault of the code" in caplog.text

    async def broken(*_: object) -> None:
        fail()

    with LiveServer(broken, HERE, head_ms=UNHURRIED) as server:
        check(server)
    access = Access()
    with LiveServer(site_of(path), HERE, access=access, head_ms=UNHURRIED) as server:
        monkeypatch.setattr(access, "admits", fail)
        check(server)


def test_headers_cannot_be_put_in(server: LiveServer) -> None:
    assert ask(server, "/topics/%00")[0] == ask(server, "/topics?q=%00")[0] == 400
    for route in ("/topics/x%0d%0aX-Evil:1", "/topics?q=%0d%0aX-Evil:1", "/login%0d%0aX-Evil:1"):
        _, headers, _ = ask(server, route)
        assert "X-Evil" not in headers


def test_slow_requests_are_let_go_and_hold_nobody_up(path: Path) -> None:
    with LiveServer(site_of(path), HERE, connections_max=4, head_ms=600) as server:
        slow = [socket.create_connection(("127.0.0.1", server.port), 240) for _ in range(4)]
        for connection in slow:
            connection.sendall(b"GET / HT")
        time.sleep(0.1)
        with socket.create_connection(("127.0.0.1", server.port), 240) as one_more:
            assert one_more.recv(1) == b""  # sent away at once
        ends = time.monotonic() + 240
        for connection in slow:
            with contextlib.suppress(OSError):
                while time.monotonic() < ends:  # a byte now and then doesn't help
                    connection.sendall(b"x")
                    connection.settimeout(0.05)
                    with contextlib.suppress(TimeoutError):
                        if connection.recv(1 << 16) == b"":
                            break
            connection.close()
        assert time.monotonic() < ends
        server.head_ms = UNHURRIED

        def is_served() -> bool:  # once there is room: their threads end a moment later
            with contextlib.suppress(ConnectionError):
                return ask(server, "/topics")[0] == 200
            return False

        until(is_served)


def trickled(connection: socket.socket, byte: bytes) -> float:
    """Send a byte now and then, until the other side has enough of it; returns after how long."""
    began = time.monotonic()
    with contextlib.suppress(OSError):
        while time.monotonic() < began + 300:
            connection.sendall(byte)
            connection.settimeout(0.05)
            with contextlib.suppress(TimeoutError):
                if connection.recv(1 << 16) == b"":
                    break
    return time.monotonic() - began


def test_a_form_that_never_ends(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    access = Access(token=TOKEN)
    head = b"POST /login HTTP/1.0\r\nHost: localhost\r\nContent-Length: "
    with (
        LiveServer(site_of(path, asks=True), HERE, access=access, head_ms=400) as server,
        socket.create_connection(("127.0.0.1", server.port), 240) as slow,
    ):
        slow.sendall(head + b"8000\r\n\r\n")
        assert trickled(slow, b"t") < 240
        assert b" 303 " not in raw(server, head + f"99\r\n\r\ntoken={TOKEN}".encode())
    site = site_of(path, asks=True)
    with LiveServer(site, HERE, access=access, head_ms=UNHURRIED) as server:
        for length in (b"0000000009999999999", b"9" * 5000, b"-1", b"+5", b"1e3"):
            assert b" 400 " in raw(server, head + length + b"\r\n\r\n")
    assert caplog.text == ""


def test_a_form_in_chunks_is_not_read(guarded: LiveServer) -> None:
    """The Content-Length doesn't limit it."""
    head = b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
    chunks = b"1\r\na\r\n0\r\n\r\n"
    assert b" 400 " in raw(guarded, head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)


@pytest.mark.parametrize("target", [b"GET /api", b"GET /topics", b"POST /login", b"POST /x"])
def test_a_body_that_is_not_http(
    guarded: LiveServer, caplog: pytest.LogCaptureFixture, target: bytes
) -> None:
    head = b" HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nAuthorization: Bearer "
    sent = target + head + TOKEN.encode() + b"\r\n\r\n"
    assert raw(guarded, sent + b"zz\r\n").count(b"HTTP/1.1 400 ") == 1
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", guarded.port), 240) as client:
            client.sendall(sent)
            with contextlib.suppress(ConnectionError):
                client.sendall(b"zz\r\n")
                client.sendall(b"zz\r\n")
                client.recv(1)
    assert caplog.messages == []


def test_a_client_that_does_not_end_tls_holds_no_place(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ui_server, "PATIENCE_MS", 0)
    authority = trustme.CA()
    made = authority.issue_cert("localhost")
    made.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    context = ssl.create_default_context()
    authority.configure_trust(context)
    given: Any = {"tls": tls_files(str(tmp_path / "server.pem"), None), "connections_max": 2}
    clients = list[ssl.SSLSocket]()
    with LiveServer(site_of(path), HERE, head_ms=UNHURRIED, **given) as server:
        for _ in range(4):
            client = context.wrap_socket(
                socket.create_connection(("127.0.0.1", server.port), 60),
                server_hostname="localhost",
            )
            client.sendall(b"GET /api HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 200")
            clients.append(client)  # it doesn't read the end of the connection
    for client in clients:
        client.close()


def test_a_handshake_that_never_ends(path: Path, tmp_path: Path) -> None:
    made = trustme.CA().issue_cert("localhost")
    made.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    given = tls_files(str(tmp_path / "server.pem"), None)
    hello = b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03"  # of 16 KiB
    with (
        LiveServer(site_of(path), HERE, tls=given, head_ms=400) as server,
        socket.create_connection(("127.0.0.1", server.port), 240) as slow,
    ):
        slow.sendall(hello)
        assert trickled(slow, b"x") < 240


@pytest.mark.deep
def test_threads_end(path: Path) -> None:
    before = set(threading.enumerate())  # other tests' ones, too
    with LiveServer(site_of(path), HERE, head_ms=20_000) as server:
        for _ in range(20):
            socket.create_connection(("127.0.0.1", server.port), 240).close()
            ask(server, "/topics")

        def left() -> list[str]:
            names = [thread.name for thread in set(threading.enumerate()) - before]
            return [n for n in names if n.startswith(("Thread-", "sparklog-ui-read"))]

        until(lambda: not left(), state=left)
    assert "sparklog-ui" not in [thread.name for thread in set(threading.enumerate()) - before]


# --- TLS -----------------------------------------------------------------------------------------


def test_https(path: Path, tmp_path: Path) -> None:
    authority = trustme.CA()
    made = authority.issue_cert("localhost", "127.0.0.1")
    pem = tmp_path / "server.pem"
    made.private_key_and_cert_chain_pem.write_to_path(pem)
    os.chmod(pem, 0o600)
    access = Access(token=TOKEN, secure=True)
    given: Any = {"access": access, "tls": tls_files(str(pem), None), "head_ms": UNHURRIED}
    with LiveServer(site_of(path), HERE, **given) as server:
        assert server.url.startswith("https://")
        context = ssl.create_default_context()
        authority.configure_trust(context)

        def get(**headers: str) -> tuple[int, str]:
            connection = http.client.HTTPSConnection(
                "localhost", server.port, timeout=240, context=context
            )
            connection.request("GET", "/api/topics", headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

        assert get()[0] == 401
        assert get(Authorization=f"Bearer {TOKEN}")[0] == 200
        assert raw(server, b"GET / HTTP/1.0\r\n\r\n") == b""  # no TLS
        silent = socket.create_connection(("127.0.0.1", server.port), 240)
        assert get(Authorization=f"Bearer {TOKEN}")[0] == 200  # nobody waits for the silent one
        silent.close()
        renewed = authority.issue_cert("localhost")
        renewed.private_key_and_cert_chain_pem.write_to_path(pem)
        shown = ssl.get_server_certificate(("127.0.0.1", server.port))
        assert shown.encode() == renewed.cert_chain_pems[0].bytes()
    cookie = access.session_cookie(server.port)
    assert cookie.startswith("__Host-")
    assert "Secure" in cookie.split("; ")
    with pytest.raises(InvalidRequestError, match=r"--ui-certificate=.*the file does not exist"):
        LiveServer(site_of(path), HERE, tls=tls_files(str(tmp_path / "nope"), None))
    with pytest.raises(InvalidRequestError, match="--ui-certificate"):
        tls_files(None, "key.pem")


# --- scripts -------------------------------------------------------------------------------------


def test_what_records_hold_is_never_run(browser: Any, path: Path) -> None:
    """Keys, values, headers and groups with scripts, as one clicks through in a real browser."""
    with LiveServer(site_of(path), HERE, head_ms=UNHURRIED) as server:
        context = browser.new_context()
        page, said = context.new_page(), []
        page.on(
            "console", lambda m: said.append(m.text) if "Failed to load" not in m.text else None
        )
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: said.append(dialog.message))
        page.on("request", lambda r: said.append(r.url) if "127.0.0.1" not in r.url else None)
        base = server.url.rstrip("/")
        routes = [
            "/", "/topics", "/topics/t", "/topics/t/records", "/topics/%3Cscript%3Ehacked=8%3C",
            *(f"/topics/t/records/0/{n}" for n in range(len(HOSTILE))),
            "/topics/t/records?limit=%3Cscript%3Ewindow.hacked%3D9%3C/script%3E",
            "/topics/t/records?from=%22%20onfocus=window.hacked=9%20autofocus=%22",
            "/topics?q=%3Cimg%20src=x%20onerror=window.hacked=9%3E",
            "/topics/t/records?from=%3Cimg%20src=x%20onerror=window.hacked=9%3E",
            "/topics/t/records/0/0?as=hex",
        ]  # fmt: skip
        for route in routes:
            page.goto(base + route)
            page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true })")
            assert page.evaluate("window.hacked") is None
            assert page.locator("script[src], iframe, object, img, svg[onload]").count() == 0
        page.goto(f"{base}/topics/t/records")
        for raw_value in HOSTILE[:3]:
            assert page.get_by_text(raw_value.decode(), exact=True).count() > 0
        status, headers, _ = ask(server, "/topics/t/records/0/0/value")
        assert (status, headers["Content-Type"]) == (200, "application/octet-stream")
        assert headers["Content-Disposition"] == 'attachment; filename="t-0-0.value"'
        assert said == []
        context.close()
