"""What a job says of a controller that is none, before it builds anything."""

import socket

import pytest
from aiohttp import web
from tests.support.apps import CUT_SHORT, serve_app, serve_bytes
from tests.unit.spec import shapes

from merlot.errors import InvalidInputError, MerlotError, NotFoundError, UnavailableError
from merlot.ids import RawTableName
from merlot.spec import manifest
from merlot.spec.shape import shape_of
from merlot_spark.publish import ControllerClient, PublishOrder


@pytest.mark.parametrize("url", ["localhost:8099", "ftp://localhost", "localhost"])
def test_a_url_without_http_is_refused(url: str) -> None:
    with pytest.raises(InvalidInputError, match=r"begins with http:// or https:// url="):
        ControllerClient(url)


@pytest.mark.parametrize(
    ("body", "status", "family", "message"),
    [
        ("<html>\nhello\n</html>", 200, InvalidInputError, "this is no controller of Merlot .* not JSON"),
        ('{"hello": 1}', 200, InvalidInputError, "this is no controller of Merlot .* no manifest"),
        ("<html>\nnothing\n</html>", 404, NotFoundError, "answered 404: <html> nothing </html>"),
        ("<html>\nbusy\n</html>", 502, UnavailableError, "answered 502: <html> busy </html>"),
    ],
)
def test_another_web_server_is_told_in_one_line(
    body: str, status: int, family: type[MerlotError], message: str
) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=body, status=status)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    with serve_app(app) as url, pytest.raises(family, match=message) as raised:
        ControllerClient(url, waits_s=()).table("trips")
    assert "\n" not in str(raised.value)


def test_an_error_whose_body_is_cut_short_keeps_its_status() -> None:
    answer = CUT_SHORT.replace(b"200 OK", b"503 Service Unavailable")
    with serve_bytes(answer) as url, pytest.raises(UnavailableError, match="answered 503: Service Unavailable; "):
        ControllerClient(url, waits_s=()).table("trips")


def test_tls_to_a_plain_server_is_wrong_input_and_a_closed_port_is_not() -> None:
    with serve_app(web.Application()) as url, pytest.raises(InvalidInputError, match="does not speak TLS"):
        ControllerClient(url.replace("http:", "https:"), waits_s=()).table("trips")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(UnavailableError, match="controller cannot be reached"):
            ControllerClient(url, waits_s=()).table("trips")


@pytest.mark.parametrize("is_old", [False, True])
def test_only_a_controller_that_compares_shapes_is_told_one(is_old: bool) -> None:
    bodies = []

    async def answer(_: web.Request) -> web.Response:
        told = {} if is_old else {"deepStore": None, "shape": dict(shape_of(shapes.table().spec))}
        return web.json_response({"revision": 1, "manifest": manifest.dump(shapes.table()), **told})

    async def publish(request: web.Request) -> web.Response:
        bodies.append(await request.json())
        return web.json_response({"published": [], "unchanged": []})

    app = web.Application()
    app.router.add_get("/tables/trips/manifest", answer)
    app.router.add_post("/segments/trips/publish", publish)
    with serve_app(app) as url:
        client = ControllerClient(url)
        applied = client.table("trips")
        applied.check(shapes.table(), None)
        with pytest.raises(InvalidInputError, match=r"spec\.pushType: applied APPEND and here REFRESH"):
            applied.check(shapes.table(("APPEND", "REFRESH")), None)
        client.publish(PublishOrder(table=RawTableName("trips"), records=[], shape=applied.shape))
    assert ["shape" in body for body in bodies] == [not is_old]
