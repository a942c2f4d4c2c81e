"""A real S3 server, by s3fs: what a network and a bucket do to requests, and what is said of it."""

import asyncio
import contextlib
import hashlib
import json
import os
import re
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import crc32c
import pytest

from sparklog.clock import system_clock
from sparklog.errors import InvalidRequestError, StorageUnavailableError
from sparklog.tiered.object_store.backoff import Retry
from sparklog.tiered.object_store.object_store import ObjectStore
from sparklog.tiered.object_store.s3_driver import close_session
from sparklog.tiered.target import open_store
from tests.tiered.proxy import Proxy
from tests.tiered.s3 import SECRET, S3Server
from tests.waiting import until

pytestmark = pytest.mark.s3
MIB = 1 << 20
QUICK = Retry(attempts=4, first_ms=10)


@pytest.fixture(scope="module")
def bucket(s3: S3Server) -> str:
    """A bucket for all of these tests; each takes a prefix of its own."""
    return s3.bucket()


@pytest.fixture
def url(bucket: str, request: pytest.FixtureRequest) -> str:
    """An empty prefix."""
    return f"{bucket}/{hashlib.md5(request.node.name.encode()).hexdigest()}"


@pytest.fixture
def content() -> bytes:
    """Three parts, no two places alike."""
    return b"".join(number.to_bytes(8, "big") for number in range(11 * MIB // 8))


def through(proxy: Proxy, s3: S3Server, url: str) -> ObjectStore:
    return open_store(url, s3.options(port=proxy.port), retry=QUICK, part_bytes=5 * MIB)


@pytest.mark.deep
def test_tls_on_and_off_are_one_bucket(s3, url):
    open_store(url, s3.options(tls=True)).put("a", b"by TLS")
    assert open_store(url, s3.options()).get("a") == b"by TLS"


@pytest.mark.deep
def test_a_certificate_that_nobody_vouches_for(s3, url):
    options = s3.options(tls=True)
    del options["client_kwargs"]
    with pytest.raises(StorageUnavailableError, match=r"can't list s3://.*<ca\.pem>"):
        open_store(url, options, retry=Retry(first_ms=3_600_000)).list()  # not tried again
    options["client_kwargs"] = {"verify": s3.options(tls=True)["client_kwargs"]["verify"]}
    assert open_store(url, options).list() == []


def test_an_endpoint_that_is_none_is_corrected(s3, url):
    options = {**s3.options(), "endpoint_url": "no address"}
    with pytest.raises(StorageUnavailableError, match="correct where the store is"):
        open_store(url, options, retry=Retry(first_ms=3_600_000)).put("a", b"abc")
    open_store(url, s3.options()).put("a", b"abc")


def test_a_wrong_secret_is_said_at_once_and_can_be_put_right(s3, url):
    wrong = open_store(url, s3.options(secret="a-wrong-secret"), retry=Retry(first_ms=3_600_000))
    calls = {
        "write": lambda: wrong.put("a", b"x"),
        "create": lambda: wrong.create("a", b"x"),
        "read": lambda: wrong.get("a"),
        "list": wrong.list,
        "delete": lambda: wrong.delete(["a"]),
    }
    for verb, call in calls.items():
        with pytest.raises(StorageUnavailableError, match=f"can't {verb} {url}.*key, secret") as e:
            call()
        shown = "".join(traceback.format_exception(e.value))
        assert "a-wrong-secret" not in shown and SECRET not in shown
    assert wrong.counts.retries == 0
    right = open_store(url, s3.options())
    right.put("a", b"x")
    assert right.get("a") == b"x"


def test_no_credentials_at_all(s3, url, monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    options = {"endpoint_url": s3.options()["endpoint_url"]}
    with pytest.raises(StorageUnavailableError, match="check key, secret and rights"):
        open_store(url, options, retry=Retry(first_ms=3_600_000)).get("a")


def test_credentials_come_from_the_environment_too(s3, url, monkeypatch):
    options = s3.options()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", options["key"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", options["secret"])
    monkeypatch.setenv("AWS_ENDPOINT_URL", options["endpoint_url"])
    store = open_store(url)
    store.put("a", b"x")
    assert store.get("a") == b"x"


@pytest.mark.parametrize("call", ["put", "create", "put_stream", "get", "list", "delete"])
def test_a_missing_bucket_is_said_at_once(s3, call):
    store = open_store("s3://no-such-bucket/x", s3.options(), retry=Retry(first_ms=3_600_000))
    arguments = {
        "put": ("a", b"x"),
        "create": ("a", b"x"),
        "put_stream": ("a", [bytes(6 * MIB), bytes(6 * MIB)], 12 * MIB),
        "get": ("a",),
        "list": (),
        "delete": (["a"],),
    }[call]
    with pytest.raises(StorageUnavailableError, match=r"s3://no-such-bucket.*make the bucket"):
        getattr(store, call)(*arguments)
    if call == "create":
        made = open_store(f"{s3.bucket()}/x", s3.options())
        assert made.create(*arguments)


def test_nobody_listens(url):
    waits: list[float] = []
    options = {"endpoint_url": "http://127.0.0.1:1", "key": "key", "secret": "secret"}
    store = open_store(url, options, retry=Retry(attempts=3, sleep=waits.append, draw=lambda: 1.0))
    with pytest.raises(StorageUnavailableError, match=f"can't read {url}/a: Could not connect"):
        store.get("a")
    assert waits == [100, 200]
    assert store.counts.as_dict()["gets"] == 3


def test_options_that_s3_does_not_know(url):
    with pytest.raises(InvalidRequestError, match="correct the URL or the storage options"):
        open_store(url, {"max_concurrency": 0})
    open_store(url, {"max_concurrency": 1})
    with pytest.raises(InvalidRequestError, match="s3 requires 5242880 or more"):
        open_store(url, part_bytes=MIB)


@pytest.mark.deep
def test_64_mib_in_parts(s3, url):
    content = os.urandom(MIB) * 64
    store = open_store(url, s3.options())
    store.put_stream(
        "large", [content[at : at + 3 * MIB] for at in range(0, 64 * MIB, 3 * MIB)], 64 * MIB
    )
    assert store.counts.as_dict() == {
        "gets": 1, "puts": 10, "lists": 0, "deletes": 0, "retries": 0,
        "bytes_in": 0, "bytes_out": 64 * MIB,
    }  # fmt: skip
    assert store.get("large", 8 * MIB - 5, 40 * MIB + 5) == content[8 * MIB - 5 : 40 * MIB + 5]
    assert [one.size for one in store.list()] == [64 * MIB]


@pytest.mark.deep
def test_a_thousand_objects_and_more(s3, url):
    store = open_store(url, s3.options())
    names = [f"t-0-x/{number:04}" for number in range(1005)]
    others = ["t-0/other", "u"]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: store.put(name, name.encode()), names + others))
    assert [one.name for one in store.list("t-0-x/")] == names
    assert store.counts.lists == 2
    assert store.get_many(names[:40]) == [name.encode() for name in names[:40]]
    store.delete(names)
    assert store.counts.deletes == 2
    assert [one.name for one in store.list()] == others


