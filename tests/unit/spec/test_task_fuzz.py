"""Whatever stands in a manifest of merges or upserts, it is read or refused with paths; nothing else happens."""

import copy
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.budget import examples

from merlot.spec import manifest
from merlot.spec.manifest import KINDS, ManifestError, ManifestProblem

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "orders"
DOCUMENTS = [yaml.safe_load((EXAMPLES / name).read_text()) for name in ("rollup.yaml", "upsert.yaml")]
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.sampled_from(["1mo", "0d", "a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every part."""
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += places(inner, (*path, key))
    return found


@settings(max_examples=examples(150), deadline=None)
@given(st.sampled_from(DOCUMENTS), st.data())
def test_a_broken_part_is_refused_with_its_path_or_taken(document: Any, data: st.DataObject) -> None:
    broken = copy.deepcopy(document)
    for _ in range(data.draw(st.integers(1, 3))):
        *parents, last = data.draw(st.sampled_from(places(broken) or [("kind",)]))
        target = broken
        for key in parents:
            target = target[key]
        target[last] = data.draw(JUNK)
    assert all(problem.message for problem in problems_of(broken, KINDS[document["kind"]].model))


def problems_of(document: object, model: Any) -> tuple[ManifestProblem, ...]:
    """What is wrong; what is not reads back from its stored form."""
    try:
        found = manifest.load_document(document, model)
    except ManifestError as error:
        return error.problems
    assert manifest.from_stored(manifest.dump(found), model) == found
    return ()
