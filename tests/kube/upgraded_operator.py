"""The operator of a later version, whose templates differ in what no user chose."""

from tests.kube import quick_operator

from merlot_operator.manifests import parts


def main() -> int:
    """Run it; returns the exit code."""
    parts.VERSION += "-later"
    parts.GRACE_S = {role: seconds + 7 for role, seconds in parts.GRACE_S.items()}
    return quick_operator.main()