def test_an_upload_that_the_store_gave_up_is_made_again(s3, url):
    driver = open_store(url, s3.options())._driver
    begun = driver.begin("a", 3)
    receipt = begun.part(1, 0, b"abc", crc32c.crc32c(b"abc"))
    begun.abort()
    with pytest.raises(OSError, match="the store aborted the upload; copy again"):
        begun.finish([receipt])
    again = driver.begin("a", 3)
    again.finish([again.part(1, 0, b"abc", crc32c.crc32c(b"abc"))])
    assert open_store(url, s3.options()).get("a") == b"abc"


def test_a_lost_answer_does_no_harm(s3, url, content):
    with Proxy(s3.port) as proxy:
        store = through(proxy, s3, url)
        proxy.spoil(b"PUT", "drop")
        store.put("a", b"once")
        proxy.spoil(b"?delete", "drop")
        store.delete(["a"])
        proxy.spoil(b"?uploads", "drop")  # begins an upload that nobody knows of
        proxy.spoil(b"partNumber=2", "drop")
        proxy.spoil(b"POST /" + url.removeprefix("s3://").encode() + b"/b?uploadId", "drop")
        store.put_stream("b", [content], len(content))
        assert proxy.spoiled == 5
        assert store.counts.retries == 5
    straight = open_store(url, s3.options())
    assert [(one.name, one.size) for one in straight.list()] == [("b", len(content))]
    assert straight.get("b") == content
    assert straight.sweep_uploads(system_clock() - 60_000) == 0  # younger ones aren't touched
    assert straight.sweep_uploads(system_clock() + 60_000) == 1
    assert straight.sweep_uploads(system_clock() + 60_000) == 0


