"""Rules of pod templates: what a Table may not set on its pods.

The model of templates (`spec.pod_template`) applies the rules too, wherever a template is read, because the operator
reads templates without the rest of a Table.
"""

from typing import Final

from merlot.schemes import VARIABLES
from merlot.spec.rules.language import ITEM, SELF, any_of, every
from merlot.spec.rules.rule import Rule

RESERVED_PREFIXES = (
    "merlot.dev/",
    "container.apparmor.security.beta.kubernetes.io/",
    "container.seccomp.security.alpha.kubernetes.io/",
    "seccomp.security.alpha.kubernetes.io/",
)
"""Prefixes that keys of labels and annotations may not have. By such keys the operator recognizes its pods, and nodes
confine pods."""

RESERVED_VARIABLES = (
    r"(?i)^(LD_|DYLD_|GCONV_|GLIBC_|LOCPATH|NLSPATH|PYTHON|PYSPARK_|SPARK_|HADOOP_|JAVA|JDK_|JRE_|NUMBA_|OPENSSL_|SSL_"
    rf"|{'|'.join(VARIABLES)}|KUBERNETES_|MERLOT_|POD_|(HTTP|HTTPS|ALL|NO|FTP)_PROXY$|(PATH|HOME|TMPDIR|CLASSPATH|ENV|BASH_ENV)$)"
)
"""Pattern of environment variables that load code into a process, give it other credentials or peers, or belong to the
operator."""

KEYS: Final = Rule(
    "",
    every(SELF, "key", lambda key: ~any_of([key.starts_with(prefix) for prefix in RESERVED_PREFIXES])),
    f"keys of {', '.join(RESERVED_PREFIXES)} are not for a Table to set",
    is_of_model=True,
)
"""Rule of the keys of labels and annotations."""
VARIABLE: Final = Rule(
    "name",
    ~ITEM.field("name").matches(RESERVED_VARIABLES),
    "a variable that loads code, gives credentials, or is Merlot's own is not for a Table to set",
    is_of_model=True,
)
"""Rule of an environment variable's name."""
