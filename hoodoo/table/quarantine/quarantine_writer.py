"""Writer for the quarantine of a table.

The first bad row creates this table. Bad rows are detected in writers/batches/bad_rows.py.
"""

from __future__ import annotations

import datetime as dt
import itertools
import re
from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
import xxhash

from hoodoo.arguments import ApplicationVersion
from hoodoo.errors import TableExists, TableNotFound, TooManyBadRows
from hoodoo.format.avro.schema import normalize_schema
from hoodoo.storage.probe import require_safe_store
from hoodoo.storage.store import Store
from hoodoo.table.handle import TableHandle
from hoodoo.table.quarantine.schema import KEY, NEW, SCHEMA, SUFFIX, store_beside
from hoodoo.timeline import create_table
from hoodoo.timeline.environment import Environment
from hoodoo.timeline.properties import hoodie_properties
from hoodoo.timeline.properties.config import MERGE_ON_READ, TableConfig
from hoodoo.timeline.properties.nesting import require_no_inner_table, require_no_outer_table
from hoodoo.timeline.properties.table_options import Options
from hoodoo.writers import operations
from hoodoo.writers.batches.bad_rows import BYTES_MAX, KEPT, PAYLOAD_CUT, PAYLOAD_MAX, BadRows
from hoodoo.writers.batches.batch import prepare_batch
from hoodoo.writers.batches.write_options import WriteOptions, has_too_many_bad_rows
from hoodoo.writers.sources import InMemoryBatch

_UNFIT = re.compile(r",(?=source:|position:)|^_(?=_(?:null|empty)__$)")  # not allowed in values of a composite key
_TRIES = 20


def quarantine_bad_rows(target: TableHandle, bad: BadRows, options: WriteOptions) -> Counter[str]:
    """Store the bad rows of a write in the quarantine.

    A row that is already waiting in the quarantine is not stored again, so a write can be retried. Bad rows of
    different application versions are stored separately. A row that was already replayed or dropped is stored as a new
    row.

    Args:
        target: The table that is written.
        bad: The bad rows.
        options: The limits for bad rows, and the transaction of the write.

    Returns:
        The number of bad rows by reason.

    Raises:
        TooManyBadRows: The number of bad rows exceeds the limits. The first hundred bad rows are stored.
        OptionError: The table is at the root of a bucket.
    """
    limits = options.limits
    if limits is None or not bad.count:
        return Counter()
    too_many = bad.partial or has_too_many_bad_rows(limits, bad.count, bad.rows)
    beside = store_beside(target.store)
    kept = bad.found.slice(0, KEPT) if too_many else bad.found
    quarantine = _open_or_create(beside, target)
    positions = _create_row_ids(kept, options.transaction)
    rows = _quarantine_rows(kept, positions, target, options.transaction)
    if options.transaction is None:
        rows = _with_new_ids(quarantine, rows)
    _keep(quarantine, rows)
    if too_many:
        reasons = dict(bad.reasons.most_common())
        why = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
        most = f"{limits.rows:,} rows, {limits.share:.4g} of a batch and {BYTES_MAX >> 20} MiB"
        raise TooManyBadRows(
            f"The batch has too many bad rows: expected at most {most}, got {'more than ' if bad.partial else ''}"
            f"{len(bad.found):,} of {bad.rows:,} rows ({why}). Nothing was written to the table. Inspect the first "
            f"{len(kept)} bad rows in {beside.uri}. Correct the batch, or raise the limits with "
            "on_bad_rows=hoodoo.BadRowLimits(...) (--max-bad-rows, --max-bad-share).",
            bad=bad.count,
            rows=bad.rows,
            quarantine=beside.uri,
            reasons=reasons,
        )
    return bad.reasons


