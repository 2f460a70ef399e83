"""The keys that messages have: which row an event is of. An event of a delete says it nowhere else for sure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal

import pyarrow as pa
import pyarrow.json

from hoodoo.errors import DataError
from hoodoo.redact import printable
from hoodoo.sources.debezium_messages import Unwrapping, objects_of
from hoodoo.sources.debezium_values import UNFIT, plain
from hoodoo.sources.source import Placing


class KeyReader:
    """Reads keys of messages, and holds them against the key of the table."""

    def __init__(
        self,
        topic: str,
        placing: Placing,
        known: Mapping[str, pa.Field],
        spelt: Mapping[str, pa.DataType | None],
    ) -> None:
        """Take what is asked for.

        Args:
            topic: What errors call the topic.
            placing: How the table tells rows apart.
            known: The columns of the table.
            spelt: How values of each column are spelt.
        """
        self.topic, self.placing, self._known, self._spelt = topic, placing, known, spelt
        self._messages = Unwrapping()
        self._fits = False

    def require(self, keys: Sequence[bytes | None]) -> None:
        """Hold the keys of changes against the table.

        Args:
            keys: The keys of some changes.

        Raises:
            DataError: There is none, or it has other columns than that of the table.
        """
        if None in keys:
            raise DataError(
                f"{self.topic}: the changes have no key, so their rows are unknown. Add a primary key to the "
                "source table, or set message.key.columns of the connector. Nothing was written.",
                topic=self.topic,
            )
        if keys and not self._fits:
            self.columns(keys[:1])

    def columns(self, contents: Sequence[bytes | None]) -> Mapping[str, pa.Array] | None:
        """Read keys.

        Args:
            contents: Keys, as messages have them.

        Returns:
            Their columns, spelt as in a row; None where one of them is no object with such values.

        Raises:
            DataError: They have other columns than the key of the table.
        """
        found = list[Mapping[str, pa.Array]]()
        for _, _, payloads, _ in self._messages.unwrapped([one or b"" for one in contents]):
            columns = self._together(payloads) or self._one_by_one(payloads)
            if columns is None:
                return None
            found.append(columns)
        self._fits = True
        return {name: pa.concat_arrays([one[name] for one in found]) for name in found[0]}

    def _together(self, payloads: Sequence[bytes]) -> Mapping[str, pa.Array] | None:
        """Read keys by Arrow's reader; None where it refuses one."""
        text = objects_of(payloads)
        if text is None:
            return None
        data = pa.py_buffer(text)
        try:
            there = pa.json.read_json(pa.BufferReader(data)).column_names
            self._require(there)
            fields = [(name, self._spelt[name]) for name in there if name in self._spelt]
            table = pa.json.read_json(
                pa.BufferReader(data), parse_options=pa.json.ParseOptions(explicit_schema=pa.schema(fields))
            )
        except (pa.ArrowException, UnicodeDecodeError):
            return None
        if len(table) != len(payloads):
            return None
        return {name: table[name].combine_chunks() for name in table.column_names}

    def _one_by_one(self, payloads: Sequence[bytes]) -> Mapping[str, pa.Array] | None:
        """Read keys by Python; None where one is no object with values of the columns."""
        try:
            keys = [json.loads(one, parse_float=Decimal) for one in payloads]
            there = list(dict.fromkeys(name for one in keys for name in dict(one)))
            self._require(there)
            return {
                name: pa.array([plain(one.get(name), self._known[name].type) for one in keys], self._spelt[name])
                for name in there
                if name in self._known
            }
        except (*UNFIT, TypeError):
            return None

    def _require(self, there: Sequence[str]) -> None:
        """Raise DataError where these are not the columns of the table's key."""
        if self.placing.key and (missing := set(there) ^ self._key_said(there)):
            raise self._other_key(there, missing)

    def _key_said(self, there: Sequence[str]) -> set[str]:
        """The names of the table's key, each as messages have it."""
        return {next((name for name in names if name in there), names[0]) for names in self.placing.key}

    def _other_key(self, there: Sequence[str], missing: set[str]) -> DataError:
        mine = [names[0] for names in self.placing.key]
        return DataError(
            f"{self.topic}: messages have the key {printable(sorted(there))} and the table has {printable(mine)}. Make "
            "a table with key= the columns of the messages, or set message.key.columns of the connector. Nothing was "
            "written.",
            topic=self.topic,
            column=sorted(missing)[0],
        )


__all__ = ["KeyReader"]
