"""Feeds damaged bytes to a decoder, in a process of its own that may be killed by them. Run as `hammer.py KIND SEED
COUNT`.

Every input must end in rows or in an error of ours, within two seconds and 512 MiB beyond what the imports take. Prints
a JSON object of counts; whatever else happens ends the process with a traceback, or with the signal that a native
library died of.
"""

from __future__ import annotations

import json
import random
import resource
import signal
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from memory_store import MemoryStore

from hoodoo.errors import CorruptTable, HoodooError, UnsupportedTable
from hoodoo.format.log.block import decode_log
from hoodoo.format.parquet import base_file
from hoodoo.format.parquet.small import read_small
from hoodoo.format.timeline import avro as timeline_avro
from hoodoo.readers.slices import slices
from hoodoo.table import Table
from hoodoo.timeline import create_table, layout
from hoodoo.timeline.environment import Environment
from hoodoo.timeline.holds import leases
from hoodoo.timeline.hudi import archived_timeline
from hoodoo.timeline.properties import hoodie_properties, table_options
from hoodoo.timeline.slots.slot import Slot, _canonical, decode_commit_file, encode_commit_file
from hoodoo.timeline.views import checkpoint
from hoodoo.timeline.views.view import View, apply

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("v", pa.float64()),
        ("tags", pa.list_(pa.string())),
    ]
)
MEMORY = 512 << 20
CPU_S, CLOCK_S = 10, 300
"""How long one input may take: CPU seconds, which no other process can use up, and far more of the clock."""


def table() -> Table:
    """A small table with all sorts of files in memory."""
    clock = [1_790_000_000_000]

    def now_ms() -> int:
        clock[0] += 1000
        return clock[0]

    store, environment = MemoryStore(), Environment(now_ms=now_ms)
    chosen = table_options.validate_new_options(
        {"compact_after_logs": None, "clean_every": None, "checkpoint_every": 3, "compression": "none"}
    )
    create_table.create_table(
        store,
        hoodie_properties.create_properties("t", SCHEMA, ("id",), ("city",), ("ts",), "merge_on_read", chosen),
        environment,
    )
    made = Table(store, environment)
    for turn in range(3):
        made.upsert(
            pa.Table.from_pylist(
                [
                    {"id": f"k{n}", "city": "pq"[n % 2], "ts": turn, "v": n / 7, "tags": ["x"] * (n % 3)}
                    for n in range(40)
                ],
                SCHEMA,
            )
        )
        made.delete(
            pa.Table.from_pylist([{"id": f"k{turn}", "city": "pq"[turn % 2], "ts": 0, "v": 0.0, "tags": []}], SCHEMA)
        )
    made.compact()
    made.upsert(pa.Table.from_pylist([{"id": "k9", "city": "q", "ts": 9, "v": 1.0, "tags": None}], SCHEMA))
    made.insert_overwrite(pa.Table.from_pylist([{"id": "k8", "city": "p", "ts": 9, "v": 1.0, "tags": None}], SCHEMA))
    made.maintenance.clean(retain_hours=0, retain_commits=1)
    made.savepoints.create("kept")
    return made


def mutated(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    """Flipped bits, other bytes, cut, repeated, spliced or joined with another file."""
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 5, 20])):
        at = rng.randrange(len(out)) if out else 0
        kind = rng.randrange(8)
        if not out or kind == 0:
            out += rng.choice(others)
        elif kind in (1, 2):
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 3:
            out[at : at + rng.choice([1, 2, 4, 8])] = rng.choice(
                [b"\xff" * 8, b"\x00" * 8, b"\x7f\xff\xff\xff", rng.randbytes(4)]
            )
        elif kind == 4:
            del out[at:]
        elif kind == 5:
            del out[at : at + rng.randrange(1, 40)]
        elif kind == 6:
            out[at:at] = out[at : at + rng.randrange(1, 60)]
        else:
            other = rng.choice(others)
            out[at:] = other[rng.randrange(len(other) + 1) :]
    return bytes(out)


