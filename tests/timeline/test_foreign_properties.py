"""Properties that make Apache Hudi merge rows in ways which hoodoo does not know: such tables are refused when opened,
because hoodoo would show other rows than Hudi. They were opened, and a null stood where Hudi keeps the old value.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import golden_tables as golden
import pyarrow as pa
import pytest

import hoodoo
from hoodoo.timeline.layout import PROPERTIES

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64())])
REFUSED = [
    ("hoodie.table.partial.update.mode", "IGNORE_DEFAULTS"),
    ("hoodie.table.partial.update.mode", "FILL_UNAVAILABLE"),
    ("hoodie.table.partial.update.mode", "ONE_OF_THE_FUTURE"),
    (
        "hoodie.record.merge.property.hoodie.write.partial.update.unavailable.value",
        "__debezium_unavailable_value",
    ),
    ("hoodie.record.merge.property.hoodie.payload.delete.field", "_change_operation_type"),
    ("hoodie.record.merge.property.hoodie.payload.delete.marker", "d"),
    ("hoodie.payload.delete.field", "op"),
    ("hoodie.payload.delete.marker", "D"),
    ("hoodie.compaction.payload.class", "org.apache.hudi.common.model.PartialUpdateAvroPayload"),
]


def add(path: Path, name: str, value: str) -> None:
    with (path / PROPERTIES).open("a") as file:
        file.write(f"{name}={value}\n")


@pytest.mark.parametrize(("name", "value"), REFUSED)
@pytest.mark.parametrize("whose", ["ours", "Hudi's"])
def test_a_table_that_hudi_merges_in_a_way_of_its_own_is_refused(
    tmp_path: Path, name: str, value: str, whose: str
) -> None:
    if whose == "ours":
        live = hoodoo.create(tmp_path / "t", SCHEMA, key="id", order_by="ts")
        live.upsert([{"id": "a", "ts": 1}])
        path = tmp_path / "t"
    else:
        path = golden.unpack("mor_ordered", tmp_path)
    add(path, name, value)
    with pytest.raises(hoodoo.UnsupportedTable, match="would merge rows differently") as refused:
        hoodoo.open(path)
    assert pickle.loads(pickle.dumps(refused.value)).details == {"property": name}
    if whose == "ours":
        with pytest.raises(hoodoo.UnsupportedTable):
            live.upsert([{"id": "a", "ts": 2}])  # nor does a handle write that was open before


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hoodie.table.partial.update.mode", ""),
        ("hoodie.table.legacy.payload.class", "org.apache.hudi.common.model.DefaultHoodieRecordPayload"),
        ("hoodie.compaction.payload.class", "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload"),
    ],
)
def test_properties_that_say_what_the_merge_mode_says_are_no_reason_to_refuse(
    tmp_path: Path, name: str, value: str
) -> None:
    path = golden.unpack("mor_ordered", tmp_path)
    add(path, name, value)
    assert hoodoo.open(path).scan().count() == len(golden.facts("mor_ordered")["snapshot"])
