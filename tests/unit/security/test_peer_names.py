"""Names of certificates that may call servers."""

import pytest

from merlot.security.peer_names import BROKERS, is_named, names_of


def certificate(*names: str) -> dict[str, object]:
    kinds = [("URI" if ":" in name else "DNS", name) for name in names]
    return {"subject": ((("commonName", "broker"),),), "subjectAltName": (("IP Address", "10.0.0.1"), *kinds)}


@pytest.mark.parametrize(
    ("name", "is_broker"),
    [
        ("broker", True),
        ("Broker.flights.SVC", True),
        ("merlot-broker.flights.svc", True),
        ("server", False),
        ("merlot-server.broker.svc", False),
        ("brokers", False),
        ("evil-broker", False),
        ("*.merlot-broker.svc", False),
        ("10.0.0.1", False),
    ],
)
def test_a_broker_is_named_so_in_the_first_label(name: str, is_broker: bool) -> None:
    assert is_named(certificate("other", name), BROKERS) is is_broker


def test_patterns_of_ones_own_replace_the_default() -> None:
    spiffe = certificate("spiffe://prod/ns/olap/sa/broker")
    assert is_named(spiffe, ("spiffe://prod/*/sa/broker",))
    assert not is_named(spiffe, BROKERS)
    assert not is_named(certificate("broker"), ())


def test_the_subject_and_addresses_are_no_names() -> None:
    assert names_of(certificate()) == ()
    assert names_of(None) == ()
    assert names_of({}) == ()