def mutated_json(rng: random.Random, value: Any, depth: int = 0) -> Any:
    """JSON with one thing in it changed: another type, huge, deep, empty, hostile."""
    odd = [
        None,
        True,
        -1,
        10**30,
        1e308,
        "",
        "x" * 5000,
        "../../etc/passwd",
        "/etc/passwd",
        [],
        {},
        [[]],
        "\u0000",
        "NaN",
        2**63,
        {"a": 1},
    ]
    if isinstance(value, dict) and value and rng.random() < 0.8:
        name = rng.choice(list(value))
        if rng.random() < 0.15:
            return {key: part for key, part in value.items() if key != name}
        if rng.random() < 0.1:
            return {**value, rng.choice(["extra", "~", "v", "__class__"]): rng.choice(odd)}
        return {**value, name: mutated_json(rng, value[name], depth + 1)}
    if isinstance(value, list) and value and rng.random() < 0.7:
        at = rng.randrange(len(value))
        return [*value[:at], mutated_json(rng, value[at], depth + 1), *value[at + 1 :]]
    if rng.random() < 0.05:
        nested: Any = 1
        for _ in range(rng.choice([10, 70, 900])):
            nested = [nested]
        return nested
    return rng.choice(odd)


def sealed(body: Any) -> bytes:
    """A slot's bytes under a right digest, so that what is inside is looked at."""
    import hashlib

    text = _canonical(body) if isinstance(body, dict) else json.dumps(body).encode()
    return text[:-1] + b',"~":"' + hashlib.sha256(text).hexdigest().encode() + b'"}'


# ---- what is hammered: each gives a function that takes one random generator and says what came of its input
def logs(made: Table, strict: bool) -> Callable[[random.Random], str]:
    files = [data for key, data in made.handle.store.data.items() if ".log." in key]

    def one(rng: random.Random) -> str:
        decode_log(
            mutated(rng, rng.choice(files), files),
            columns=rng.choice([None, ["_hoodie_record_key", "ts"]]),
            strict=strict,
            positions=rng.random() < 0.5,  # who goes by keys passes over what a log says of rows
        )
        return "rows"

    return one


def checked_logs(made: Table) -> Callable[[random.Random], str]:
    """Through the reader, with the slot's digest: whatever is not the file itself is refused."""
    found = [
        entry.file
        for seq in range(2, made.cursor.seq)
        for group in made.handle.history.state(seq).groups()
        for entry in group.logs
    ]
    config, data = made.handle.newest_config(), made.handle.store.data
    whole = [file for file in found if file.path in data]
    files = [data[file.path] for file in whole]

    def one(rng: random.Random) -> str:
        file = rng.choice(whole)
        damaged = mutated(rng, data[file.path], files)
        list(slices.read_log(MemoryStore({file.path: damaged}), config, file, config.file_schema))
        assert damaged == data[file.path], "a damaged log was read"
        return "unchanged"

    return one


def slots(made: Table) -> Callable[[random.Random], str]:
    bodies = []
    for seq in range(1, made.cursor.seq + 1):
        body = json.loads(made.handle.store.get(layout.slot_key(seq)))
        del body["~"]
        bodies.append(body)
    texts = [made.handle.store.get(layout.slot_key(seq)) for seq in range(1, made.cursor.seq + 1)]

    def one(rng: random.Random) -> str:
        if rng.random() < 0.2:
            data = mutated(rng, rng.choice(texts), texts)
        else:
            data = sealed(mutated_json(rng, rng.choice(bodies)))
        slot = decode_commit_file(data, "commits/7")
        assert isinstance(slot, Slot) and encode_commit_file(slot)
        view = apply(View(), slot, "x")
        assert all(
            not path.startswith(("/", ".."))
            for group in view.groups()
            for path in [entry.file.path for entry in group.files()]
        )
        return "a slot"

    return one


def checkpoints(made: Table) -> Callable[[random.Random], str]:
    from hoodoo.storage.store import digest

    keys = [key for key in made.handle.store.data if key.startswith(layout.CHECKPOINTS)]
    whole = [made.handle.store.data[key] for key in keys]

    def one(rng: random.Random) -> str:
        body = rng.choice(whole)[:-32]
        if rng.random() < 0.5:
            read = read_small(body)  # as the code under test does: threads of Arrow's own can abort the process
            state = json.loads(read.schema.metadata[b"hoodoo.state"])
            sink = pa.BufferOutputStream()
            pq.write_table(
                read.replace_schema_metadata({b"hoodoo.state": json.dumps(mutated_json(rng, state)).encode()}), sink
            )
            body = sink.getvalue().to_pybytes()
        else:
            body = mutated(rng, body, whole)
        view = checkpoint.decode(body + digest(body).encode(), "checkpoints/7")
        assert isinstance(view, View)
        return "a view"

    return one


