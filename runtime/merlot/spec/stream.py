"""Stream of a table: how its messages are read, and when a segment ends.

A table with a stream has a realtime part. The record of each consuming segment pins the settings that decide which rows
are valid: all of `StreamIngestion` except what a client needs to connect. A change takes effect at the next segment.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field, field_validator

from merlot.entry_points import entry_points_named
from merlot.spec.column_names import ColumnName
from merlot.spec.model import SpecModel
from merlot.spec.tenancy import MAX_URI
from merlot.values.durations import Duration, duration_ms

ENTRY_POINTS: Final = "merlot.streams"
"""Entry point group of streams of installed packages. Their names contain a dot (`acme.pulsar`), so that none clashes
with a stream of a later version."""
STREAM_TYPES: Final = ("kafka", "files")
METADATA = r"^(key|offset|timestamp|partition|headers\.[^\s].{0,199})$"
HEADER_PREFIX: Final = "headers."
START = r"^(earliest|latest|[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}:[0-9]{2}Z)?)$"
SECRET_NAME = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"
MAX_SCHEMA_CHARS: Final = 100_000
MAX_DESCRIPTOR_CHARS: Final = 200_000

REGISTRY_PROPERTIES: Final = frozenset({"basic.auth.user.info"})
"""Properties of the schema registry's client."""
SECRET_PROPERTIES: Final = frozenset(
    {
        *("sasl.password", "sasl.oauthbearer.client.secret", "sasl.oauthbearer.config"),
        *("ssl.key.password", "ssl.key.pem", "ssl.keystore.password"),
        *REGISTRY_PROPERTIES,
    }
)
"""Properties that a manifest may not hold: they belong into the Secret that `secretRef` names."""
OWN_PROPERTIES: Final = frozenset(
    {
        *("group.id", "group.instance.id", "enable.auto.commit", "enable.auto.offset.store", "enable.partition.eof"),
        *("auto.offset.reset", "allow.auto.create.topics"),
    }
)
"""Properties of Kafka's client that Merlot sets itself: offsets are stored in segment records, not in a consumer
group."""
HOST_PROPERTIES: Final = frozenset(
    {
        *("plugin.library.paths", "ssl.engine.location", "ssl.engine.id", "ssl.providers", "sasl.kerberos.kinit.cmd"),
        *("sasl.kerberos.keytab", "sasl.oauthbearer.assertion.file", "sasl.oauthbearer.assertion.jwt.template.file"),
        *("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.crl.location"),
        *("ssl.keystore.location", "ssl.truststore.location", "https.ca.location", "offset.store.path"),
        *("sasl.oauthbearer.assertion.private.key.file", "sasl.oauthbearer.metadata.authentication.type"),
    }
)
"""Properties that name programs, libraries and files of the consuming machine, or have it present its own identity (the
token of a cloud's metadata service). Authors of Tables may not control that machine; keys and certificates are given as
text, by `ssl.ca.pem` and the like."""


class DecoderType(StrEnum):
    """Format of a message."""

    JSON = "JSON"
    CSV = "CSV"
    AVRO = "AVRO"
    PROTOBUF = "PROTOBUF"
    ARROW = "ARROW"


class BadMessages(StrEnum):
    """Reaction to a message that is no row of the table."""

    SKIP = "skip"
    STOP = "stop"


class OutOfRange(StrEnum):
    """Reaction of a partition whose next message the stream no longer has, or does not have yet."""

    EARLIEST = "earliest"
    LATEST = "latest"
    STOP = "stop"


class MessageCsv(SpecModel):
    """Format of CSV messages."""

    columns: Annotated[tuple[Annotated[str, Field(min_length=1, max_length=128)], ...], Field(max_length=2_000)] = ()
    """Names of a message's values, in order; the schema's columns if left out."""
    delimiter: str = Field(",", min_length=1, max_length=1)
    """Character between two values."""
    null_value: str = Field("", max_length=100)
    """Text that stands for null."""


