"""The API by the Python client: objects of any kind, what changes as it changes, programs in pods, evictions."""

import http
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import urllib3
from kubernetes import client, config, stream
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import DynamicApiError, NotFoundError, ResourceNotFoundError

KINDS = {
    "table": ("merlot.dev/v1alpha1", "Table"),
    "rollup": ("merlot.dev/v1alpha1", "MergeRollupTask"),
    "upsert": ("merlot.dev/v1alpha1", "UpsertConfig"),
    "deployment": ("apps/v1", "Deployment"),
    "statefulset": ("apps/v1", "StatefulSet"),
    "job": ("batch/v1", "Job"),
    "pdb": ("policy/v1", "PodDisruptionBudget"),
    "networkpolicy": ("networking.k8s.io/v1", "NetworkPolicy"),
    "pod": ("v1", "Pod"),
    "pvc": ("v1", "PersistentVolumeClaim"),
    "resourcequota": ("v1", "ResourceQuota"),
    "service": ("v1", "Service"),
    "serviceaccount": ("v1", "ServiceAccount"),
    "configmap": ("v1", "ConfigMap"),
    "event": ("v1", "Event"),
}
PLURALS = {"networkpolicies": "networkpolicy"}
WATCHED = ("table", "rollup", "upsert", "pod", "job", "pvc", "event")
WATCH_S = 5
"""Short: the watches are left when they end, or at a change."""
EXECUTE_S = 60
BREAK_S = 1.0

Json = dict[str, Any]


class Api:
    """One namespace."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self._dynamic = DynamicClient(config.new_client_from_config())
        self._changed = threading.Event()
        self._is_over = threading.Event()
        self._watches = [threading.Thread(target=self._watch, args=(kind,), daemon=True) for kind in WATCHED]

    def close(self) -> None:
        """End its watches and connections: whoever waits for the collector is warned."""
        self._is_over.set()
        for thread in self._watches:
            if thread.ident is not None:
                thread.join()
        self._dynamic.client.rest_client.pool_manager.clear()
        self._dynamic.client.close()

    def get(self, kind: str, name: str) -> Json:
        """One object; empty if it, or its kind, is not there."""
        try:
            return dict(self._resource(kind).get(name=name, namespace=self.namespace).to_dict())
        except (NotFoundError, ResourceNotFoundError):
            return {}

    def all(self, kinds: str, selector: str = "") -> list[Json]:
        """Objects of kinds, by labels."""
        found: list[Json] = []
        for kind in kinds.split(","):
            listed = self._resource(kind).get(namespace=self.namespace, label_selector=selector).to_dict()
            found += [{"kind": KINDS[_singular(kind)][1], **one} for one in listed["items"]]
        return found

    def execute(self, pod: str, command: Sequence[str]) -> str:
        """What a program prints that is run in a pod."""
        # A client of its own: while a stream runs, it is no other request's.
        with _client() as own:
            run = client.CoreV1Api(own).connect_get_namespaced_pod_exec
            arguments = {"command": list(command), "stdin": False, "stdout": True, "stderr": True, "tty": False}
            answer = stream.stream(run, pod, self.namespace, _preload_content=False, **arguments)
            try:
                answer.run_forever(timeout=EXECUTE_S)
                return str(answer.read_all())
            finally:
                answer.close()
                # One that the server closed first is left open by that.
                answer.sock.shutdown()

    def log(self, pod: str, tail: int) -> list[str]:
        """The last lines that a pod printed."""
        read = client.CoreV1Api(self._dynamic.client).read_namespaced_pod_log
        # Raw: a log of one line of JSON would be made an object of.
        return list(read(pod, self.namespace, tail_lines=tail, _preload_content=False).data.decode().splitlines())

    def evict(self, pod: str) -> bool:
        """As a drain of its node does; False if the disruption budget has none to spare."""
        body = client.V1Eviction(metadata=client.V1ObjectMeta(name=pod, namespace=self.namespace))
        try:
            client.CoreV1Api(self._dynamic.client).create_namespaced_pod_eviction(pod, self.namespace, body)
        except client.ApiException as error:
            if error.status != http.HTTPStatus.TOO_MANY_REQUESTS:
                raise
            return False
        return True

    @property
    def changed(self) -> threading.Event:
        """Set at every change of what tests wait for, from the first look on; whoever waits clears it."""
        if self._watches[0].ident is None:
            for thread in self._watches:
                thread.start()
        return self._changed

    def _watch(self, kind: str) -> None:
        with _client() as own:
            while not self._is_over.is_set():
                try:
                    for _ in _resource(DynamicClient(own), kind).watch(namespace=self.namespace, timeout=WATCH_S):
                        self._changed.set()
                        if self._is_over.is_set():
                            return
                except (DynamicApiError, ResourceNotFoundError, client.ApiException, urllib3.exceptions.HTTPError):
                    # Not defined yet, or the API server is away: whoever waits looks now and then anyway.
                    time.sleep(BREAK_S)

    def _resource(self, kind: str) -> Any:
        return _resource(self._dynamic, kind)


@contextmanager
def _client() -> Iterator[Any]:
    """A client whose connections end with the block: `close` leaves them to the collector."""
    own = config.new_client_from_config()
    try:
        yield own
    finally:
        own.rest_client.pool_manager.clear()
        own.close()


def _resource(dynamic: Any, kind: str) -> Any:
    api_version, name = KINDS[_singular(kind)]
    return dynamic.resources.get(api_version=api_version, kind=name)


def _singular(kind: str) -> str:
    return kind if kind in KINDS else PLURALS.get(kind, kind.removesuffix("s"))
