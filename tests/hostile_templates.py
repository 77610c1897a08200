"""Pod templates of Tables: what is refused, field by field, and what is taken."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

SECRET_REF = {"secretKeyRef": {"name": "another", "key": "password"}}
TOKEN = {"serviceAccountToken": {"path": "token"}}
WHOLE_SPEC: dict[str, Json] = {
    "serviceAccountName": {"serviceAccountName": "merlot-operator"},
    "serviceAccount": {"serviceAccount": "merlot-operator"},
    "automountServiceAccountToken": {"automountServiceAccountToken": True},
    "hostPID": {"hostPID": True},
    "hostIPC": {"hostIPC": True},
    "hostNetwork": {"hostNetwork": True},
    "hostUsers": {"hostUsers": True},
    "hostAliases": {"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["s3"]}]},
    "hostname": {"hostname": "merlot-controller"},
    "subdomain": {"subdomain": "merlot-controller"},
    "setHostnameAsFQDN": {"setHostnameAsFQDN": True},
    "securityContext": {"securityContext": {"runAsUser": 0}},
    "shareProcessNamespace": {"shareProcessNamespace": True},
    "runtimeClassName": {"runtimeClassName": "privileged"},
    "imagePullSecrets": {"imagePullSecrets": [{"name": "another"}]},
    "initContainers": {"initContainers": [{"name": "init", "image": "evil"}]},
    "ephemeralContainers": {"ephemeralContainers": [{"name": "debug", "image": "evil"}]},
    "nodeName": {"nodeName": "control-plane"},
    "restartPolicy": {"restartPolicy": "Never"},
    "activeDeadlineSeconds": {"activeDeadlineSeconds": 1},
    "enableServiceLinks": {"enableServiceLinks": True},
    "dnsConfig": {"dnsConfig": {"nameservers": ["10.0.0.1"]}},
    "dnsPolicy": {"dnsPolicy": "None"},
    "resourceClaims": {"resourceClaims": [{"name": "gpu"}]},
    "readinessGates": {"readinessGates": [{"conditionType": "never"}]},
    "somethingNew": {"somethingNew": True},
}
"""By the field that is refused."""

CONTAINER: dict[str, Json] = {
    "image": {"image": "evil"},
    "imagePullPolicy": {"imagePullPolicy": "Never"},
    "command": {"command": ["sh"]},
    "args": {"args": ["-c", "id"]},
    "workingDir": {"workingDir": "/mnt"},
    "envFrom": {"envFrom": [{"secretRef": {"name": "another"}}]},
    "valueFrom": {"env": [{"name": "STOLEN", "valueFrom": SECRET_REF}]},
    "securityContext": {"securityContext": {"privileged": True}},
    "lifecycle": {"lifecycle": {"postStart": {"exec": {"command": ["sh"]}}}},
    "exec": {"livenessProbe": {"exec": {"command": ["sh"]}}},
    "httpGet": {"readinessProbe": {"httpGet": {"host": "10.0.0.1", "port": 80}}},
    "ports": {"ports": [{"containerPort": 80, "hostPort": 80}]},
    "volumeDevices": {"volumeDevices": [{"name": "disk", "devicePath": "/dev/sda"}]},
    "stdin": {"stdin": True},
    "restartPolicy": {"restartPolicy": "Always"},
    "claims": {"resources": {"claims": [{"name": "gpu"}]}},
    "mountPath": {"volumeMounts": [{"name": "tmp", "mountPath": "/opt/merlot/lib"}]},
    "mountPropagation": {"volumeMounts": [{"name": "tmp", "mountPath": "/mnt/a", "mountPropagation": "Bidirectional"}]},
}
"""Of the role's container."""

PATHS = ("/", "/tmp", "/mnt", "/mnt/../etc", "/mnt/a/../../etc", "/mnt/.ssh", "/etc/merlot", "mnt/a", "/mnt//a")
VARIABLES = (
    *("LD_PRELOAD", "PYTHONPATH", "PATH", "HOME", "JAVA_TOOL_OPTIONS", "AWS_CONFIG_FILE", "AWS_ENDPOINT_URL", "POD_IP"),
    *("OPENSSL_CONF", "https_proxy", "HTTP_PROXY", "NUMBA_CACHE_DIR", "MERLOT_DEEP_STORE_SECRETS", "SPARK_CONF_DIR"),
    *("GOOGLE_APPLICATION_CREDENTIALS", "SSL_CERT_FILE", "BASH_ENV", "KUBERNETES_SERVICE_HOST", "GCONV_PATH"),
)
VOLUMES: dict[str, Json] = {
    "hostPath": {"hostPath": {"path": "/"}},
    "secret": {"secret": {"secretName": "another"}},
    "projected": {"projected": {"sources": [TOKEN]}},
    "downwardAPI": {"downwardAPI": {"items": []}},
    "nfs": {"nfs": {"server": "10.0.0.1", "path": "/"}},
    "csi": {"csi": {"driver": "secrets-store.csi.k8s.io"}},
    "image": {"image": {"reference": "evil"}},
    "iscsi": {"iscsi": {"targetPortal": "10.0.0.1", "iqn": "iqn", "lun": 0}},
}
KEYS = (
    *("merlot.dev/pool", "merlot.dev/inputs", "container.apparmor.security.beta.kubernetes.io/server"),
    "container.seccomp.security.alpha.kubernetes.io/server",
)


