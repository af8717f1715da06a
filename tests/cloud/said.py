"""What Google was seen to say, each with its source, and what it has to mean to tpufleet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tpufleet.errors import (
    Aborted,
    CapacityError,
    CloudError,
    CloudUnreachable,
    Conflict,
    NotFound,
    NotOffered,
    PermissionDenied,
    QuotaError,
    RateLimited,
    ZoneNotGranted,
)

RPC = "type.googleapis.com/google.rpc."
CODES = {
    **{"CANCELLED": (1, 499), "UNKNOWN": (2, 500), "INVALID_ARGUMENT": (3, 400), "DEADLINE_EXCEEDED": (4, 504)},
    **{"NOT_FOUND": (5, 404), "ALREADY_EXISTS": (6, 409), "PERMISSION_DENIED": (7, 403)},
    **{"RESOURCE_EXHAUSTED": (8, 429), "FAILED_PRECONDITION": (9, 400), "ABORTED": (10, 409)},
    **{"INTERNAL": (13, 500), "UNAVAILABLE": (14, 503), "UNAUTHENTICATED": (16, 401)},
}


@dataclass(frozen=True)
class Said:
    """`hint` is a part of the hint that must be there; `exit_code` that of DESIGN's list."""

    status: str
    text: str
    meaning: type[CloudError]
    exit_code: int
    hint: str
    details: Sequence[Mapping[str, Any]] = ()
    retried: bool = False

    @property
    def http_status(self) -> int:
        return CODES[self.status][1]

    @property
    def code(self) -> int:
        return CODES[self.status][0]

    @property
    def id(self) -> str:
        return f"{self.status}:{self.text[:40]}"


def info(reason: str, **metadata: str) -> Mapping[str, Any]:
    return {"@type": f"{RPC}ErrorInfo", "reason": reason, "domain": "googleapis.com", "metadata": metadata}


def quota_failure(description: str) -> Mapping[str, Any]:
    violation = {"subject": "project:1037372895180", "description": description}
    return {"@type": f"{RPC}QuotaFailure", "violations": [violation]}


LITEPOD = "TPUV5sLitepodServingPerProjectPerZoneForTPUAPI"
SERVICE_ACCOUNT = "489748961690-compute@developer.gserviceaccount.com"

