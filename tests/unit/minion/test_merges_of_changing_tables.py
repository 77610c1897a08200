"""A table changes while a minion merges it: the outputs hold each row once, as the changed table reads it."""

from pathlib import Path

from tests.budget import count
from tests.support.merges import SERVER, MergeBench
from tests.support.sample import ORDERS
from tests.unit.spec import built_rows, variants
from tests.unit.spec.variants import Variant

from merlot.catalog.publish import upload
from merlot.cluster.instances.reports import ReportWriter
from merlot.cluster.manifests.tables import confirm_table, put_table
from merlot.cluster.segments.publish import publish
from merlot.minion.execution import Ending
from merlot.spec import evolution
from merlot.spec.table import Table

MOST_OF_A_FIELD = count("MERLOT_VARIANTS", quick=1, every=100)


def orders(table: Table) -> Table:
    """The table under the name that the bench merges."""
    return variants.in_own_store(table).model_copy(
        update={"metadata": table.metadata.model_copy(update={"name": "orders"})}
    )


class VariantBench(MergeBench):
    """Has the segments of a base."""

    def publish_anew(self) -> None:
        table = orders(variants.base("append"))
        put_table(self.inner, table)
        confirm_table(self.inner, ORDERS)
        self.records = [upload(self.deep_store, one, ORDERS) for one in built_rows.segments_of(table)]
        publish(self.inner, ORDERS, self.records)
        self._report = ReportWriter(self.inner, ORDERS, SERVER)
        self.serve()


def live_changes() -> list[Variant]:
    """Manifests that the base may become while it lives: a few of every field that such a change may have."""
    before = orders(variants.base("append")).spec
    found: dict[str, dict[str, Variant]] = {}
    for variant in variants.every():
        after = orders(variant.table).spec
        is_live = variant.base == "append" and after != before and not evolution.compare(before, after)
        if is_live and variant.path.startswith(("spec.schema", "spec.partitioning", "spec.indexing", "spec.ingestion")):
            found.setdefault(variant.path, {}).setdefault(variant.value[:12], variant)
    return [one for each in found.values() for one in list(each.values())[:MOST_OF_A_FIELD]]


def test_a_merge_of_a_table_that_changes_meanwhile_holds_each_row_once(tmp_path: Path) -> None:
    for number, variant in enumerate(live_changes()):
        (tmp_path / str(number)).mkdir()
        bench = VariantBench(tmp_path / str(number), range(2))
        bench.queue()

        def change(reached: str, bench: VariantBench = bench, variant: Variant = variant) -> None:
            if reached == "outputs built":
                put_table(bench.inner, orders(variant.table))

        assert bench.run(reached=change) is Ending.DONE, variant.id
        schema = variant.table.spec.table_schema
        files = [Path(one.url.removeprefix("file://")) for one in bench.view().visible.values()]
        inputs = [Path(one.url.removeprefix("file://")) for one in bench.records]
        assert built_rows.rows_under(files, schema) == built_rows.rows_under(inputs, schema), variant.id
        bench.close()
