"""A Kafka broker in a pod, whose clients have to log in, and the pod that produces and watches."""

import json
import time
from collections.abc import Mapping
from typing import Any

from tests.e2e.e2e_cluster import SMALL, USER, WAIT_S, Cluster, Json, pod

TOPIC, PARTITIONS, RATE = "events", 4, 200
HOST = "kafka"
PORT = 9092
SCRIPT = """
set -eu
options="-Xms96m -Xmx384m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile=/config/log4j2.properties"
if [ ! -f /data/log/meta.properties ]; then
  java $options -cp '/opt/kafka/libs/*' kafka.tools.StorageTool format -t MkU3OEVBNTcwNTJENDM2Qk \
    -c /config/server.properties
fi
exec java $options -cp '/opt/kafka/libs/*' kafka.Kafka /config/server.properties
"""
LOGGING = """
rootLogger.level = WARN
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %c{1} %m%n
"""


def login(user: str) -> dict[str, str]:
    """What a client needs to log in, beside where to."""
    return {"sasl.username": user, "sasl.password": f"{user}-secret"}


def client_properties(cluster: Cluster) -> dict[str, str]:
    """Of a client, without its login."""
    servers = f"{HOST}.{cluster.namespace}.svc:{PORT}"
    return {"bootstrap.servers": servers, "security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN"}


def secret(user: str) -> Json:
    """The Secret that the table names."""
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "merlot-kafka"}, "stringData": login(user)}


def broker_config(address: str, users: list[str]) -> Json:
    """Settings of the broker, for these users. Its clients are told an address, not a name: see `load` of conftest."""
    known = " ".join(f'user_{user}="{login(user)["sasl.password"]}"' for user in users)
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": "1@127.0.0.1:9093",
        "listeners": f"CLIENTS://0.0.0.0:{PORT},INNER://127.0.0.1:9094,CONTROLLER://127.0.0.1:9093",
        "advertised.listeners": f"CLIENTS://{address}:{PORT},INNER://127.0.0.1:9094",
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,INNER:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "INNER",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": f"{module} required {known};",
        "log.dirs": "/data/log",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        "auto.create.topics.enable": "false",
    }
    text = "".join(f"{name}={value}\n" for name, value in properties.items())
    data = {"server.properties": text, "log4j2.properties": LOGGING, "start.sh": SCRIPT}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": HOST}, "data": data}


def service() -> Json:
    """Where clients find the broker, whatever pod it is."""
    spec = {"selector": {"app": HOST}, "ports": [{"port": PORT}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": HOST}, "spec": spec}


def broker(image: str) -> Json:
    """One broker whose data outlive its pod."""
    template = pod(HOST, image, [], command=["sh", "/config/start.sh"], readinessProbe=_open(PORT))
    spec: dict[str, Any] = template["spec"] | {"restartPolicy": "Always"}
    spec["securityContext"] |= {"fsGroup": USER}
    (container,) = spec["containers"]
    container["resources"] = {**SMALL, "limits": {"memory": "900Mi"}}
    container["volumeMounts"] += [{"name": "data", "mountPath": "/data"}, {"name": "config", "mountPath": "/config"}]
    spec["volumes"].append({"name": "config", "configMap": {"name": HOST}})
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": HOST},
        "spec": {
            "replicas": 1,
            "serviceName": HOST,
            "selector": {"matchLabels": {"app": HOST}},
            "template": {"metadata": template["metadata"], "spec": spec},
            "volumeClaimTemplates": [claim],
        },
    }


def table() -> Json:
    """Consumes the topic on two servers; its segments are full every minute or two."""
    fields = [
        {"name": "part", "type": "INT"},
        {"name": "seq", "type": "LONG"},
        {"name": "word", "type": "STRING"},
        {"name": "at", "type": "TIMESTAMP", "role": "dateTime"},
    ]
    return {
        "apiVersion": "merlot.dev/v1alpha1",
        "kind": "Table",
        "metadata": {"name": TOPIC},
        "spec": {
            "schema": {"fields": fields},
            "timeColumn": "at",
            "replication": 2,
            "deletionPolicy": "Delete",
            "tenants": {"broker": {"replicas": 2}, "server": {"replicas": 2}},
        },
    }


def with_stream(document: Json, properties: Mapping[str, str]) -> Json:
    """The table with its stream."""
    stream = {
        "type": "kafka",
        "topic": TOPIC,
        "properties": dict(properties),
        "secretRef": "merlot-kafka",
        "decoder": {"type": "JSON"},
        "metadata": {"at": "timestamp"},
        "flush": {"rows": 4_000},
    }
    return {**document, "spec": {**document["spec"], "ingestion": {"stream": stream}}}


class Watched:
    """The pod that produces and asks."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def start(self, user: str) -> None:
        """Until it tells something."""
        cluster = self._cluster
        # Addresses, not names: a busy cluster's DNS fails now and then, and is not what is tested.
        brokers = cluster.get("service", "merlot-broker")["spec"]["clusterIP"]
        kafka = cluster.get("service", HOST)["spec"]["clusterIP"]
        properties = {**client_properties(cluster), **login(user), "bootstrap.servers": f"{kafka}:{PORT}"}
        environment = {
            "KAFKA": json.dumps(properties),
            "TOPIC": TOPIC,
            "PARTITIONS": str(PARTITIONS),
            "RATE": str(RATE),
        }
        arguments = ["python", "/opt/merlot/e2e/stream_client.py", brokers, "8099", TOPIC]
        cluster.apply(pod("stream", cluster.images["e2e"], arguments, environment))
        cluster.kubectl("wait", "--for=condition=Ready", "pod/stream", "--timeout=300s")

    def stop_producing(self) -> None:
        """The queries go on."""
        self._cluster.api.execute("stream", ["touch", "/tmp/stop"])

    def lines(self, since: float = 0.0, tail: int = 2000) -> list[dict[str, Any]]:
        """What it has told since then, by its clock."""
        found = [json.loads(line) for line in self._cluster.api.log("stream", tail) if line.startswith("{")]
        return [line for line in found if line["t"] > since]

    def last(self) -> dict[str, Any]:
        """The sums so far."""
        found = self.lines(tail=3)
        return found[-1] if found else {}

    def await_visible(self, more: int = RATE, timeout_s: float = WAIT_S) -> None:
        """Until that many more rows can be seen: consumption has not just survived, it goes on."""
        goal, deadline = self.last()["visible"] + more, time.monotonic() + timeout_s
        while self.last()["visible"] < goal:
            assert time.monotonic() < deadline, f"no more rows can be seen\n{self.last()}\n{self._cluster.describe()}"
            time.sleep(1)


def _open(port: int) -> Json:
    return {"tcpSocket": {"port": port}, "periodSeconds": 1, "failureThreshold": 60}
