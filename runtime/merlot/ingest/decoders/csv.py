"""Decode CSV messages: one record each, without header, by the rules of CSV files."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from merlot.ingest.decoders.protocol import Decoded, Wanted, split_good
from merlot.ingest.source import csv_files, csv_records, names
from merlot.ingest.source.blocks import is_utf8
from merlot.spec.stream import MessageCsv


class CsvDecoder:
    """Decoder of records of one width. Raises InvalidInputError for impossible names or an impossible delimiter."""

    def __init__(self, wanted: Wanted, written: MessageCsv) -> None:
        csv_files.check(written)
        present = list(written.columns or wanted.names)
        actual_names = {name: names.find(name, present, "the messages") for name in wanted.columns}
        self._columns = {name: present.index(actual) for name, actual in actual_names.items() if actual is not None}
        self._width = len(present)
        self._written = written

    def decode(self, values: pa.LargeBinaryArray) -> Sequence[Decoded]:
        """Return the records of messages. A message that holds no record, or several, is bad."""
        payloads = values.to_pylist()
        text = b"\n".join([*payloads, b""])
        lines = payloads
        # With one line break per message and nothing odd, lines are messages, and all of them are text if the whole is.
        if b"" in payloads or b'"' in text or b"\r" in text or text.count(b"\n") != len(payloads) or not is_utf8(text):
            lines = [self._line(payload) for payload in payloads]
            text = b"".join(lines)
        there = np.array([row for row, line in enumerate(lines) if line], dtype=np.int64)
        records = csv_records.split(text, self._written.delimiter, self._width, is_last=True)
        assert records.count == len(there), "each line is one record"
        messages = there[records.good_numbers]
        has_others = np.array(records.corrupt_widths, dtype=np.int64) > 0
        miscounted = there[records.corrupt_numbers[has_others]]
        bad = np.setdiff1d(np.arange(len(lines)), np.concatenate([messages, miscounted]))
        columns = csv_files.texts(records.good, self._written, self._width, self._columns) if records.good else {}
        faults = dict(split_good(bad, len(lines))[1])
        if len(miscounted):
            faults[f"the message has not {self._width} values"] = miscounted
        return (Decoded(columns=columns, messages=messages, bad=faults),)

    def _line(self, message: bytes) -> bytes:
        """Return the one record of a message, ended by a line break; empty if there is none, or more than one."""
        text = message.rstrip(b"\r\n")
        if not any(sign in text for sign in (b"\n", b"\r", b'"')):
            return text + b"\n" if text and is_utf8(text) else b""
        records = csv_records.split(text, self._written.delimiter, self._width, is_last=True)
        return records.good if records.count == 1 and not len(records.corrupt) else b""
