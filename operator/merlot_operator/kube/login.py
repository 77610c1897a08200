"""Logins at the API server, for the operator and its programs that end: a pod uses its service account, all else a
kubeconfig.

Plugins of a kubeconfig (EKS, GKE, AKS, OIDC) need the official client. It is in the extra operator-dev, and not in the
operator's image because of its memory. Blocking: called in threads.
"""

from __future__ import annotations

import importlib.util
import logging
import os
from pathlib import Path
from typing import Any

import kopf
import yaml

from merlot.extras import remedy

_LOG = logging.getLogger(__name__)

PLUGINS = ("exec", "auth-provider")


def login(settings: kopf.OperatorSettings) -> kopf.ConnectionInfo:
    """Return the current credentials. Raise LoginError, saying what is missing, if there are none."""
    info = kopf.login_with_service_account(settings=settings)
    if info is not None:
        return info
    plugin = next((name for name in PLUGINS if name in _current_user()), None)
    info = kopf.login_with_kubeconfig(settings=settings) if plugin is None else _by_plugin(plugin, settings)
    if info is None:
        raise kopf.LoginError("neither a service account nor a kubeconfig is there")
    return info


def _by_plugin(plugin: str, settings: kopf.OperatorSettings) -> kopf.ConnectionInfo | None:
    if importlib.util.find_spec("kubernetes") is None:
        raise kopf.LoginError(f"the kubeconfig logs in by {plugin}: {remedy('operator-dev')}")
    info = kopf.login_via_client(logger=_LOG, settings=settings)
    if info is not None and not (info.token or info.certificate_path or info.certificate_data):
        # The client logs the reason, and goes on without credentials.
        raise kopf.LoginError(f"the {plugin} plugin of the kubeconfig gave no credentials")
    return info


def _current_user() -> dict[str, Any]:
    """Return the user of the kubeconfig's current context; empty if there is none. As in kubectl, the first file that
    has a name wins."""
    paths = os.environ.get("KUBECONFIG") or "~/.kube/config"
    files = [Path(path).expanduser() for path in paths.split(os.pathsep) if path]
    documents = [yaml.safe_load(file.read_text()) or {} for file in files if file.is_file()]
    current = next((document["current-context"] for document in documents if document.get("current-context")), None)
    context = _named(documents, "contexts", current).get("context") or {}
    return _named(documents, "users", context.get("user")).get("user") or {}


def _named(documents: list[dict[str, Any]], kind: str, name: object) -> dict[str, Any]:
    entries = (entry for document in documents for entry in document.get(kind) or ())
    return next((entry for entry in entries if entry.get("name") == name), {})
