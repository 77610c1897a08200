"""Hosts that a Table may have servers connect to."""

from __future__ import annotations

import pytest

from merlot.errors import InvalidInputError
from merlot.spec.stream import DecoderSpec, StreamIngestion
from merlot.streams.allowed import AllowedStreams
from merlot.streams.folders import AllowedFolders, PlaceNotAllowedError

KAFKA = AllowedStreams(
    hosts=("kafka.shop.svc:9092", "*.brokers.example", "[fd00::1]:9092", "registry.shop.svc:80*"),
    folders=AllowedFolders(("/incoming",)),
)


def stream(servers: str, registry: str | None = None, **properties: str) -> StreamIngestion:
    return StreamIngestion(
        type="kafka",
        topic="t",
        properties={
            "bootstrap.servers": servers,
            **{name.replace("_", "."): value for name, value in properties.items()},
        },
        decoder=DecoderSpec(schema_registry=registry),
    )


@pytest.mark.parametrize(
    "declared",
    [
        stream("kafka.shop.svc:9092"),
        stream("KAFKA.shop.svc"),
        stream("SASL_SSL://kafka.shop.svc:9092, b.brokers.example:1,"),
        stream("[fd00::1]:9092"),
        stream("kafka.shop.svc", "http://registry.shop.svc:8081/apis"),
        stream("kafka.shop.svc", "http://registry.shop.svc"),
        StreamIngestion(type="files", topic="/incoming"),
    ],
)
def test_what_a_pattern_holds_is_allowed(declared: StreamIngestion) -> None:
    KAFKA.check(declared)


@pytest.mark.parametrize(
    ("declared", "path"),
    [
        (stream("evil:9092"), "properties.bootstrap.servers"),
        (stream("kafka.shop.svc:22"), "properties.bootstrap.servers"),
        (stream("kafka.shop.svc:9092,evil:9092"), "properties.bootstrap.servers"),
        (stream("kafka.shop.svc", metadata_broker_list="evil"), "properties.metadata.broker.list"),
        (stream("kafka.shop.svc:9092@evil:9092"), "properties.bootstrap.servers"),
        (stream("kafka.shop.svc:9092 evil:9092"), "properties.bootstrap.servers"),
        (stream("evil/.brokers.example"), "properties.bootstrap.servers"),
        (stream("[fd00::2]:9092"), "properties.bootstrap.servers"),
        (stream("kafka.shop.svc", "https://registry.shop.svc"), "decoder.schemaRegistry"),
        (stream("kafka.shop.svc", "http://evil/registry.shop.svc:8081"), "decoder.schemaRegistry"),
        (stream("kafka.shop.svc", "http://evil?registry.shop.svc:8081"), "decoder.schemaRegistry"),
        (stream("kafka.shop.svc", "http://evil#.brokers.example"), "decoder.schemaRegistry"),
        (
            stream("kafka.shop.svc", sasl_oauthbearer_token_endpoint_url="https://evil/token"),
            "properties.sasl.oauthbearer.token.endpoint.url",
        ),
    ],
)
def test_every_other_host_is_refused_by_its_field(declared: StreamIngestion, path: str) -> None:
    with pytest.raises(PlaceNotAllowedError, match=rf"stream\.{path}: "):
        KAFKA.check(declared)
    AllowedStreams().check(declared)


def test_what_a_package_names_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("merlot.spec.stream.is_known", lambda _: True)
    declared = StreamIngestion(type="acme.pulsar")
    with pytest.raises(PlaceNotAllowedError, match=r"acme\.pulsar names is not known"):
        KAFKA.check(declared)
    AllowedStreams(("*",)).check(declared)


@pytest.mark.parametrize("pattern", ["http://kafka:9092", "kafka:port", "a b", "", "[a-z]*"])
def test_what_is_no_pattern_of_a_host_is_told_at_the_start(pattern: str) -> None:
    with pytest.raises(InvalidInputError, match="not a host"):
        AllowedStreams((pattern,))
