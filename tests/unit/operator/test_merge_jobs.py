"""Which Jobs of merges there shall be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.unit.operator.pool_parts import CONFIG

from merlot.spec.tenancy import Resources
from merlot_operator.config import RoleSize
from merlot_operator.kube.kinds import TABLE, Object, name_of
from merlot_operator.manifests.merge import MergePod, merge_job
from merlot_operator.reconcilers.merge_jobs import plan

TASKS = [("flights.monthly.2013-01-01.0a", "flights"), ("flights.monthly.2013-02-01.0b", "flights")]
FLIGHTS = {"metadata": {"name": "flights", "uid": "u1"}}
TABLES = {"flights": FLIGHTS}


def job(task: str, *ended: str, stores: dict[str, str] | None = None) -> dict[str, Any]:
    owner = {"kind": "Table", "name": "flights", "uid": "u1"}
    pod = MergePod(namespace="n", table="flights", task=task, owner=owner, stores=stores or {})
    status = {"conditions": [{"type": one, "status": "True"} for one in ended]}
    return {**merge_job(pod, CONFIG), "status": status}


def decide(tasks: list[tuple[str, str]], jobs: list[Object], most: int = 5, **tables: Object) -> tuple[Any, list[str]]:
    chosen = plan(tasks, jobs, tables or TABLES, most)
    return list(chosen.started), [name_of(one) for one in chosen.obsolete]


def test_each_task_gets_one_job_and_no_more_than_allowed_run_at_a_time() -> None:
    assert decide(TASKS, []) == (TASKS, [])
    assert decide(TASKS, [], most=1) == (TASKS[:1], [])
    assert decide(TASKS, [job(TASKS[0][0])], most=1) == ([], [])
    assert decide(TASKS, [job(TASKS[0][0])]) == (TASKS[1:], [])
    assert decide(TASKS, [job(task) for task, _ in TASKS]) == ([], [])


def test_a_job_goes_with_its_task_and_one_that_ended_before_it_makes_room_for_another() -> None:
    first, second = (job(task) for task, _ in TASKS)
    assert decide(TASKS[1:], [first, second]) == ([], [name_of(first)])
    for end in ("Failed", "Complete"):
        ended = job(TASKS[0][0], end)
        assert decide(TASKS[:1], [ended]) == ([], [name_of(ended)])
        leaving = {**ended, "metadata": {**ended["metadata"], "deletionTimestamp": "now"}}
        assert decide(TASKS[:1], [leaving]) == ([], [])


def test_a_table_that_goes_takes_its_jobs_along() -> None:
    going = {"metadata": {**FLIGHTS["metadata"], "deletionTimestamp": "now"}}
    assert decide(TASKS, [], flights=going) == ([], [])
    assert decide(TASKS, [], other=FLIGHTS) == ([], [])
    assert job(TASKS[0][0])["metadata"]["labels"][TABLE] == "flights"


def test_names_are_the_task_s_and_fit_what_is_made_of_them() -> None:
    one, same, other = job("a" * 200), job("a" * 200), job("a" * 199)
    assert name_of(one) == name_of(same) != name_of(other)
    assert len(name_of(one)) <= 41


def test_spark_gets_a_core_for_each_2_gib_and_no_less_than_it_starts_with() -> None:
    def arguments(memory: str) -> list[str]:
        driver = RoleSize(resources=Resources(limits={"memory": memory}))
        pod = MergePod(namespace="n", table="flights", task="t", owner={"uid": "u1"})
        made = merge_job(pod, replace(CONFIG, sizes=replace(CONFIG.sizes, driver=driver)))
        args: list[str] = made["spec"]["template"]["spec"]["containers"][0]["args"]
        return [one for one in args if "spark" in one]

    assert arguments("1400Mi") == ["--spark-master=local[1]", "--spark-conf=spark.driver.memory=512m"]
    assert arguments("8Gi") == ["--spark-master=local[4]", "--spark-conf=spark.driver.memory=2457m"]


def test_the_pod_is_a_minion_of_the_spark_image_without_rights() -> None:
    made = job(TASKS[0][0], stores={"s3://own/m": "keys"})
    spec = made["spec"]["template"]["spec"]
    container = spec["containers"][0]
    assert (container["image"], spec["restartPolicy"]) == (CONFIG.spark_image, "Never")
    assert (spec["serviceAccountName"], spec["automountServiceAccountToken"]) == ("merlot", False)
    assert container["args"][:2] == ["merlot", "minion"]
    assert f"--only-task={TASKS[0][0]}" in container["args"]
    assert "--spark-master=local[1]" in container["args"]
    assert "--spark-conf=spark.driver.memory=614m" in container["args"]
    assert container["resources"]["limits"]["memory"] == "2Gi"
    assert "MERLOT_STORE_SECRETS" in {one["name"] for one in container["env"]}
    assert made["metadata"]["annotations"]["merlot.dev/task"] == TASKS[0][0]
