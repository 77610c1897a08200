"""`python -m merlot_operator.crds`: make the three kinds known to the API server, in the version of this program.

Run by the chart before each installation and upgrade, since helm installs CRDs and never upgrades them. Server-side
apply, so that labels and annotations of others stay. Ends when the kinds are served, or with 1 and the reason. With
MERLOT_POD_TEMPLATES=unrestricted Tables may say of their pods whatever Kubernetes takes.
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
from merlot_operator.kube.kinds import TABLES, Kind

CRDS = Kind("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition")
WAIT_S = 60.0
POLL_S = 0.2


def definitions(*, unrestricted: bool = False) -> list[dict[str, Any]]:
    """The CRDs, by name of their files."""
    found: list[dict[str, Any]] = [yaml.safe_load(text) for _, text in sorted(crd.files().items())]
    if unrestricted:
        unrestrict(next(one for one in found if one["spec"]["names"]["kind"] == TABLES.name))
    return found


async def install(kube: Kube, *, unrestricted: bool = False, wait_s: float = WAIT_S) -> list[str]:
    """Apply all, and wait until they are served; returns their names. Harmless if they are there already."""
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
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


def main() -> int:
    """Returns the exit code."""
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
