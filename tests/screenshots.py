"""Pictures of the pages for README and docs: `python -m tests.screenshots` makes docs/images anew.

Of a demo log whose content, times and names are always the same; fonts are those of the machine.
"""

import argparse
import base64
import json
import random
import socket
import struct
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import sparklog
from sparklog.clock import ManualClock
from sparklog.network.addresses import Address
from sparklog.service.health import Check, Level
from sparklog.ui.log_browser import LogBrowser
from sparklog.ui.report.build import make_report
from sparklog.ui.report.model import LogReport
from sparklog.ui.report.page import render
from sparklog.ui.server import LiveServer
from sparklog.ui.site import LogSite
from tests import browser as browsers
from tests.ui.demo import DAY, START, make_demo

IMAGES = Path(__file__).parent.parent / "docs" / "images"
SHOWN = "/data/log"
BYTES_MAX = 150_000
SCALE = 1.5  # pixels for one of CSS
# Name, width and height in CSS pixels, colour scheme, what is shown of it.
PICTURES = (
    ("report", 1200, 1090, "light", ""),
    ("report-dark", 1200, 1090, "dark", ""),
    ("report-phone", 390, 844, "light", ""),
    ("report-phone-dark", 390, 844, "dark", ""),
    ("report-segments", 1200, 760, "light", "#segments"),
    ("topic", 1200, 790, "light", "topics/orders"),
    ("records", 1200, 760, "light", "topics/orders/records"),
)


def main() -> None:
    """Write all of them, or those into another folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=IMAGES)
    into: Path = parser.parse_args().into
    into.mkdir(parents=True, exist_ok=True)
    with browsers.started() as browser:
        for name, raw in pictures(browser):
            assert len(raw) <= BYTES_MAX, f"{name}: {len(raw)} bytes"
            (into / f"{name}.png").write_bytes(raw)


def pictures(browser: Any) -> Iterator[tuple[str, bytes]]:
    """Yield (name, PNG) of each."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        page.write_text(render(demo_report(Path(folder) / "log")), "utf-8")
        path = Path(folder) / "shop"
        clock = shop_log(path)
        shown = LogBrowser(SHOWN, lambda stopped: sparklog.open(path, clock=clock), clock=clock)
        site = LogSite(lambda: make_report(path, clock=clock), browser=shown)
        with LiveServer(site, Address("127.0.0.1", 0)) as server:
            for name, width, height, scheme, where in PICTURES:
                base = server.url if where.startswith("topics/") else page.as_uri()
                yield name, picture(browser, base + where, width, height, scheme, str(path))


def picture(browser: Any, url: str, width: int, height: int, scheme: str, path: str) -> bytes:
    """Return what a window of that size shows, with SHOWN in place of the log's path."""
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, timezone_id="UTC",
        device_scale_factor=SCALE, locale="en-GB", reduced_motion="reduce",
    )  # fmt: skip
    shown = context.new_page()
    shown.goto(url)
    shown.evaluate(
        """([path, name]) => {
          for (const e of document.querySelectorAll("bdi"))
            e.textContent = e.textContent.replace(path, name);
        }""",
        [path, SHOWN],
    )
    # Lossless, but deflate finds more in a picture of few colours when these are numbered.
    raw = palette_png(shown, shown.screenshot())
    context.close()
    return raw


def shop_log(path: Path) -> ManualClock:
    """A log with records that can be read by people; returns its clock."""
    clock, rng = ManualClock(START), random.Random(5)
    with sparklog.open(path, "rw", clock=clock, options={"flush": "none"}) as log:
        log.create_topic("orders", 3, config={"retention.ms": 30 * DAY, "compression.type": "zstd"})
        for batch in range(12):
            clock.advance(40_000)
            rows = [_order(rng, batch * 20 + n) for n in range(20)]
            times = sorted(clock() - rng.randrange(40_000) for _ in rows)
            log.append("orders", pa.table({
                "key": [row["customer"].encode() for row in rows],
                "value": [json.dumps(row).encode() for row in rows],
                "timestamp": pa.array(times, pa.timestamp("ms", tz="UTC")),
            }))  # fmt: skip
        for group, lags in (("billing", (0, 2, 1)), ("warehouse", (31, 40, 25))):
            ends = {partition: end for partition, (_, end) in log.offsets("orders").items()}
            log.commit_offsets(group, {"orders": {p: ends[p] - lag for p, lag in enumerate(lags)}})
            clock.advance(5000)
    return clock


