"""What a web page may not ask of a process."""

import pytest

from merlot.http.browsers import Hosts, hosts_of, refusal

LOCAL = hosts_of("127.0.0.1", "merlot.example")
MOZILLA = {"User-Agent": "Mozilla/5.0 (X11)"}
FORM = {"Content-Type": "text/plain;charset=UTF-8"}


@pytest.mark.parametrize(
    ("bind", "host", "is_admitted"),
    [
        ("127.0.0.1", "localhost:8099", True),
        ("127.0.0.1", "LOCALHOST", True),
        ("127.0.0.1", "app.localhost:1", True),
        ("127.0.0.1", "127.0.0.1:8099", True),
        ("127.0.0.1", "10.1.2.3", True),
        ("::1", "[::1]:8099", True),
        ("127.0.0.1", "merlot.example:443", True),
        ("127.0.0.1", "evil.example:8099", False),
        ("localhost", "localhost.evil.example", False),
        ("::1", "127.0.0.1.evil.example", False),
        ("127.0.0.1", "", False),
        ("127.0.0.1", "[", False),
        ("0.0.0.0", "evil.example", True),
        ("10.1.2.3", "broker.shop.svc:8099", True),
    ],
)
def test_a_process_of_one_machine_is_asked_by_its_own_names(bind: str, host: str, is_admitted: bool) -> None:
    """Others are asked by any name that a Service or a proxy has."""
    hosts = hosts_of(bind, "Merlot.example")
    assert hosts.admits(host) == is_admitted
    for method in ("GET", "POST"):
        assert (refusal(method, {"Host": host}, hosts) is None) == is_admitted


@pytest.mark.parametrize(
    "headers",
    [
        {},
        FORM,
        {"User-Agent": "curl/8.5", "Content-Type": "application/x-www-form-urlencoded"},
        {"User-Agent": "python-requests/2", "Content-Type": "multipart/form-data; boundary=x"},
        {**MOZILLA, "Content-Type": "application/json"},
        {**MOZILLA, **FORM, "Origin": "http://localhost:8099"},
        {**MOZILLA, "Origin": "https://shop.example", "X-Forwarded-Host": "shop.example"},
        {**MOZILLA, "Origin": "https://shop.example", "Sec-Fetch-Site": "same-origin"},
        {**MOZILLA, "Sec-Fetch-Site": "none"},
    ],
)
def test_programs_and_own_pages_are_obeyed(headers: dict[str, str]) -> None:
    for method in ("GET", "POST", "PUT", "DELETE"):
        assert refusal(method, {"Host": "localhost:8099", **headers}, LOCAL) is None


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({**MOZILLA, **FORM, "Origin": "http://evil.example"}, "another origin asks"),
        ({"Origin": "http://localhost:3000"}, "another origin asks"),
        ({"Origin": "null"}, "another origin asks"),
        ({"Origin": "http://localhost:8099", "Sec-Fetch-Site": "cross-site"}, "another origin asks"),
        ({"Origin": "http://localhost:3000", "Sec-Fetch-Site": "same-site"}, "another origin asks"),
        ({**MOZILLA, **FORM}, "a form of a page asks"),
        ({**MOZILLA, "Content-Type": "Multipart/Form-Data; boundary=x"}, "a form of a page asks"),
    ],
)
def test_what_other_pages_would_change_is_refused(headers: dict[str, str], reason: str) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        for hosts in (LOCAL, Hosts()):
            assert reason in str(refusal(method, {"Host": "localhost:8099", **headers}, hosts))
    assert refusal("GET", {"Host": "localhost:8099", **headers}, LOCAL) is None
