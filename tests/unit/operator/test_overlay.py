"""What users lay over a pod template, and what it never touches."""

from __future__ import annotations

from typing import Any

from merlot_operator.manifests.overlay import overlaid, volume_names

TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"merlot.dev/pool": "p"}, "annotations": {"merlot.dev/inputs": "hash"}},
    "spec": {
        "serviceAccountName": "merlot",
        "securityContext": {"runAsNonRoot": True, "runAsUser": 10001},
        "topologySpreadConstraints": [{"topologyKey": "zone"}, {"topologyKey": "host"}],
        "containers": [
            {
                "name": "server",
                "args": ["merlot", "server"],
                "env": [{"name": "HOME", "value": "/tmp"}],
                "ports": [{"name": "http", "containerPort": 8097}],
                "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, {"name": "segments", "mountPath": "/data"}],
            }
        ],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    },
}


def test_what_is_not_mentioned_stays() -> None:
    assert overlaid(TEMPLATE, {}) == TEMPLATE
    spec = overlaid(TEMPLATE, {"spec": {"nodeSelector": {"disk": "nvme"}, "securityContext": {"runAsUser": 7}}})["spec"]
    assert spec == TEMPLATE["spec"] | {
        "nodeSelector": {"disk": "nvme"},
        "securityContext": {"runAsNonRoot": True, "runAsUser": 7},
    }


def test_named_things_are_merged_and_others_added() -> None:
    more = {"name": "server", "env": [{"name": "A", "value": "b"}, {"name": "HOME", "value": "/home"}]}
    spec = overlaid(TEMPLATE, {"spec": {"containers": [more, {"name": "side", "image": "x:1"}]}})["spec"]
    server, side = spec["containers"]
    assert server["args"] == ["merlot", "server"]
    assert server["env"] == [{"name": "HOME", "value": "/home"}, {"name": "A", "value": "b"}]
    assert side == {"name": "side", "image": "x:1"}


def test_a_volume_may_be_mounted_twice() -> None:
    mounts = [{"name": "tmp", "mountPath": "/scratch"}, {"name": "cache", "mountPath": "/data"}]
    [server] = overlaid(TEMPLATE, {"spec": {"containers": [{"name": "server", "volumeMounts": mounts}]}})["spec"][
        "containers"
    ]
    assert [(one["name"], one["mountPath"]) for one in server["volumeMounts"]] == [
        ("tmp", "/tmp"),
        ("cache", "/data"),
        ("tmp", "/scratch"),
    ]


def test_lists_of_what_has_no_name_are_replaced() -> None:
    spec = overlaid(TEMPLATE, {"spec": {"topologySpreadConstraints": [], "tolerations": [{"key": "k"}]}})["spec"]
    assert (spec["topologySpreadConstraints"], spec["tolerations"]) == ([], [{"key": "k"}])


def test_labels_and_annotations_of_the_operator_win() -> None:
    wanted = {"labels": {"merlot.dev/pool": "q", "team": "a"}, "annotations": {"merlot.dev/inputs": "x", "note": "n"}}
    assert overlaid(TEMPLATE, {"metadata": wanted})["metadata"] == {
        "labels": {"merlot.dev/pool": "p", "team": "a"},
        "annotations": {"merlot.dev/inputs": "hash", "note": "n"},
    }
    assert TEMPLATE["metadata"]["labels"] == {"merlot.dev/pool": "p"}


def test_volumes_are_known_by_name() -> None:
    assert volume_names({"spec": {"volumes": [{"name": "segments", "emptyDir": {}}]}}) == {"segments"}
    assert volume_names({}) == set()
