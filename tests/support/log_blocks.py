"""Rows, deletes and frames for tests of log blocks."""

import decimal
import io
import struct

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from hoodoo.format.log import block as log_block
from hoodoo.format.log.block import (
    DeleteBlock,
)
from hoodoo.format.names import META_COLUMNS

INSTANT = "20260307162604102"
COLUMNS = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("tags", pa.list_(pa.string()))])
SCHEMA = pa.schema([*[(name, pa.string()) for name in META_COLUMNS], *COLUMNS])


def rows(count):
    keys = [f"k{i}" for i in range(count)]
    meta = [[INSTANT] * count, [f"{INSTANT}_0_{i}" for i in range(count)], keys, ["p=1"] * count, ["f-0"] * count]
    tags = [["a"] * (i % 3) if i % 4 else None for i in range(count)]
    return pa.table(
        [
            *map(pa.array, meta),
            pa.array(keys),
            pa.array(range(count), pa.int64()),
            pa.array(tags, pa.list_(pa.string())),
        ],
        schema=SCHEMA,
    )


def deletes(keys, *ordering):
    return DeleteBlock(INSTANT, pa.array(keys, pa.string()), pa.array(["p=1"] * len(keys)), ordering)


def framed(kind, header, content):
    return b"".join(log_block._encode_block(kind, log_block._header_bytes(header), [content]))


WRAPPERS = [
    ("BooleanWrapper", "boolean"),
    ("IntWrapper", "int"),
    ("LongWrapper", "long"),
    ("FloatWrapper", "float"),
    ("DoubleWrapper", "double"),
    ("BytesWrapper", "bytes"),
    ("StringWrapper", "string"),
    ("DateWrapper", "int"),
    ("DecimalWrapper", {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15}),
    ("TimeMicrosWrapper", {"type": "long", "logicalType": "time-micros"}),
    ("TimestampMicrosWrapper", "long"),
]
ITEM = {"type": "record", "name": "LocalDateWrapper", "fields": [{"name": "value", "type": "int"}]}
ARRAY = {"type": "array", "items": ["null", *[name for name, _ in WRAPPERS], ITEM]}
DELETE_LIST = fastavro.parse_schema(
    {
        "type": "record",
        "name": "HoodieDeleteRecordList",
        "namespace": "org.apache.hudi.avro.model",
        "fields": [
            {
                "name": "deleteRecordList",
                "type": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "HoodieDeleteRecord",
                        "fields": [
                            {"name": "recordKey", "type": ["null", "string"], "default": None},
                            {"name": "partitionPath", "type": ["null", "string"], "default": None},
                            {
                                "name": "orderingVal",
                                "default": None,
                                "type": [
                                    "null",
                                    *[
                                        {"type": "record", "name": name, "fields": [{"name": "value", "type": kind}]}
                                        for name, kind in WRAPPERS
                                    ],
                                    {
                                        "type": "record",
                                        "name": "ArrayWrapper",
                                        "fields": [{"name": "wrappedValues", "type": ["null", ARRAY], "default": None}],
                                    },
                                ],
                            },
                        ],
                    },
                },
            }
        ],
    }
)


def java_deletes(records, instant=INSTANT):
    """A delete block as Java writes it; records are (key, partition, None or (wrapper, value))."""
    out = io.BytesIO()
    wrapped = [
        (
            k,
            p,
            w
            and (f"org.apache.hudi.avro.model.{w[0]}", {"value" if w[0] != "ArrayWrapper" else "wrappedValues": w[1]}),
        )
        for k, p, w in records
    ]
    fields = ("recordKey", "partitionPath", "orderingVal")
    fastavro.schemaless_writer(
        out, DELETE_LIST, {"deleteRecordList": [dict(zip(fields, record, strict=True)) for record in wrapped]}
    )
    return framed(1, {0: instant}, struct.pack(">ii", 3, len(out.getvalue())) + out.getvalue())


UTC = pa.timestamp("us", "UTC")
MOMENT = 1_760_000_000_123_456
ORDERINGS = {
    "IntWrapper": (pa.array([1, -1, 1 << 30], pa.int32()), [1, -1, 1 << 30]),
    "LongWrapper": (pa.array([0, -1, 1 << 62], pa.int64()), [0, -1, 1 << 62]),
    "FloatWrapper": (pa.array([0.5, -0.0, 2.0], pa.float32()), [0.5, -0.0, 2.0]),
    "DoubleWrapper": (pa.array([0.1, -1e300, 2.0]), [0.1, -1e300, 2.0]),
    "StringWrapper": (pa.array(["", "é", "z" * 100]), ["", "é", "z" * 100]),
    "DateWrapper": (pa.array([0, -1, 20000], pa.int32()).view(pa.date32()), [0, -1, 20000]),
    "TimestampMicrosWrapper": (pa.array([0, -1, MOMENT], pa.int64()).view(UTC), [0, -1, MOMENT]),
    "DecimalWrapper": (
        pa.array([decimal.Decimal(x) for x in ("0.00", "-1.50", "9999999999999.99")], pa.decimal128(15, 2)),
        [decimal.Decimal(x) for x in ("0.00", "-1.50", "9999999999999.99")],
    ),
}


def several_values(array):
    """A delete block with one record, of which `array` is the content of its ArrayWrapper."""
    avro = b"\x02\x02\x02a\x02\x02p\x18" + array + b"\x00"
    return framed(1, {0: INSTANT}, struct.pack(">ii", 3, len(avro)) + avro)


def parquet(table):
    sink = io.BytesIO()
    pq.write_table(table, sink, use_compliant_nested_type=False)
    return sink.getvalue()