def test_answers_that_break_off(s3, url, content):
    open_store(url, s3.options()).put("a", content)
    with Proxy(s3.port) as proxy:
        store = through(proxy, s3, url)
        proxy.spoil(b"GET", "cut", after_bytes=100)
        proxy.spoil(b"GET", "cut", after_bytes=3 * MIB)
        assert store.get("a") == content
        proxy.spoil(b"GET", "cut", after_bytes=70_000)
        assert store.get("a", 5, 200_000) == content[5:200_000]
        proxy.spoil(b"list-type", "cut", after_bytes=150)
        assert [one.name for one in store.list()] == ["a"]
        assert proxy.spoiled == 4
        assert 1 <= store.counts.retries <= 4


@pytest.mark.deep
def test_a_busy_store_and_a_broken_network(s3, url, content):
    with Proxy(s3.port) as proxy:
        store = through(proxy, s3, url)
        for way in ("busy", "refuse"):
            for head in (b"PUT", b"?uploads", b"partNumber=3", b"?uploadId", b"HEAD", b"?delete"):
                proxy.spoil(head, way, times=2)
            store.put("a", b"small")
            store.put_stream("b", [content], len(content))
            assert store.get("b", 7, 99) == content[7:99]
            store.delete(["a"])
            assert [one.name for one in store.list()] == ["b"]
        assert proxy.spoiled == 24
        assert 12 <= store.counts.retries <= 24


@pytest.mark.parametrize("head", [b"PUT", b"GET"])
@pytest.mark.deep
def test_a_network_that_swallows_everything(s3, url, head):
    with Proxy(s3.port) as proxy:
        store = open_store(url, s3.options(port=proxy.port), retry=QUICK, timeout_ms=1000)
        store.put("a", b"before")
        proxy.spoil(head, "hang", after_ms=300_000)
        began = time.monotonic()
        store.put("a", b"after")
        assert store.get("a") == b"after"
        assert time.monotonic() - began < 120
        assert proxy.spoiled == 1


def test_an_outage_longer_than_the_retries(s3, url, content):
    with Proxy(s3.port) as proxy:
        store = through(proxy, s3, url)
        store.put("a", b"before")
        proxy.spoil(b"", "refuse", times=1000)
        for call in (store.list, lambda: store.get("a"), lambda: store.put("b", b"x")):
            with pytest.raises(StorageUnavailableError, match="does the network reach it") as e:
                call()
            assert e.value.retriable
        with pytest.raises(StorageUnavailableError):
            store.put_stream("c", [content], len(content))
        assert isinstance(store.get_many(["a"])[0], StorageUnavailableError)
        proxy.heal()
        assert store.get("a") == b"before"
        assert [one.name for one in store.list()] == ["a"]


def test_an_upload_is_given_up_if_a_part_fails(s3, url, content):
    with Proxy(s3.port) as proxy:
        store = through(proxy, s3, url)
        proxy.spoil(b"partNumber=3", "refuse", times=1000)
        with pytest.raises(StorageUnavailableError, match=f"can't write {url}/a"):
            store.put_stream("a", [content], len(content))
        assert store.list() == []
        assert store.sweep_uploads(system_clock() + 60_000) == 0


