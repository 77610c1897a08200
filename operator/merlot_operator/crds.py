"""`python -m merlot_operator.crds`: install the CRDs of this version of the program.

The chart runs it before each installation and upgrade, since helm installs CRDs and never upgrades them. Server-side
apply keeps labels and annotations of others. The program ends when the kinds are served, or with exit code 1 and the
reason. With MERLOT_POD_TEMPLATES=unrestricted a Table's podTemplates may set every field that Kubernetes takes.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from functools import partial
from typing import Any

import kopf
import yaml

from merlot.errors import MerlotError, UnavailableError
from merlot.spec.crd import definitions as crd
from merlot.spec.crd.table import unrestrict
from merlot_operator.config import has_unrestricted_templates
from merlot_operator.kube.client import Kube, with_client
from merlot_operator.kube.kinds import TABLES, ResourceKind

CRDS = ResourceKind("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition")
WAIT_S = 60.0
POLL_S = 0.2


def definitions(*, unrestricted: bool = False) -> list[dict[str, Any]]:
    """Return the CRDs, sorted by the names of their files."""
    documents: list[dict[str, Any]] = [yaml.safe_load(text) for _, text in sorted(crd.files().items())]
    if unrestricted:
        unrestrict(next(document for document in documents if document["spec"]["names"]["kind"] == TABLES.name))
    return documents


async def install(kube: Kube, *, unrestricted: bool = False, wait_s: float = WAIT_S) -> list[str]:
    """Apply all CRDs and wait until they are served; return their names. Applying them again does no harm."""
    names = []
    for definition in definitions(unrestricted=unrestricted):
        await kube.apply_global(CRDS, definition)
        names.append(str(definition["metadata"]["name"]))
    deadline = time.monotonic() + wait_s
    for name in names:
        while not _is_established(await kube.get(CRDS, None, name)):
            if time.monotonic() > deadline:
                raise UnavailableError(f"the kind is not served crd={name} waited_s={wait_s:.0f}")
            await asyncio.sleep(POLL_S)
    return names


def _is_established(definition: dict[str, Any]) -> bool:
    conditions = definition.get("status", {}).get("conditions", [])
    return any(condition["type"] == "Established" and condition["status"] == "True" for condition in conditions)


def main() -> int:
    """Install the CRDs; return the exit code."""
    try:
        unrestricted = has_unrestricted_templates(os.environ)
        names = asyncio.run(with_client(partial(install, unrestricted=unrestricted)))
    except (MerlotError, kopf.LoginError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write(f"served: {', '.join(names)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
