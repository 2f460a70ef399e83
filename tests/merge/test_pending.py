"""Changes that wait for base rows in batches do to them what a merge with all of them at once does."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from hoodoo.format.hashing import hash64
from hoodoo.format.names import RECORD_KEY
from hoodoo.merge import kernels, pending
from hoodoo.merge.kernels import KeyedChanges
from hoodoo.merge.pending import StreamingMerge


@pytest.mark.parametrize("order_by", [("ts",), ("ts", "seq"), ()])
@pytest.mark.parametrize("how", ["texts", "hashes", "equal hashes"])
def test_batches_meet_their_changes_as_all_rows_at_once_would(
    order_by: tuple[str, ...], how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending, "_FEW", 1 << 40 if how == "texts" else 0)
    rng = np.random.default_rng(3)

    def rows(numbers: np.ndarray) -> pa.Table:
        orders = {name: rng.integers(0, 9, len(numbers)) for name in ("ts", "seq")}
        return pa.table({RECORD_KEY: [f"k{n}" for n in numbers.tolist()], **orders})

    base, given = rows(np.arange(500)), rows(rng.choice(700, 200, replace=False))
    delete = rng.random(200) < 0.2
    hashes = np.full(200, 7, np.uint64) if how == "equal hashes" else hash64(given[RECORD_KEY])
    changes = KeyedChanges(given, delete, delete & (rng.random(200) < 0.5), hashes=hashes)
    waiting, want = StreamingMerge(changes, order_by), kernels.apply_changes(base, changes, order_by)
    replaced, of = [], []
    for start in range(0, 500, 130):
        at, change = waiting.find_changed_rows(base.slice(start, 130))
        assert (np.diff(at) > 0).all()
        replaced += (at + start).tolist()
        of += change.tolist()
    assert (waiting.found == want.found).all() and (waiting.won == want.won).all()
    winners = np.flatnonzero(want.found & want.won)
    assert dict(zip(of, replaced, strict=True)) == {int(n): int(want.partner[n]) for n in winners}