def quarantine_messages(target: TableHandle, bad: pa.Table, transaction: ApplicationVersion) -> None:
    """Store undecodable messages of a source in the quarantine.

    Messages that are already stored are skipped, so that a part of the source can be read again.

    Args:
        target: The table that the messages are for.
        bad: The messages: `place` (position in the source), `reason`, `detail` and `payload` (the original bytes).
            Optionally `kept`: the bytes to store instead of the original ones.
        transaction: The transaction of the commit of the other rows.

    Raises:
        OptionError: The table is at the root of a bucket.
    """
    payloads = bad["payload"].to_pylist()
    if "kept" in bad.column_names:
        both = zip(payloads, bad["kept"].to_pylist(), strict=True)
        payloads = [content if kept is None or len(kept) > PAYLOAD_MAX else kept for content, kept in both]
    cut = [len(payload) > PAYLOAD_MAX for payload in payloads]
    kept = [payload[:PAYLOAD_CUT] if too_long else payload for payload, too_long in zip(payloads, cut, strict=True)]
    found = pa.table(
        {
            "reason": bad["reason"],
            "detail": bad["detail"],
            "payload": pa.array(kept, pa.binary()),
            "payload_cut": pa.array(cut, pa.bool_()),
        }
    )
    places = [_key_value(place) for place in bad["place"].to_pylist()]
    _keep(_open_or_create(store_beside(target.store), target), _quarantine_rows(found, places, target, transaction))


def _key_value(text: str) -> str:
    """Convert a value to one that a composite key allows."""
    changed = _UNFIT.sub("%", text)
    return text if changed == text else f"{changed}~{xxhash.xxh3_64_hexdigest(text.encode())}"


def _create_row_ids(found: pa.Table, transaction: ApplicationVersion | None) -> list[str]:
    """Return an id for each bad row.

    An id consists of the digest of the row, the version of the write (unless the digest contains the file of the row),
    and a counter that distinguishes equal rows.
    """
    seen: Counter[str] = Counter()
    positions = []
    for digest in found["hash"].to_pylist():
        name = digest if transaction is None or "@" in digest else f"{digest}@{transaction.version}"
        positions.append(f"{name}:{seen[name]}")
        seen[name] += 1
    return positions


def _with_new_ids(quarantine: TableHandle, rows: pa.Table) -> pa.Table:
    from hoodoo.table import Table

    table = Table(quarantine.store, quarantine.environment)
    positions = first = rows["position"].to_pylist()
    for number in itertools.count(1):
        named = rows.set_column(1, SCHEMA.field("position"), pa.array(positions, pa.string()))
        there = table.get(named.select(KEY), columns=["position", "state"]).to_pylist()
        resolved = {one["position"] for one in there if one["state"] != NEW}
        if not resolved:
            return named
        pairs = zip(first, positions, strict=True)
        positions = [f"{one}.{number}" if position in resolved else position for one, position in pairs]
    raise AssertionError


def _quarantine_rows(
    found: pa.Table, positions: Sequence[str], target: TableHandle, transaction: ApplicationVersion | None
) -> pa.Table:
    application, number = transaction[:2] if transaction else ("", None)
    now = dt.datetime.fromtimestamp(target.environment.now_ms() / 1000, dt.timezone.utc)

    def each(value: object, kind: pa.DataType) -> pa.Array:
        return pa.array([value], kind).take(pa.array([0] * len(found)))

    columns = {
        "source": each(_key_value(application) or target.config.name, pa.string()),
        "position": pa.array(positions, pa.string()),
        **{name: found[name] for name in ("reason", "detail", "payload", "payload_cut")},
        "application": each(application, pa.string()),
        "number": each(number, pa.int64()),
        "at": each(now, SCHEMA.field("at").type),
        "state": each(NEW, pa.string()),
        "resolved_at": each(None, SCHEMA.field("resolved_at").type),
    }
    return pa.table(columns, schema=SCHEMA)


def _keep(quarantine: TableHandle, rows: pa.Table) -> None:
    context = quarantine.context()
    batch = prepare_batch(rows, quarantine.config)
    quarantine.finished(context, operations.insert_rows(context, InMemoryBatch(batch), "keep", False))


def _open_or_create(beside: Store, target: TableHandle) -> TableHandle:
    for attempt in range(_TRIES):
        try:
            return TableHandle(beside, target.environment)
        except TableNotFound:
            try:
                _make(beside, target.config, target.environment)
            except TableExists:
                target.environment.sleep(0.05 * attempt)
    return TableHandle(beside, target.environment)


def _make(beside: Store, config: TableConfig, environment: Environment) -> None:
    require_no_outer_table(beside)
    require_no_inner_table(beside)
    require_safe_store(beside)
    name = re.sub(r"[^A-Za-z0-9_]", "_", config.name) + SUFFIX
    properties = hoodie_properties.create_properties(
        name, normalize_schema(SCHEMA), KEY, (), (), MERGE_ON_READ, Options()
    )
    create_table.create_table(beside, properties, environment)
