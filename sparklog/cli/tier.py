"""`sparklog tier`: shows, verifies, restores and rebuilds copies in remote storage."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypedDict

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from sparklog.cli.command import Group
from sparklog.cli.exit_codes import EXIT_FAILED, EXIT_OK
from sparklog.cli.findings import print_report
from sparklog.cli.fork import print_made
from sparklog.cli.open_log import check_log, check_log_dirs
from sparklog.cli.output import bytes_bar, console, count_bar, print_json
from sparklog.cli.parsing import parse_when
from sparklog.cli.storage import StoreAccess, access_options, parse_storage_options, storage_option
from sparklog.diskless.import_objects import BucketTarget
from sparklog.diskless.log_creation import restore_tier
from sparklog.log.positions import Position
from sparklog.opening import holds_home, open_log, url_of
from sparklog.pluralize import pluralize
from sparklog.quantities import size_text
from sparklog.service.verification.tier_verifier import verify_tier
from sparklog.tiered.archive.opening import no_archive
from sparklog.tiered.encryption.key_rotation import rotate as rotate_keys
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.reading.options import RemoteOptions
from sparklog.tiered.remote_log_metadata.rebuild import rebuild as rebuild_metadata
from sparklog.tiered.restoring import restore as restore_log
from sparklog.tiered.status import TierStatus, by_topic, keys_of
from sparklog.tiered.status import status as tier_status
from sparklog.tiered.target import open_store
from sparklog.tools.moving.export_log import export_log
from sparklog.tools.moving.exporting import TopicRange
from sparklog.tools.moving.to_log_dir import move_to_log_dir

_UNTIERED = "`sparklog topics describe` shows its segments, which are all in that store"
_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


class _Span(TypedDict):
    start: Position
    end: Position


@click.group(cls=Group)
def tier() -> None:
    """Show, verify, restore and rebuild the copies of segments in remote storage.

    `sparklog serve PATH --remote URL` copies closed segments of a log dir to an object store
    (tiered storage, KIP-405). The copies at a URL are called an archive.
    """


@tier.command()
@click.argument("path")
@click.option(
    "--keys", is_flag=True,
    help="Show which key encrypts the copies. Sends a request per copy to the object store.",
)  # fmt: skip
@storage_option
@_json
def status(path: str, keys: bool, storage_options: str, as_json: bool) -> int:
    """Show the state of tiered storage per topic: local, remote and pending segments, and the lag.

    The table also shows the number of PUT requests that copies needed. Without --keys the command
    reads only the log dir, and sends no requests to the object store.
    """
    check_log_dirs(path, _UNTIERED)
    found = tier_status(path)
    if keys:
        given = parse_storage_options(storage_options)
        found = replace(found, keys=keys_of(path, storage_options=given))
    if as_json:
        topics = [dict(row) for row in by_topic(found.partitions)]
        partitions = [row.to_dict() for row in found.partitions]
        print_json(
            {"url": found.url, "key": found.key_id, "topics": topics, "partitions": partitions}
            | ({} if found.keys is None else {"keys": found.keys})
        )
    else:
        _print_status(found)
    return EXIT_OK


def _print_status(found: TierStatus) -> None:
    out = console()
    out.print(f"remote storage: {found.url or 'none'}", markup=False)
    if found.url is not None:
        out.print(f"encryption: {_encryption(found.key_id)}", markup=False)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    names = ("topic", "partitions", "local", "remote", "pending", "lag", "unfinished", "puts")
    for name in names:
        table.add_column(name, justify="left" if name == "topic" else "right")
    for row in by_topic(found.partitions):
        table.add_row(
            row["topic"] if row["enabled"] else f"{row['topic']} (off)",
            str(row["partitions"]),
            f"{row['local_segments']}, {size_text(row['local_bytes'])}",
            f"{row['remote_segments']}, {size_text(row['remote_bytes'])}",
            f"{row['pending_segments']}, {size_text(row['pending_bytes'])}",
            f"{row['lag_ms'] / 1000:.0f} s",
            str(row["unfinished"]),
            str(row["puts"]),
        )
    out.print(table)
    for topic, counts in (found.keys or {}).items():
        for key_id, number in counts.items():
            copies = pluralize(number, "copy", "copies")
            how = f"under key {key_id}" if key_id else "NOT encrypted"
            out.print(f"{topic}: {copies} {how}", markup=False)


def _encryption(key_id: str | None) -> str:
    if key_id is None:
        return "not known before a service's next round"
    return f"new copies under key {key_id}" if key_id else "none"


@tier.command()
@click.argument("url")
@click.argument("path")
@click.option(
    "--topic", "topics", metavar="NAME", multiple=True,
    help="Restore only this topic. The default is all topics. Repeatable.",
)  # fmt: skip
@click.option(
    "--start", metavar="TIME|OFFSETS",
    help="Begin at this time in ISO form (2013-07-03T14:00Z, UTC unless it has a zone), or at "
    'these offsets by partition, as JSON: {"0": 5}. Offsets require one --topic. The default is '
    "the first record.",
)  # fmt: skip
@click.option(
    "--end", metavar="TIME|OFFSETS",
    help="End before this time or these offsets, in the forms of --start, rounded up to the end of "
    "a record batch. The default is the last record.",
)  # fmt: skip
@click.option(
    "--threads", default=4, show_default=True, type=click.IntRange(1, 64), metavar="N",
    help="Download this many segments at the same time.",
)  # fmt: skip
@click.option(
    "--dry-run", is_flag=True,
    help="Show what would be restored, and write nothing. Only if PATH is a URL.",
)  # fmt: skip
@access_options
@_json
def restore(
    url: str,
    path: str,
    topics: Sequence[str],
    start: str | None,
    end: str | None,
    threads: int,
    dry_run: bool,
    access: StoreAccess,
    as_json: bool,
) -> int:
    """Create a log from the copies of segments in an object store, for example after a disk failed.

    If PATH is a directory, segments are downloaded into a new log dir. `sparklog handover` can then
    prepare the log dir for a Kafka broker. If PATH is a URL, the object store copies the segments
    to a new log in that bucket, and --start and --end are not possible. Run the command again to
    continue an interrupted restore.

    URL may also be a log in a bucket instead of an archive. Then the whole log is copied to the new
    log dir, with its writers and the offsets of its groups; stop its writers first. With --topic,
    --start or --end only these records are copied, with their offsets, and a repeated call adds the
    records that were committed since.
    """
    if url_of(path, mode="rw") is not None:
        if start is not None or end is not None:
            raise click.UsageError("--start and --end require a log dir as PATH, not a URL")
        return _into_store(url, path, topics, threads, access, dry_run=dry_run, as_json=as_json)
    if dry_run:
        raise click.UsageError(
            "--dry-run requires a URL as PATH: it shows the restore of a log to a bucket"
        )
    span: _Span = {
        "start": _position(start, "--start") or "earliest",
        "end": _position(end, "--end") or "latest",
    }
    home = url_of(url)
    if home is not None and holds_home(home, access.storage):
        if topics or start is not None or end is not None:
            return _of_log(home, path, topics, span, access, as_json=as_json)
        return _whole_log(home, path, threads, access, as_json=as_json)
    with bytes_bar("restoring", shown=not as_json) as progress:
        done = restore_log(
            url,
            path,
            topics=topics or None,
            storage_options=access.storage,
            options=RemoteOptions.parse(access.options)[0],
            threads=threads,
            progress=progress,
            **span,
        )
    if as_json:
        print_json({"offsets": done.offsets, "segments": done.segments, "bytes": done.bytes})
        return EXIT_OK
    for topic, spans in done.offsets.items():
        for partition, (first, last) in spans.items():
            click.echo(f"{topic}-{partition}: offsets [{first}, {last})")
    click.echo(f"{pluralize(done.segments, 'segment')}, {size_text(done.bytes)} in {path}")
    return EXIT_OK


def _into_store(
    url: str,
    path: str,
    topics: Sequence[str],
    threads: int,
    access: StoreAccess,
    *,
    dry_run: bool,
    as_json: bool,
) -> int:
    with bytes_bar("copying", shown=not as_json) as progress:
        store = open_store(path, access.storage)
        made = restore_tier(
            open_store(url, access.storage),
            BucketTarget(store=store, threads=threads, dry_run=dry_run), topics=topics or None,
            options=RemoteOptions.parse(access.options)[0], progress=progress,
        )  # fmt: skip
    print_made(made, as_json=as_json)
    return EXIT_OK


def _whole_log(url: str, path: str, threads: int, access: StoreAccess, *, as_json: bool) -> int:
    with bytes_bar("moving", shown=not as_json) as progress:
        made = move_to_log_dir(
            url, path, storage_options=access.storage, threads=threads, progress=progress,
            options=RemoteOptions.parse(access.options)[0],
        )  # fmt: skip
    print_made(made, as_json=as_json)
    return EXIT_OK


def _of_log(
    url: str, path: str, topics: Sequence[str], span: _Span, access: StoreAccess, *, as_json: bool
) -> int:
    """Restore the records of a log in a store, topic by topic."""
    with open_log(url, storage_options=access.storage, options=access.options) as log:
        wanted = topics or sorted(log.topics())
        if len(wanted) > 1 and any(isinstance(at, dict) for at in span.values()):
            raise click.UsageError(
                "offsets apply to a single topic: pass --topic once, or use a time"
            )
        done = [export_log(TopicRange(log, topic, **span), path) for topic in wanted]
    records = sum(one.records for one in done)
    if as_json:
        print_json({"offsets": {one.topic: one.offsets for one in done}, "records": records})
        return EXIT_OK
    for one in done:
        for partition, (first, last) in sorted(one.offsets.items()):
            click.echo(f"{one.topic}-{partition}: offsets [{first}, {last})")
    click.echo(f"{pluralize(records, 'record')} in {path}")
    return EXIT_OK


@tier.command()
@click.argument("path")
@click.option("--deep", is_flag=True, help="Download every copy, and compare checksums.")
@click.option(
    "--threads", default=4, show_default=True, type=click.IntRange(1, 64), metavar="N",
    help="Read this many copies at the same time. Applies to --deep.",
)  # fmt: skip
@access_options
@_json
def verify(path: str, deep: bool, threads: int, access: StoreAccess, as_json: bool) -> int:
    """Check that the copies of segments in remote storage exist and are complete.

    Without --deep the command only lists the bucket, which shows missing and truncated copies.
    Damaged copies of segments that still exist locally are recorded in the log dir, so that the
    service copies them again in its next round. The command makes no other changes. The exit code
    is 1 if a copy is missing or damaged.
    """
    check_log(path)
    with count_bar("verifying", shown=deep and not as_json) as progress:
        report = verify_tier(
            path,
            deep=deep,
            storage_options=access.storage,
            options=RemoteOptions.parse(access.options)[0],
            threads=threads,
            progress=progress,
        )
    if as_json:
        print_json(report.to_dict())
    else:
        print_report(report)
    return EXIT_OK if report.ok else EXIT_FAILED


@tier.command()
@click.argument("path")
@click.option(
    "--remote", "url", metavar="URL",
    help="Find the copies at this URL. The default is the URL in the log's file sparklog.remote.",
)  # fmt: skip
@storage_option
@_json
def rebuild(path: str, url: str | None, storage_options: str, as_json: bool) -> int:
    """Rebuild the list of remote segments of a log from the objects in its bucket.

    Use it if the log's topic __remote_log_metadata or its file sparklog.remote was lost or damaged.
    Stop the log's service first. Topics that exist only in the bucket become topics of the log. The
    exit code is 1 if a copy is damaged.
    """
    check_log_dirs(path, _UNTIERED)
    given = parse_storage_options(storage_options)
    found = rebuild_metadata(path, url=url, storage_options=given)
    if as_json:
        print_json({"copies": len(found.manifests), "damaged": found.damaged})
    else:
        click.echo(f"{pluralize(len(found.manifests), 'copy', 'copies')} found")
        for name, what in found.damaged.items():
            click.echo(f"damaged: {name}: {what}")
    return EXIT_FAILED if found.damaged else EXIT_OK


@tier.command()
@click.argument("url")
@click.option(
    "--keyring", metavar="FILE", required=True,
    help="Read the old keys, and the new, current key, from this file (docs/encryption.md).",
)  # fmt: skip
@storage_option
@_json
def rotate(url: str, keyring: str, storage_options: str, as_json: bool) -> int:
    """Encrypt the data keys of all copies in an archive with a new key of the keyring.

    Only the data keys are encrypted again; segments and indexes are not rewritten. Afterwards the
    old key can be removed from the keyring. Copies without encryption are not changed.
    """
    ring = Keyring.load(keyring)
    done = rotate_keys(url, ring, storage_options=parse_storage_options(storage_options))
    if not done.changed + done.unchanged + done.plain:
        raise no_archive(url)
    if as_json:
        print_json(
            {"changed": done.changed, "unchanged": done.unchanged, "plain": done.plain,
             "key": ring.current}
        )  # fmt: skip
    else:
        click.echo(
            f"{pluralize(done.changed, 'copy', 'copies')} under key {ring.current} now, "
            f"{done.unchanged} as before"
        )
        if done.plain:
            click.echo(
                f"{pluralize(done.plain, 'copy is', 'copies are')} NOT encrypted, which a rotation "
                "does not change: `sparklog tier status PATH --keys` shows their topics",
                err=True,
            )
    return EXIT_OK


def _position(text: str | None, option: str) -> Any:
    if text is None:
        return None
    wanted = 'offsets as JSON ({"0": 5}) or an ISO time'
    if not text.lstrip().startswith("{"):
        return parse_when(text, option, wanted)
    try:
        return {int(p): int(offset) for p, offset in json.loads(text).items()}
    except (ValueError, TypeError):
        raise click.BadParameter(f"{text!r} must be {wanted}", param_hint=f"'{option}'") from None
