"""Manifests that differ from a table's in one field each."""

from dataclasses import dataclass

from merlot.spec import manifest
from merlot.spec.table import Table

Edit = tuple[str, str]
BASE = """\
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: trips}
spec:
  schema:
    fields:
      - {name: at, type: TIMESTAMP, role: dateTime}
      - {name: day, type: LONG, role: dateTime, format: EPOCH|DAYS}
      - {name: city, type: STRING}
      - {name: rides, type: LONG}
    primaryKey: [city]
  timeColumn: at
  partitioning: {columns: {city: {functionName: Murmur, numPartitions: 2}}}
  pushType: APPEND
  ingestion: {daysPerSegment: 1}
"""
FIELDS = "spec.schema.fields"
RIDES = "name: rides, type: LONG"


@dataclass(frozen=True)
class Case:
    """A field, how to change it, and whether a segment's own file tells."""

    path: str
    edits: tuple[Edit, ...]
    is_in_file: bool = False


DIFFERENT = [
    Case("spec.timeColumn", (("timeColumn: at", "timeColumn: day"),), is_in_file=True),
    Case("spec.pushType", (("APPEND", "REFRESH"),)),
    Case("spec.ingestion.daysPerSegment", (("daysPerSegment: 1", "daysPerSegment: 7"),), is_in_file=True),
    Case("spec.partitioning", (("numPartitions: 2", "numPartitions: 4"),)),
    Case("spec.partitioning", (("Murmur", "HashCode"),)),
    Case("spec.partitioning", (("numPartitions: 2}}", "numPartitions: 2}}, enforce: assert"),)),
    Case("spec.partitioning", (("  partitioning: {columns: {city: {functionName: Murmur, numPartitions: 2}}}\n", ""),)),
    Case("spec.upsert", (("  pushType", "  upsert: {config: {mode: FULL}}\n  pushType"),)),
    Case("spec.schema.primaryKey", (("primaryKey: [city]", "primaryKey: [city, day]"),)),
    Case(FIELDS, (("      - {name: rides, type: LONG}\n", ""),)),
    Case(FIELDS, ((RIDES, f"{RIDES}}}\n      - {{name: more, type: INT"),)),
    Case(FIELDS, ((RIDES, "name: miles, type: LONG"),)),
    Case(
        FIELDS,
        (
            ("      - {name: rides, type: LONG}\n", ""),
            ("      - {name: city", "      - {name: rides, type: LONG}\n      - {name: city"),
        ),
    ),
    Case(f"{FIELDS}[rides]", ((RIDES, "name: rides, type: STRING"),), is_in_file=True),
    Case(f"{FIELDS}[rides]", ((RIDES, "name: rides, type: INT, defaultNullValue: 5"),)),
    Case(f"{FIELDS}[rides]", ((RIDES, f"{RIDES}, multiValue: true"),), is_in_file=True),
    Case(f"{FIELDS}[rides]", ((RIDES, f"{RIDES}, role: metric"),), is_in_file=True),
    Case(f"{FIELDS}[rides]", ((RIDES, f"{RIDES}, defaultNullValue: 7"),), is_in_file=True),
    Case(f"{FIELDS}[city]", (("name: city, type: STRING", "name: city, type: STRING, maxLength: 3"),)),
    Case(f"{FIELDS}[day]", (("EPOCH|DAYS", "EPOCH|HOURS"),), is_in_file=True),
]
EQUAL = [
    ("Murmur", "MURMUR"),
    ("{name: at, type: TIMESTAMP, role: dateTime}", "{name: at, type: TIMESTAMP, role: dateTime, format: TIMESTAMP}"),
    ("name: city, type: STRING", "name: city, type: STRING, maxLength: 512"),
    ("name: city, type: STRING", "name: city, type: STRING, description: where"),
    ("  timeColumn: at", "  timeColumn: at\n  replication: 3\n  retention: 9d"),
    ("  timeColumn: at", "  timeColumn: at\n  indexing: {inverted: [city], sortedColumns: [city]}"),
    ("{daysPerSegment: 1}", "{daysPerSegment: 1, batch: [{sourceUri: a.csv, format: CSV}]}"),
]


def table(*edits: Edit) -> Table:
    """The table whose manifest is edited so."""
    text = BASE
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new, 1)
    (found,) = manifest.load_tables(text)
    return found