def test_an_upload_that_the_store_gave_up(s3, url, content, monkeypatch):
    """A lifecycle rule, or a sweep, took it away while it was on its way."""
    store = open_store(url, s3.options(), retry=QUICK, part_bytes=5 * MIB)
    store.put_stream("a", [content], len(content))

    def pieces():
        yield content[: 9 * MIB]
        assert store.sweep_uploads(system_clock() + 60_000, "b") == 0
        assert store.sweep_uploads(system_clock() + 60_000, "a") == 1
        yield content[9 * MIB :]

    with pytest.raises(StorageUnavailableError, match=f"can't write {url}/a"):
        store.put_stream("a", pieces(), len(content))
    assert store.get("a") == content


def test_bytes_that_change_on_the_way_are_refused(s3, url, content):
    """As if a network card had flipped a bit: the checksum is that of what was meant."""
    store = open_store(url, s3.options(), retry=QUICK)
    driver = store._driver
    with pytest.raises(OSError, match="did not match"):
        driver.put("a", b"changed", 12345)
    assert store.list() == []


@pytest.mark.slow  # the server takes 20 s to find itself again
def test_a_server_that_is_killed_and_started_again(s3, url):
    store = open_store(url, s3.options(), retry=QUICK)
    store.put("a", b"kept")
    s3.kill()
    with pytest.raises(StorageUnavailableError):
        store.get("a")
    s3.start()
    assert store.get("a") == b"kept"
    assert [one.name for one in store.list()] == ["a"]


def test_a_forked_child_has_connections_of_its_own(s3, url, content):
    """Spark's Python workers are forked; fsspec's loop isn't there in a child."""
    store = open_store(url, s3.options(), part_bytes=5 * MIB)
    store.put("a", b"parent")
    child = os.fork()
    if child == 0:
        ended = 1
        try:
            store.put_stream("child", [content], len(content))
            found = store.get_many(["a", "child"])
            listed = [one.name for one in store.list("child")]
            ended = 0 if found == [b"parent", content] and listed == ["child"] else 2
        finally:
            os._exit(ended)
    store.put("b", b"meanwhile")
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert store.get("child") == content
    assert [one.name for one in store.list()] == ["a", "b", "child"]


@pytest.mark.parametrize("way", ["drop", "hang", "refuse", "busy"])
def test_a_create_without_an_answer_is_told_apart_by_a_get(s3, url, way):
    """The client sends it once: an answer that is lost stays lost, and says nothing."""
    with Proxy(s3.port) as proxy:
        timeout_ms = 2000 if way == "hang" else 20_000
        store = open_store(url, s3.options(port=proxy.port), retry=QUICK, timeout_ms=timeout_ms)
        with pytest.raises(FileNotFoundError):
            store.get("a")  # and a connection is kept
        proxy.spoil(b"PUT", way, times=1 if way == "drop" else 9, after_ms=3000)
        assert store.sends_once
        with pytest.raises(StorageUnavailableError, match=f"can't create {url}/a: ") as unclear:
            store.create("a", b"mine")
        assert unclear.value.passing
        assert unclear.value.path == f"{url}/a"
        assert proxy.spoiled == 1
        assert (store.counts.puts, store.counts.retries) == (1, 0)
        patient = open_store(url, s3.options(), retry=QUICK)
        found = [one for one in patient.get_many(["a"]) if isinstance(one, bytes)]
        assert found == ([b"mine"] if way == "drop" else [])
        assert patient.create("a", b"other") is (not found)


CONFLICT = b"""<?xml version="1.0" encoding="UTF-8"?><Error><Code>ConditionalRequestConflict</Code>
<Message>Please retry</Message><Key>a</Key></Error>"""
PLAIN = b"""<?xml version="1.0" encoding="UTF-8"?><Error><Code>PreconditionFailed</Code>
<Message>At least one of the pre-conditions you specified did not hold</Message></Error>"""
NAMED = PLAIN.replace(b"</Message>", b"</Message><Condition>If-None-Match</Condition>")