def _spec(**spec: Any) -> Json:
    return {"spec": spec}


def _container(role: str, part: Json) -> Json:
    return _spec(containers=[{"name": role, **part}])


def refused(role: str) -> dict[str, tuple[Json, str]]:
    """Templates of a role's pods that are refused: what the refusal names, by a name of the case."""
    cases: dict[str, tuple[Json, str]] = {name: (_spec(**part), name) for name, part in WHOLE_SPEC.items()}
    cases |= {f"container.{name}": (_container(role, part), name) for name, part in CONTAINER.items()}
    for path in PATHS:
        mounts = [{"name": "tmp", "mountPath": path}]
        cases[f"mount {path}"] = (_container(role, {"volumeMounts": mounts}), "mountPath")
    for name in VARIABLES:
        cases[f"variable {name}"] = (_container(role, {"env": [{"name": name, "value": "x"}]}), "env[0]")
    for name, part in VOLUMES.items():
        cases[f"volume {name}"] = (_spec(volumes=[{"name": "evil", **part}]), name)
    for key in KEYS:
        cases[f"label {key}"] = ({"metadata": {"labels": {key: "x"}}}, "metadata.labels")
        cases[f"annotation {key}"] = ({"metadata": {"annotations": {key: "x"}}}, "metadata.annotations")
    cases["sidecar"] = (_spec(containers=[{"name": "side", "image": "evil"}]), "containers[0].image")
    cases["second container"] = (_spec(containers=[{"name": role}, {"name": role}]), "containers")
    cases["finalizers"] = ({"metadata": {"finalizers": ["x"]}}, "finalizers")
    return cases


def all_at_once(role: str) -> Json:
    """Everything that is refused in one template, and beside it what is taken."""
    spec: Json = {}
    for part in WHOLE_SPEC.values():
        spec |= part
    container: Json = {"name": role, "env": [{"name": "TZ", "value": "UTC"}]}
    for part in CONTAINER.values():
        container |= {**part, "env": [*container["env"], *part.get("env", ())]}
    container["env"] += [{"name": name, "value": "x"} for name in VARIABLES]
    spec |= {
        "nodeSelector": {"disk": "nvme"},
        "containers": [container, {"name": "side", "image": "evil"}],
        "volumes": [{"name": name.lower(), **part} for name, part in VOLUMES.items()]
        + [{"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}}],
    }
    return {"metadata": {"labels": {"team": "a", **dict.fromkeys(KEYS, "x")}}, "spec": spec}


def taken(role: str) -> Json:
    """Everything that a Table may say."""
    probe = {"failureThreshold": 9, "initialDelaySeconds": 1, "periodSeconds": 7, "timeoutSeconds": 3}
    term = {"key": "disk", "operator": "In", "values": ["nvme"]}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {
        "metadata": {"labels": {"team": "a", "app.kubernetes.io/part-of": "b"}, "annotations": {"note": "c"}},
        "spec": {
            "nodeSelector": {"disk": "nvme"},
            "tolerations": [{"key": "olap", "operator": "Exists", "effect": "NoSchedule"}],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [term]}]
                    }
                }
            },
            "topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"},
            ],
            "priorityClassName": "system-node-critical",
            "preemptionPolicy": "PreemptLowerPriority",
            "schedulerName": "other",
            "terminationGracePeriodSeconds": 90,
            "volumes": [
                {"name": "tmp", "emptyDir": {"sizeLimit": "4Gi"}},
                {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}},
                {"name": "shared", "persistentVolumeClaim": {"claimName": "shared", "readOnly": True}},
                {"name": "settings", "configMap": {"name": "settings", "optional": True}},
            ],
            "containers": [
                {
                    "name": role,
                    "env": [{"name": "TZ", "value": "UTC"}, {"name": "MALLOC_ARENA_MAX", "value": "2"}],
                    "resources": {"requests": {"ephemeral-storage": "1Gi"}, "limits": {"ephemeral-storage": "9Gi"}},
                    "volumeMounts": [
                        {"name": "scratch", "mountPath": "/mnt/scratch"},
                        {"name": "settings", "mountPath": "/mnt/a/settings.d", "subPath": "x", "readOnly": True},
                    ],
                    "startupProbe": {"failureThreshold": 900},
                    "livenessProbe": probe,
                    "readinessProbe": probe,
                }
            ],
        },
    }
