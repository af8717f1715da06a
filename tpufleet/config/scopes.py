"""OAuth scopes: the short names that gcloud takes, and Google's own addresses."""

from __future__ import annotations

import re

from tpufleet.names import shown

PREFIX = "https://www.googleapis.com/auth/"
DEFAULT = PREFIX + "cloud-platform"  # what Google recommends: access is then a matter of the account's roles alone
FULL = re.compile(re.escape(PREFIX) + r"[a-z][a-z0-9._-]{0,80}")

# Source: gcloud 528, googlecloudsdk/api_lib/compute/constants.py: SCOPES (without the names of several at once).
SHORT = {
    "bigquery": "bigquery",
    "cloud-platform": "cloud-platform",
    "cloud-source-repos": "source.full_control",
    "cloud-source-repos-ro": "source.read_only",
    "compute-ro": "compute.readonly",
    "compute-rw": "compute",
    "datastore": "datastore",
    "logging-write": "logging.write",
    "monitoring": "monitoring",
    "monitoring-read": "monitoring.read",
    "monitoring-write": "monitoring.write",
    "pubsub": "pubsub",
    "service-control": "servicecontrol",
    "service-management": "service.management.readonly",
    "sql-admin": "sqlservice.admin",
    "storage-full": "devstorage.full_control",
    "storage-ro": "devstorage.read_only",
    "storage-rw": "devstorage.read_write",
    "taskqueue": "taskqueue",
    "trace": "trace.append",
    "userinfo-email": "userinfo.email",
}


def full_scope(scope: str) -> str:
    """`storage-rw` or an address in full -> the address; raises ValueError with a sentence for anything else."""
    if scope in SHORT:
        return PREFIX + SHORT[scope]
    if FULL.fullmatch(scope):
        return scope
    raise ValueError(f"{shown(scope)} is not a scope")