def _order(rng: random.Random, number: int) -> dict[str, Any]:
    return {
        "order": 48_000 + number, "customer": f"c-{rng.randrange(900):04d}",
        "status": rng.choice(["placed", "paid", "shipped"]),
        "total": round(rng.randrange(900, 24_000) / 100, 2), "currency": "EUR",
        "items": [{"sku": f"SKU-{rng.randrange(999):03d}", "count": rng.randrange(1, 4)}],
    }  # fmt: skip


def demo_report(path: Path) -> LogReport:
    """The report of a week of a log with a tier, readers and compaction, as of a fixed time."""
    clock, _ = make_demo(path, days=6)
    found = make_report(path, clock=ManualClock(clock()))
    names = {str(path): SHOWN, socket.gethostname(): "host-1"}
    checks = [replace(c, what=_named(c.what, names), command=c.command and _named(c.command, names))
              for c in found.health.checks]  # fmt: skip
    disk = Check("disk", Level.GREEN, f"18.2 GiB free in {SHOWN}")
    health = replace(
        found.health, path=SHOWN, checks=tuple(disk if c.name == "disk" else c for c in checks)
    )
    return replace(found, path=SHOWN, url="s3://archive/log", took_ms=300, health=health)


def _named(words: str, names: dict[str, str]) -> str:
    for given, shown in names.items():
        words = words.replace(given, shown)
    return words


def palette_png(page: Any, raw: bytes) -> bytes:
    """The same picture with at most 256 colours: the nearest of those that occur most.

    The browser decodes it, for nothing else here reads PNG.
    """
    source = f"data:image/png;base64,{base64.b64encode(raw).decode()}"
    context = page.context.browser.new_context()
    blank = context.new_page()
    found = blank.evaluate(
        """async (source) => {
          const image = new Image();
          image.src = source;
          await image.decode();
          const canvas = new OffscreenCanvas(image.width, image.height);
          const drawing = canvas.getContext("2d");
          drawing.drawImage(image, 0, 0);
          const data = drawing.getImageData(0, 0, image.width, image.height).data;
          let text = "";
          for (let at = 0; at < data.length; at += 32768)
            text += String.fromCharCode(...data.subarray(at, at + 32768));
          return { width: image.width, height: image.height, data: btoa(text) };
        }""",
        source,
    )
    context.close()
    width, height = found["width"], found["height"]
    pixels = np.frombuffer(base64.b64decode(found["data"]), np.uint8).reshape(-1, 4)[:, :3]
    palette, numbers = quantised(pixels)
    rows = numbers.reshape(height, width)
    lines = np.hstack([np.zeros((height, 1), np.uint8), rows]).tobytes()
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        [
            _chunk(b"IHDR", header),
            _chunk(b"PLTE", palette.tobytes()),
            _chunk(b"IDAT", zlib.compress(lines, 9)),
            _chunk(b"IEND", b""),
        ]
    )


def quantised(
    pixels: "np.ndarray[Any, Any]",
) -> tuple["np.ndarray[Any, Any]", "np.ndarray[Any, Any]"]:
    """(palette, its number for each pixel): few colours are surfaces, the rest edges of letters."""
    packed = (pixels.astype(np.uint32) << np.array([16, 8, 0], np.uint32)).sum(axis=1)
    colours, inverse, counts = np.unique(packed, return_inverse=True, return_counts=True)
    kept = colours[np.argsort(-counts.astype(np.int64), kind="stable")[:256]]
    parts = [np.stack([c >> 16 & 255, c >> 8 & 255, c & 255], axis=1).astype(np.int32)
             for c in (colours, kept)]  # fmt: skip
    nearest = np.array([((parts[1] - one) ** 2).sum(axis=1).argmin() for one in parts[0]])
    return parts[1].astype(np.uint8), nearest[inverse].astype(np.uint8)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


if __name__ == "__main__":
    main()
