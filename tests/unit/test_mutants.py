"""The table of mutants fits the source that it spoils, so that it does not rot."""

import ast

import pytest
from tests.mutants.table import ROOT, Mutant, UnfitMutantError, chosen, read_tables

MUTANTS = read_tables()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: f"{one.area}-{one.id}")
def test_mutant_fits_one_place_of_the_source_and_names_tests_that_are_there(mutant: Mutant) -> None:
    source = (ROOT / mutant.file).read_text()
    spoiled = mutant.applied_to(source)
    assert ast.dump(ast.parse(spoiled)) != ast.dump(ast.parse(source)), "it changes what the code does"
    for test in mutant.tests:
        file, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text() if name else (ROOT / file).exists()


def test_ids_and_commits_of_mutants_are_distinct() -> None:
    assert len({one.id for one in MUTANTS}) == len({one.commit for one in MUTANTS}) == len(MUTANTS)


def test_mutants_are_chosen_by_area_id_and_commit() -> None:
    first = MUTANTS[0]
    assert chosen(MUTANTS, [first.commit]) == chosen(MUTANTS, [first.id]) == [first]
    assert chosen(MUTANTS, [first.area]) == [one for one in MUTANTS if one.area == first.area]
    with pytest.raises(UnfitMutantError, match="nonsense"):
        chosen(MUTANTS, ["nonsense"])