@contextlib.contextmanager
def answering(status: int, body: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """A server that gives every request one answer; its port and the heads that came."""
    heads: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # answers Expect: 100-continue

        def do_PUT(self) -> None:
            heads.append(bytes(self.headers))
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Type", "application/xml")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_HEAD(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.block_on_close = False
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port, heads
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("body", [PLAIN, NAMED, b""], ids=["plain", "condition named", "no body"])
def test_a_refused_condition_means_that_there_is_one(body):
    """moto and S3 name the condition, SeaweedFS doesn't: s3fs makes different errors of them."""
    with answering(412, body) as (port, heads):
        options = {"endpoint_url": f"http://127.0.0.1:{port}", "key": "key", "secret": "secret"}
        store = open_store("s3://bucket/x", options)
        assert store.create("a", b"x") is False
        (head,) = heads
        assert re.search(rb"(?i)^if-none-match: \*", head, re.M)
        assert re.search(rb"(?i)^x-amz-checksum-crc32c: ", head, re.M)


@pytest.mark.parametrize("meanwhile", [False, True])
def test_a_conflict_decides_nothing(meanwhile):
    """409 ConditionalRequestConflict: S3 has another such request under way, which may fail."""
    with answering(409, CONFLICT) as (port, heads):
        options = {"endpoint_url": f"http://127.0.0.1:{port}", "key": "key", "secret": "secret"}
        store = open_store("s3://bucket/x", options)
        with pytest.raises(StorageUnavailableError, match="can't create s3://bucket/x/a") as said:
            if meanwhile:  # what is being handled is no part of its story
                try:
                    raise FileExistsError("another")
                except FileExistsError:
                    store.create("a", b"x")
            store.create("a", b"x")
        assert said.value.passing
        assert len(heads) == 1


def test_a_client_that_does_not_know_the_condition_is_refused(monkeypatch):
    """It would leave it out, and every creator would win."""
    monkeypatch.setattr("botocore.__version__", "1.35.20")
    store = open_store("s3://bucket/x", {"key": "key", "secret": "secret"})
    with pytest.raises(InvalidRequestError, match=r"botocore is too old to create.*aiobotocore"):
        store.create("a", b"x")


def test_a_copy_is_made_by_the_store(s3, url, content):
    store = open_store(f"{url}/home", s3.options(), part_bytes=5 * MIB)
    tier = open_store(f"{url}/tier", s3.options(), parallel=1)
    tier.put_stream("d/source ü+%2F", [content], len(content))
    store.copy(tier, "d/source ü+%2F", "copy")
    counts = store.counts.as_dict()
    assert (counts["puts"], counts["gets"], counts["bytes_out"]) == (1, 1, 0)
    assert tier.counts.bytes_in == 0
    assert store.get("copy") == content
    store._driver.copy_bytes_max = 5 * MIB
    store.copy(tier, "d/source ü+%2F", "in parts")
    assert store.counts.puts == 1 + 5
    assert store.get("in parts") == content
    with pytest.raises(FileNotFoundError, match=f"{url}/tier/nothing"):
        store.copy(tier, "nothing", "copy")
    assert [one.name for one in store.list()] == ["copy", "in parts"]
    assert store.sweep_uploads(system_clock() + 60_000) == 0


def test_a_copy_from_another_account_streams_through(s3, url):
    store = open_store(f"{url}/home", s3.options())
    tls = open_store(f"{url}/tier", s3.options(tls=True))
    tls.put("source", b"content")
    store.copy(tls, "source", "copy")
    assert store.counts.bytes_out == tls.counts.bytes_in == 7
    assert store.get("copy") == b"content"


def test_a_lost_answer_of_a_copy_does_no_harm(s3, url, content):
    with Proxy(s3.port) as proxy:
        store = through(proxy, s3, url)
        store.put_stream("a", [content], len(content))
        store._driver.copy_bytes_max = 5 * MIB
        for head in (b"/b?uploads", b"partNumber=2", b"POST /"):
            proxy.spoil(head, "drop")
        store.copy(store, "a", "b")
        assert store.get("b") == content
        store._driver.copy_bytes_max = 1 << 30
        proxy.spoil(b"PUT", "busy", times=2)
        store.copy(store, "a", "c")
        assert store.get("c") == content


def test_lists_begin_after_a_name_without_a_look_at_those_before(s3, url):
    store = open_store(url, s3.options())
    for number in range(20):
        store.put(f"d/{number:02}", b"")
    driver = store._driver
    assert [one.name for one in driver.page("d/", None, "d/16")[0]] == ["d/17", "d/18", "d/19"]


@pytest.mark.deep
def test_older_versions_are_counted_where_a_bucket_keeps_them(s3, url):
    plain = open_store(url, s3.options())
    for text in (b"one", b"two"):
        plain.put("p/a", text)
    assert plain.older_versions("p/", system_clock() + 60_000) == 0
    bucket = s3.bucket(versioned=True)
    store = open_store(f"{bucket}/x", s3.options())
    for name in ("p/a", "p/a", "p/b", "q/a", "q/a"):
        store.put(name, name.encode())
    store.delete(["p/b"])
    later = system_clock() + 60_000
    assert [store.older_versions(each, later) for each in ("p/", "q/", "r/")] == [2, 1, 0]
    assert store.older_versions("p/", later - 24 * 3_600_000) == 0
    s3.call(bucket, "put_bucket_versioning", VersioningConfiguration={"Status": "Suspended"})
    assert store.older_versions("p/", later) == 2


def test_a_store_that_redirects_every_request(s3, url):
    with answering(301, b"") as (port, _):
        options = {"endpoint_url": f"http://127.0.0.1:{port}", "key": "key", "secret": "secret"}
        store = open_store("s3://bucket/x", options, retry=QUICK)
        with pytest.raises(StorageUnavailableError, match=r"redirected.*correct.*endpoint_url"):
            store.create("a", b"1")


# --- the end of a process -----------------------------------------------------------------------


class OnItsLoop:
    """A client that notes on which loop it is closed."""

    closed_on: asyncio.AbstractEventLoop | None = None

    async def __aexit__(self, *_):
        await asyncio.sleep(0)
        self.closed_on = asyncio.get_running_loop()


@contextlib.contextmanager
def a_loop_in_a_thread():
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_a_client_is_closed_on_its_own_loop():
    """Also where the current thread runs another loop, or the client's."""
    with a_loop_in_a_thread() as loop:
        plain, inside, own = OnItsLoop(), OnItsLoop(), OnItsLoop()
        close_session(loop, plain)

        async def elsewhere():
            close_session(loop, inside)

        asyncio.run(elsewhere())

        async def here():
            close_session(loop, own)

        asyncio.run_coroutine_threadsafe(here(), loop).result(10)
        until(lambda: own.closed_on is loop)
        until(lambda: (plain.closed_on, inside.closed_on) == (loop, loop))


ENDS = """
import asyncio, gc, json, pyarrow as pa, sparklog, sys
url, options = sys.argv[1], json.loads(sys.argv[2])
async def main():
    log = sparklog.open(url, mode="rw", storage_options=options)
    log.create_topic("t")
    log.append("t", pa.table({"value": ["a"]}))
    logs = [sparklog.open(url, storage_options=options) for _ in range(4)]
    for reader in logs:
        reader.read("t").read_all()
    del logs, reader
    gc.collect()
    await asyncio.sleep(0.1)
asyncio.run(main())
"""


@pytest.mark.deep
def test_a_process_that_ends_with_an_open_log_prints_nothing(s3, url):
    """Its readers are collected while a loop runs in the main thread; its writer at the end."""
    done = subprocess.run(
        [sys.executable, "-c", ENDS, f"{url}/log", json.dumps(s3.options())],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
