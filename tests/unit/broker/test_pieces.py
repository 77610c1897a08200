"""Docs of a query in pieces: each doc once, of the server that the route names, no more at a time than wanted."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping

import orjson
from hypothesis import given
from hypothesis import strategies as st

from merlot.broker.routing.routes import ServerRoute
from merlot.broker.scatter_gather.pieces import Pieces, RoutePiece
from merlot.ids import InstanceId
from merlot.tree.nodes import Call, Literal
from merlot.tree.tree_json import where_from_json

Doc = tuple[str, int]
SIZES = st.lists(st.none() | st.integers(0, 60), max_size=12)


def docs_of(piece: RoutePiece, sizes: Mapping[str, int | None]) -> list[Doc]:
    """What a server would answer with: docs of a segment, or of the range that the filter says."""
    if not piece.is_range:
        return [(key, doc) for key in piece.route.segments for doc in range(sizes[key] or 0)]
    (key,) = piece.route.segments
    both = where_from_json(piece.where(b""))
    assert isinstance(both, Call)
    low, high = (call.args[1] for call in both.args if isinstance(call, Call))
    assert isinstance(low, Literal)
    assert isinstance(high, Literal)
    return [(key, doc) for doc in range(sizes[key] or 0) if int(str(low.value)) <= doc < int(str(high.value))]


@given(servers=st.lists(SIZES, max_size=3), wanted=st.lists(st.integers(1, 50), min_size=1))
def test_every_doc_is_in_one_piece_and_halves_of_pieces_keep_it_so(
    servers: list[list[int | None]], wanted: list[int]
) -> None:
    sizes = {f"s{at}_{number}@1": size for at, some in enumerate(servers) for number, size in enumerate(some)}
    routes = [
        ServerRoute(InstanceId(f"Server_{at}"), tuple(f"s{at}_{number}@1" for number in range(len(some))))
        for at, some in enumerate(servers)
    ]
    pieces, turns = Pieces(routes, sizes.__getitem__), deque(wanted)
    taken: list[RoutePiece] = []
    while (piece := pieces.take(turns[0])) is not None:
        assert piece.num_docs <= turns[0]
        assert {key.partition("_")[0] for key in piece.route.segments} == {f"s{piece.route.instance[-1]}"}
        taken += piece.halves() if piece.is_cuttable and turns[0] % 2 else [piece]
        turns.rotate()
    assert Counter(doc for piece in taken for doc in docs_of(piece, sizes)) == Counter(
        (key, doc) for key, size in sizes.items() for doc in range(size or 0)
    )
    uncut = [piece for piece in taken if None in piece.sizes]
    assert sorted(key for piece in uncut for key in piece.route.segments) == sorted(
        key for key, size in sizes.items() if size is None
    )


def test_servers_take_turns() -> None:
    routes = [ServerRoute(InstanceId(f"Server_{at}"), (f"a{at}@1", f"b{at}@1")) for at in range(2)]
    pieces = Pieces(routes, lambda _: 10)
    asked = [piece.route.instance for piece in iter(lambda: pieces.take(10), None) if piece is not None]
    assert asked == ["Server_0", "Server_1", "Server_0", "Server_1"]


def test_the_filter_of_a_query_holds_in_each_range() -> None:
    (first, rest) = RoutePiece(ServerRoute(InstanceId("Server_0"), ("a@1",)), (10,)).cut(4)
    mine = b'["L","BOOLEAN",true]'
    for piece in (first, rest):
        kind, _, function, (own, _) = orjson.loads(piece.where(mine))
        assert (kind, function, own) == ("F", "and", orjson.loads(mine))
