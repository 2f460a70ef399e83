"""A damaged event is a row or set aside, and changes no other."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest
from change_events import ID, LSN, change, decoded, golden_events
from tiers import sized

from hoodoo.errors import DataError

_PIECES = [b"{", b"}", b"\n", b"\r\n", b'"', b"[", b",", b"null", b"\\", b"\x00", b"\xb4", b"}{"]
_VALUES = [None, True, -1, 1 << 70, 1.5, "", "NaN", [], [None], {}, {"scale": "x", "value": 3}, "\ud800", "infinity"]


def broken(content: bytes, rng: random.Random) -> bytes:
    """Bytes of which some are others, or JSON of which some value is another one."""
    if rng.random() < 0.5:
        event = json.loads(content)
        holder: Any = event
        while True:
            name = rng.choice(list(holder))
            if not isinstance(holder[name], dict) or not holder[name] or rng.random() < 0.2:
                break
            holder = holder[name]
        if rng.random() < 0.3:
            del holder[name]
        else:
            holder[name] = rng.choice(_VALUES)
        return json.dumps(event, separators=(",", ":")).encode()
    at = rng.randrange(len(content))
    return content[:at] + rng.choice(_PIECES) + content[at + rng.randrange(4) :]


@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize("name", ["orders", "lines"])
def test_a_broken_event_is_a_row_or_set_aside_and_changes_no_other(name: str, unknown: bool) -> None:
    """Some text that is no JSON, and bytes that are no UTF-8, pass Arrow's reader: this ended in errors of Python."""
    rng = random.Random(11)
    columns = {
        "orders": [
            ID,
            ("weight", pa.float32()),
            ("at", pa.timestamp("us")),
            ("doc", pa.string()),
            ("raw", pa.binary()),
        ],
        "lines": [
            ("order_id", pa.int64()),
            ("line", pa.int32()),
            ("price", pa.decimal128(38, 6)),
            ("sku", pa.string()),
        ],
    }[name]
    key = ["order_id", "line"] if name == "lines" else ["id"]
    events = [one for one in golden_events("plain", name) if one[1] and one[0]]
    names = [*(column for column, _ in columns), LSN[0], "_hoodie_is_deleted"]
    whole = [str(one) for one in decoded(events, *columns, LSN, key=key)[0].select(names).to_pylist()]
    for _ in range(sized(60, 2_000)):
        at = rng.randrange(len(events))
        damaged = [*events[:at], (events[at][0], broken(events[at][1] or b"", rng)), *events[at + 1 :]]
        try:
            found, bad = decoded(damaged, *columns, LSN, key=key, unknown=unknown)
        except DataError:  # such as a delete by now, of a message without a key
            continue
        assert set(bad["place"].to_pylist()) <= {f"0:{at}"}
        others = [str(one) for one in found.slice(0, at).select(names).to_pylist()]
        behind = len(whole) - at - 1
        others += [str(one) for one in found.slice(len(found) - behind).select(names).to_pylist()]
        assert others == whole[:at] + whole[at + 1 :]


DEEP = {
    "open lists": "[" * 200_000,
    "lists": "[" * 20_000 + "]" * 20_000,
    "objects": '{"a":' * 20_000 + "1" + "}" * 20_000,
}


@pytest.mark.parametrize("deep", DEEP)
@pytest.mark.parametrize("where", ["after", "source", "key"])
def test_an_event_that_is_nested_too_deeply_takes_no_process_down(deep: str, where: str) -> None:
    key, sound = change("c", {"id": 1}, {"id": 1, "v": "x"})
    assert sound
    value = b',"u":' + DEEP[deep].encode()
    at = {"after": b'"v":"x"', "source": b'"lsn":1'}.get(where, b"nowhere")
    other = b'{"id":1' + value + b"}" if where == "key" else key
    found, bad = decoded([(key, sound), (other, sound.replace(at, at + value))], ID, ("v", pa.string()))
    assert len(found) + len(bad) == 2 and found["v"].to_pylist()[0] == "x"
    assert len(bad) == (where != "key")