SAID = (
    # -------------------------------------------------------------------------------------------------- capacity
    Said(  # thevasudevgupta/gsoc-wav2vec2 #11
        "RESOURCE_EXHAUSTED",
        'There is no more capacity in the zone "europe-west4-a"; you can try in another zone where Cloud TPU Nodes '
        "are offered (see https://cloud.google.com/tpu/docs/regions) [EID: 0xba393c906974e61]",
        CapacityError,
        3,
        "cloud.zones",
    ),
    Said(  # skypilot #4579: without any reservation; code 9 in skypilot's instance_utils.py
        "RESOURCE_EXHAUSTED",
        "Insufficient reserved capacity. Contact customer support to increase your reservation. "
        "[EID: 0x7adf6d58c08b0aa4]",
        CapacityError,
        3,
        "cloud.zones",
    ),
    Said(
        "FAILED_PRECONDITION",
        "Insufficient reserved capacity. Contact customer support to increase your reservation. "
        "[EID: 0x2f8bc266e74261a]",
        CapacityError,
        3,
        "queued: true",
    ),
    Said(  # Compute Engine's words: Zhen-Dong/HAWQ #4
        "UNAVAILABLE",
        "The zone 'projects/graceful-castle-301212/zones/us-central1-a' does not have enough resources available to "
        "fulfill the request. Try a different zone, or try again later.",
        CapacityError,
        3,
        "cloud.zones",
    ),
    # ----------------------------------------------------------------------------------------------------- quota
    Said(  # marin #87
        "RESOURCE_EXHAUSTED",
        "Quota 'TPUV4sPreemptiblePodPerProjectPerRegionForTPUAPI' exhausted. Limit 20800 in region us-central2",
        QuotaError,
        4,
        "the limit of TPUV4sPreemptiblePodPerProjectPerRegionForTPUAPI in region us-central2 is 20800",
    ),
    Said(  # marin #1612
        "RESOURCE_EXHAUSTED",
        "Quota limit 'TPUV6EPreemptiblePerProjectPerRegionForTPUAPI' has been exceeded. Limit: 0 in region us-east5.",
        QuotaError,
        4,
        "the limit of TPUV6EPreemptiblePerProjectPerRegionForTPUAPI in region us-east5 is 0",
    ),
    Said(  # BioMedBERT's nohup.out
        "RESOURCE_EXHAUSTED",
        "Quota limit 'TPUV2sPodPerProjectPerRegionForTPUAPI,TPUV2sPodPerProjectPerZoneForTPUAPI' has been exceeded. "
        "Limit: 0,0 in region us-central1,zone us-central1-a.",
        QuotaError,
        4,
        "in region us-central1,zone us-central1-a is 0,0",
    ),
    Said(  # seen in 2025 with this detail, google.api_core's answer to tpu-vm create
        "RESOURCE_EXHAUSTED",
        f"Quota limit '{LITEPOD}' has been exceeded. Limit: 4 in zone us-east5-a.",
        QuotaError,
        4,
        f"the limit of {LITEPOD} in zone us-east5-a is 4",
        [quota_failure(f"Quota '{LITEPOD}' exhausted. Limit 4 in zone us-east5-a")],
    ),
    Said(  # the same detail below the shortest text that Google has
        "RESOURCE_EXHAUSTED",
        "Resource has been exhausted (e.g. check quota).",
        QuotaError,
        4,
        "in zone us-east5-a is 4",
        [quota_failure(f"Quota '{LITEPOD}' exhausted. Limit 4 in zone us-east5-a")],
    ),
    Said(
        "RESOURCE_EXHAUSTED", "Resource has been exhausted (e.g. check quota).", QuotaError, 4, "quotas?project=p-1234"
    ),
    Said(  # https://cloud.google.com/docs/quotas/troubleshoot: a limit of 0 is no rate that one could wait for
        "RESOURCE_EXHAUSTED",
        "Quota exceeded for quota metric 'Write requests' and limit 'Write requests per minute'.",
        QuotaError,
        4,
        "the limit of tpu.googleapis.com/write in us-central1 is 0",
        [
            info(
                "RATE_LIMIT_EXCEEDED",
                quota_metric="tpu.googleapis.com/write",
                quota_limit_value="0",
                quota_location="us-central1",
            )
        ],
    ),
    # ------------------------------------------------------------------------------------------------------ rate
    Said(  # as users report it
        "RESOURCE_EXHAUSTED",
        "Quota exceeded for DeleteNode requests per minute.",
        RateLimited,
        4,
        "wait a minute",
        retried=True,
    ),
    Said(  # GoogleCloudPlatform/python-docs-samples #3482, with today's detail
        "RESOURCE_EXHAUSTED",
        "Quota exceeded for quota metric 'Write requests' and limit 'Write requests per minute' of service "
        "'tpu.googleapis.com' for consumer 'project_number:1012616486416'.",
        RateLimited,
        4,
        "wait a minute",
        [info("RATE_LIMIT_EXCEEDED", quota_metric="tpu.googleapis.com/write", quota_limit_value="60")],
        retried=True,
    ),
    Said(  # marin #6198
        "RESOURCE_EXHAUSTED",
        "Maximum number of CreateNode requests per minute",
        RateLimited,
        4,
        "wait a minute",
        retried=True,
    ),
    # ------------------------------------------------------------------------------------------- zones and types
    Said(
        "PERMISSION_DENIED",
        "Location us-east1-d is not found or access is unauthorized.",
        ZoneNotGranted,
        4,
        "gcloud compute tpus locations list --project=p-1234",
    ),
    Said(  # gcloud tpu-vm create, 2025
        "PERMISSION_DENIED",
        "Permission denied on 'locations/us-central2-b' (or it may not exist).",
        ZoneNotGranted,
        4,
        "cloud.zones",
        [info("LOCATION_POLICY_VIOLATED", service="tpu.googleapis.com", location="us-central2-b")],
    ),
    Said(  # gcloud queued-resources create, 2026
        "INVALID_ARGUMENT",
        "Cloud TPU received a bad request. The requested accelerator configuration for accelerator type, "
        '"v6e-1", could not be found in the zonal accelerator configurations for "asia-east1-a".; the accelerator '
        "v6e-1 was not found in zone asia-east1-a [EID: 0x362c45de1b38c529]",
        NotOffered,
        4,
        "gcloud compute tpus accelerator-types list --zone=us-central1-b --project=p-1234",
    ),
    Said(  # skypilot's cloud_vm_ray_backend.py
        "INVALID_ARGUMENT",
        'CloudTpu received an invalid AcceleratorType, "v3-8" for zone "us-central1-c". Valid values are "v2-8, ".',
        NotOffered,
        4,
        "accelerator-types list",
    ),
    # ------------------------------------------------------------------------------------------------ permission
    Said(  # tensorflow/tpu #296
        "PERMISSION_DENIED",
        "Permission 'tpu.nodes.get' denied on 'projects/directed-sensor-172921/locations/us-central1-b/nodes/ai'",
        PermissionDenied,
        4,
        "gcloud projects add-iam-policy-binding p-1234 --member=user:me@example.com --role=roles/tpu.admin",
    ),
    Said(
        "PERMISSION_DENIED",
        "Permission 'tpu.nodes.create' denied on resource '//tpu.googleapis.com/projects/p' (or it may not exist).",
        PermissionDenied,
        4,
        "--role=roles/tpu.admin",
        [info("IAM_PERMISSION_DENIED", permission="tpu.nodes.create", resource="projects/p")],
    ),
    Said(  # tensorflow/tpu #895
        "PERMISSION_DENIED",
        "Required 'compute.instances.list' permission for 'projects/rail-tpus-303119'",
        PermissionDenied,
        4,
        "--role=roles/compute.networkUser",
    ),
    Said(  # tensorflow/tpu #227
        "PERMISSION_DENIED",
        "Read access to project 'annotator-1286' was denied",
        PermissionDenied,
        4,
        "--role=roles/tpu.admin",
    ),
    Said("PERMISSION_DENIED", "The caller does not have permission", PermissionDenied, 4, "--role=roles/tpu.admin"),
    Said(  # https://cloud.google.com/iam/docs/service-accounts-actas
        "PERMISSION_DENIED",
        f"The user does not have access to service account '{SERVICE_ACCOUNT}'. User: 'me@example.com'. Ask a project "
        "owner to grant you the iam.serviceAccountUser role on the service account.",
        PermissionDenied,
        4,
        f"gcloud iam service-accounts add-iam-policy-binding {SERVICE_ACCOUNT} --project=p-1234 "
        "--member=user:me@example.com --role=roles/iam.serviceAccountUser",
    ),
    Said(
        "PERMISSION_DENIED",
        "Permission 'iam.serviceaccounts.actAs' denied on service account trainer@p.iam.gserviceaccount.com "
        "(or it may not exist).",
        PermissionDenied,
        4,
        "add-iam-policy-binding trainer@p.iam.gserviceaccount.com",
    ),
    Said(  # GoogleCloudPlatform/training-data-analyst, the poetry notebook
        "PERMISSION_DENIED",
        "Cloud TPU API has not been used in project 1032299714650 before or it is disabled. Enable it by visiting "
        "https://console.developers.google.com/apis/api/tpu.googleapis.com/overview?project=1032299714650 then retry. "
        "If you enabled this API recently, wait a few minutes for the action to propagate to our systems and retry.",
        PermissionDenied,
        4,
        "gcloud services enable tpu.googleapis.com --project=p-1234",
        [info("SERVICE_DISABLED", service="tpu.googleapis.com", consumer="projects/1032299714650")],
    ),
    Said(  # tensorflow/tpu #124
        "PERMISSION_DENIED",
        "cannot create a TPU Node on a project linked to a free-trial billing account",
        PermissionDenied,
        4,
        "gcloud billing projects link p-1234",
    ),
    Said(
        "PERMISSION_DENIED",
        "This API method requires billing to be enabled. Please enable billing on project #1 by visiting "
        "https://console.developers.google.com/billing/enable?project=1 then retry.",
        PermissionDenied,
        4,
        "gcloud billing",
        [info("BILLING_DISABLED", service="tpu.googleapis.com")],
    ),
    Said(  # https://cloud.google.com/docs/authentication/adc-troubleshooting/user-creds
        "PERMISSION_DENIED",
        "Your application is authenticating by using local Application Default Credentials. The tpu.googleapis.com "
        "API requires a quota project, which is not set by default.",
        PermissionDenied,
        4,
        "gcloud auth application-default set-quota-project p-1234",
    ),
    Said(
        "PERMISSION_DENIED",
        "Caller does not have required permission to use project p-1234. Grant the caller the "
        "roles/serviceusage.serviceUsageConsumer role, or a custom role with the serviceusage.services.use permission",
        PermissionDenied,
        4,
        "--role=roles/serviceusage.serviceUsageConsumer",
        [info("USER_PROJECT_DENIED", consumer="projects/p-1234")],
    ),
    Said(  # tensorflow/tpu #596
        "PERMISSION_DENIED",
        "Request had insufficient authentication scopes.",
        PermissionDenied,
        4,
        "gcloud auth application-default login",
    ),
    Said(  # googleapis/google-auth-library-python #787
        "UNAUTHENTICATED",
        "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid "
        "authentication credential.",
        PermissionDenied,
        4,
        "gcloud auth application-default login",
    ),
    Said(  # tensorflow/tpu #859
        "PERMISSION_DENIED",
        "Project 'Data-Mining' not found or permission denied.",
        PermissionDenied,
        4,
        "gcloud projects list",
    ),
    # ------------------------------------------------------------------------------------------------- conflicts
    Said(  # skypilot's instance_utils.py
        "INVALID_ARGUMENT",
        "Cloud TPU received a bad request. update is not supported while in state PREEMPTED [EID: 0x73013519f5b7feb2]",
        Conflict,
        4,
        "tpufleet create",
    ),
    Said("FAILED_PRECONDITION", "Precondition check failed.", Conflict, 4, "tpufleet status"),
    Said("ABORTED", "The operation was aborted.", Aborted, 4, "run the same command again", retried=True),
    Said("CANCELLED", "The operation was cancelled.", Conflict, 4, "run the same command again"),
    # ------------------------------------------------------------------------------------------------- transient
    Said("UNAVAILABLE", "The service is currently unavailable.", CloudUnreachable, 5, "again", retried=True),
    Said(  # terraform-provider-google #16147, skypilot #1039
        "INTERNAL", "an internal error has occurred", CloudUnreachable, 5, "again", retried=True
    ),
    Said("UNKNOWN", "Unknown error.", CloudUnreachable, 5, "again", retried=True),
    # ------------------------------------------------------------------------------------- never seen, and others
    Said("NOT_FOUND", "Resource 'projects/p/locations/z/operations/o' was not found", NotFound, 4, "tpufleet status"),
    Said("INVALID_ARGUMENT", "A sentence nobody has seen.", CloudError, 4, "tpufleet doctor"),
)
