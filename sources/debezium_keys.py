"""Reader of the keys of Debezium events."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal

import pyarrow as pa
import pyarrow.json

from hoodoo.errors import DataError
from hoodoo.redact import printable
from hoodoo.sources.debezium_messages import PayloadExtractor, json_objects_to_lines
from hoodoo.sources.debezium_values import UNFIT, convert_json_value
from hoodoo.sources.source import Placing


class KeyReader:
    """Decoder of Kafka message keys."""

    def __init__(
        self,
        topic: str,
        placing: Placing,
        known: Mapping[str, pa.Field],
        spelt: Mapping[str, pa.DataType | None],
    ) -> None:
        """Create a decoder for message keys.

        `spelt` contains the Arrow type of each column's JSON encoding.
        """
        self.topic, self.placing, self._known, self._spelt = topic, placing, known, spelt
        self._messages = PayloadExtractor()
        self._is_key_checked = False

    def require(self, keys: Sequence[bytes | None]) -> None:
        """Check the keys of change events.

        Raises DataError if a key is missing, or has columns that differ from the key of the table.
        """
        if None in keys:
            raise DataError(
                f"{self.topic}: the changes have no key, so their rows are unknown. Add a primary key to the "
                "source table, or set message.key.columns of the connector. Nothing was written.",
                topic=self.topic,
            )
        if keys and not self._is_key_checked:
            self.columns(keys[:1])

    def columns(self, contents: Sequence[bytes | None]) -> Mapping[str, pa.Array] | None:
        """Decode message keys to columns.

        The columns are in their JSON encoding. Returns None if a key is not an object with valid values. Raises
        DataError if the keys have other columns than the key of the table.
        """
        parts = list[Mapping[str, pa.Array]]()
        for _, _, payloads, _ in self._messages.split_by_schema([key or b"" for key in contents]):
            columns = self._decode_together(payloads) or self._decode_one_by_one(payloads)
            if columns is None:
                return None
            parts.append(columns)
        self._is_key_checked = True
        return {name: pa.concat_arrays([key[name] for key in parts]) for name in parts[0]}

    def _decode_together(self, payloads: Sequence[bytes]) -> Mapping[str, pa.Array] | None:
        # None if the reader rejects a key.
        text = json_objects_to_lines(payloads)
        if text is None:
            return None
        data = pa.py_buffer(text)
        try:
            names = pa.json.read_json(pa.BufferReader(data)).column_names
            self._require_table_key(names)
            fields = [(name, self._spelt[name]) for name in names if name in self._spelt]
            table = pa.json.read_json(
                pa.BufferReader(data), parse_options=pa.json.ParseOptions(explicit_schema=pa.schema(fields))
            )
        except (pa.ArrowException, UnicodeDecodeError):
            return None
        if len(table) != len(payloads):
            return None
        return {name: table[name].combine_chunks() for name in table.column_names}

    def _decode_one_by_one(self, payloads: Sequence[bytes]) -> Mapping[str, pa.Array] | None:
        # None if a key is not an object with valid values.
        try:
            keys = [json.loads(key, parse_float=Decimal) for key in payloads]
            names = list(dict.fromkeys(name for key in keys for name in dict(key)))
            self._require_table_key(names)
            return {
                name: pa.array(
                    [convert_json_value(key.get(name), self._known[name].type) for key in keys], self._spelt[name]
                )
                for name in names
                if name in self._known
            }
        except (*UNFIT, TypeError):
            return None

    def _require_table_key(self, names: Sequence[str]) -> None:
        if self.placing.key and (missing := set(names) ^ self._key_names_in_messages(names)):
            raise self._key_mismatch_error(names, missing)

    def _key_names_in_messages(self, message_names: Sequence[str]) -> set[str]:
        # The messages may use former names of the key columns.
        return {next((name for name in names if name in message_names), names[0]) for names in self.placing.key}

    def _key_mismatch_error(self, message_names: Sequence[str], missing: set[str]) -> DataError:
        key_names = [names[0] for names in self.placing.key]
        return DataError(
            f"{self.topic}: the messages have another key than the table: expected {printable(key_names)}, got "
            f"{printable(sorted(message_names))}. Create a table with the key columns of the messages, or set "
            "message.key.columns of the connector. Nothing was written.",
            topic=self.topic,
            column=sorted(missing)[0],
        )


__all__ = ["KeyReader"]