class DecoderSpec(SpecModel):
    """How messages become rows."""

    type: DecoderType = DecoderType.JSON
    """JSON: an object. CSV: one record without header. AVRO, PROTOBUF: one record. ARROW: an IPC stream of any number
    of rows."""
    csv: MessageCsv | None = None
    """How CSV messages are written; only with type CSV."""
    schema_registry: str | None = Field(None, pattern=r"^https?://[^\s@]+$", max_length=MAX_URI)
    """URL of a registry with the schemas of AVRO messages, which begin with a zero byte and the number of their schema
    (Confluent's format). User and password are basic.auth.user.info of the Secret."""
    avro_schema: str | None = Field(None, min_length=1, max_length=MAX_SCHEMA_CHARS)
    """Schema of AVRO messages without a registry, as JSON."""
    descriptor_set: str | None = Field(None, min_length=1, max_length=MAX_DESCRIPTOR_CHARS)
    """File of `protoc --include_imports --descriptor_set_out` in Base64, for PROTOBUF."""
    message: str | None = Field(None, min_length=1, max_length=500)
    """Full name of the message in the descriptor set, such as acme.trips.Trip, for PROTOBUF."""


class FlushSpec(SpecModel):
    """Bounds of a consuming segment; the first that is reached ends it."""

    rows: int = Field(5_000_000, ge=1, le=1_000_000_000)
    """Rows of a segment."""
    bytes: int = Field(512 << 20, ge=1 << 20, le=1 << 40)
    """Memory that a consuming segment may take."""
    age: Duration = "6h"
    """Age of a consuming segment that has rows."""

    @property
    def age_ms(self) -> int:
        """`age` in milliseconds."""
        return duration_ms(self.age)


class StreamIngestion(SpecModel):
    """Stream whose messages are rows of the table."""

    type: str = Field(max_length=100)
    """kafka, files (a folder of JSON lines that grow; no broker needed), or the type of an installed package, which has
    a dot in its name."""
    topic: str | None = Field(None, min_length=1, max_length=MAX_URI)
    """Topic of Kafka, or the folder of files. It cannot change."""
    properties: Annotated[Mapping[str, Annotated[str, Field(max_length=10_000)]], Field(max_length=200)] = {}
    """Properties of the stream's client, such as bootstrap.servers and security.protocol, but no secrets."""
    secret_ref: str | None = Field(None, pattern=SECRET_NAME, max_length=253)
    """Secret in the table's namespace whose keys are more properties, such as sasl.username, sasl.password, ssl.ca.pem,
    ssl.certificate.pem and ssl.key.pem."""
    decoder: DecoderSpec = DecoderSpec()
    """How messages become rows."""
    start: str = Field("earliest", pattern=START, max_length=20)
    """Where consuming begins when the table is created: earliest, latest, or an instant, UTC: 2013-01-01T00:00:00Z."""
    filter: str | None = Field(None, min_length=1, max_length=100_000)
    """SQL predicate over a message's values and the table's columns; rows that do not satisfy it are left out."""
    derived_columns: Annotated[
        Mapping[ColumnName, Annotated[str, Field(min_length=1, max_length=100_000)]], Field(max_length=2_000)
    ] = {}
    """SQL expression over a message's values, by the column that it fills; a row for which it fails is bad."""
    metadata: Annotated[
        Mapping[ColumnName, Annotated[str, Field(pattern=METADATA, max_length=210)]], Field(max_length=2_000)
    ] = {}
    """Source of a column outside the message's value: key, offset, timestamp, partition or headers.<name>."""
    bad_messages: BadMessages = BadMessages.SKIP
    """Reaction to a message that is no row. skip: count it and store a sample. stop: stop consuming before it."""
    on_offset_out_of_range: OutOfRange = OutOfRange.EARLIEST
    """Reaction if messages were deleted before they were consumed. earliest: continue with the oldest that remain;
    latest: with new ones; stop: consume no more until the policy is changed. The gap is shown in any case. If a stream
    ends before the offset that was reached, earliest and stop stop the partition."""
    flush: FlushSpec = FlushSpec()
    """When a consuming segment ends."""

    @field_validator("type")
    @classmethod
    def _type_is_installed(cls, value: str) -> str:
        if "." in value and not is_known(value):
            raise ValueError(f'unknown stream type "{value}"; no installed package offers it')
        return value

    @property
    def start_ms(self) -> int | None:
        """Instant at which consuming begins, epoch milliseconds; None if `start` is no instant."""
        if self.start in ("earliest", "latest"):
            return None
        return int(datetime.fromisoformat(self.start.removesuffix("Z")).replace(tzinfo=UTC).timestamp() * 1000)


def is_known(type_: str) -> bool:
    """Return True if this installation has the stream type."""
    return type_ in STREAM_TYPES or ("." in type_ and bool(entry_points_named(ENTRY_POINTS, type_)))