def instants(made: Table) -> Callable[[random.Random], str]:
    files = [data for key, data in made.handle.store.data.items() if key.startswith(layout.TIMELINE) and data]

    def one(rng: random.Random) -> str:
        timeline_avro.decode_timeline_file(mutated(rng, rng.choice(files), files))
        return "a record"

    return one


def small_files(made: Table) -> Callable[[random.Random], str]:
    """Leases, and the manifest and version of Hudi's history: whatever they hold, who reads them gets an answer or an
    error of ours.
    """
    texts = [
        b'{"hours": 1.0, "seq": 3}',
        b'{"files":[{"fileName":"1_2_0.parquet","fileLen":12}]}',
        b"1",
        b"{}",
        b"[" * 5000,
        b'{"seq":NaN}',
        b"99999999999999999999999",
    ]

    def one(rng: random.Random) -> str:
        store = MemoryStore(
            {
                name: mutated(rng, rng.choice(texts), texts)
                for name in (layout.LEASES + "x", layout.HISTORY + "_version_", layout.HISTORY + "manifest_1")
            }
        )
        leases.list_protected_commits(store)
        list(archived_timeline.read(store))
        return "read"

    return one


def parquet(made: Table, verified: bool) -> Callable[[random.Random], str]:
    """Base files: rows that differ from the file's are silent damage, which no digest may let through and a page
    checksum only rarely does.
    """
    many = range(20_000)
    made.upsert(
        pa.table(
            {
                "id": [f"n{n}" for n in many],
                "city": ["z"] * len(many),
                "ts": many,
                "v": [n / 7 for n in many],
                "tags": [["t"]] * len(many),
            },
            SCHEMA,
        )
    )
    view, config, data = made.handle.history.head(), made.handle.newest_config(), made.handle.store.data
    files = [group.base.file for group in view.groups(["city=z"]) if group.base]
    right = {file.path: slices.read_base(made.handle.store, config, file, config.file_schema) for file in files}
    others = [data[file.path] for file in files]

    def one(rng: random.Random) -> str:
        file = rng.choice(files)
        damaged = bytearray(data[file.path])
        if rng.random() < 0.9:
            for _ in range(rng.choice([1, 1, 1, 3])):
                damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        else:
            damaged = bytearray(mutated(rng, bytes(damaged), others))
        store = MemoryStore({file.path: bytes(damaged)})
        if verified:
            rows = slices.read_base(store, config, file, config.file_schema, verified=True)
        else:
            rows = base_file.read_base_file(pa.BufferReader(bytes(damaged)), file.path, config.file_schema)
        return "right rows" if rows.equals(right[file.path]) else "wrong rows"

    return one


KINDS: dict[str, Callable[[Table], Callable[[random.Random], str]]] = {
    "logs": lambda made: logs(made, True),
    "foreign logs": lambda made: logs(made, False),
    "checked logs": checked_logs,
    "slots": slots,
    "checkpoints": checkpoints,
    "instants": instants,
    "small files": small_files,
    "parquet": lambda made: parquet(made, False),
    "verified parquet": lambda made: parquet(made, True),
}


def main(kind: str, seed: int, count: int) -> dict[str, Any]:
    one = KINDS[kind](table())
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    outcomes: Counter[str] = Counter()

    def too_long(*_: object) -> None:
        raise TimeoutError(f"an input took more than {CPU_S} CPU seconds, or {CLOCK_S} of the clock")

    signal.signal(signal.SIGVTALRM, too_long)
    signal.signal(signal.SIGALRM, too_long)
    for number in range(seed, seed + count):
        signal.setitimer(signal.ITIMER_VIRTUAL, CPU_S)
        signal.setitimer(signal.ITIMER_REAL, CLOCK_S)
        try:
            outcomes[one(random.Random(number))] += 1
        except (CorruptTable, UnsupportedTable) as refused:
            assert refused.message
            outcomes["refused"] += 1
        except HoodooError as other:
            raise AssertionError(f"seed {number}: {other!r}") from other
        except BaseException as other:
            raise AssertionError(f"seed {number}: {type(other).__name__}") from other
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) - used
    assert grown <= MEMORY, f"{grown >> 20} MiB were taken"
    return {"inputs": count, "mib_grown": grown >> 20, **outcomes}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
