"""What Google says, and what it means: data for `classify`, each row with a real text and where it was seen.

A row's pattern is searched whatever the case; the first row that fits wins. Its named groups, and the project
and zone that were asked about, fill the braces of the hint, which is a command where there is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tpufleet.errors import (
    Aborted,
    AlreadyExists,
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


class Meaning(NamedTuple):
    kind: type[CloudError]
    hint: str


AGAIN = "run the same command again"
OTHER_ZONES = f"name further zones (cloud.zones), wait in the queue (`queued: true`), or {AGAIN} later"
CAPACITY = Meaning(CapacityError, OTHER_ZONES)
TYPES = Meaning(
    NotOffered,
    "name zones that have this type (cloud.zones): "
    "gcloud compute tpus accelerator-types list --zone={zone} --project={project}",
)
RUNTIMES = Meaning(NotFound, "gcloud compute tpus tpu-vm versions list --zone={zone} --project={project}")
RATE = Meaning(RateLimited, f"wait a minute, then {AGAIN}")
QUOTA_PAGE = "https://console.cloud.google.com/iam-admin/quotas?project={project}"
QUOTA = Meaning(
    QuotaError,
    "free some (FAILED and SUSPENDED queued resources count as well: tpufleet delete), "
    f"use another type or zone, or ask for more: {QUOTA_PAGE}",
)
NAMED_QUOTA = Meaning(QuotaError, "the limit of {metric} in {place} is {limit}: " + QUOTA.hint)
ZONE = Meaning(
    ZoneNotGranted,
    "use a zone that the project was granted (cloud.zones; for TRC they stand in the grant's mail): "
    "gcloud compute tpus locations list --project={project}",
)
GRANT = "an owner of the project runs: gcloud projects add-iam-policy-binding {project} --member={member} --role="
PERMISSION = Meaning(PermissionDenied, GRANT + "{role}")
ACT_AS = Meaning(
    PermissionDenied,
    "an owner of the project runs: gcloud iam service-accounts add-iam-policy-binding {account} --project={project} "
    "--member={member} --role=roles/iam.serviceAccountUser",
)
USE_PROJECT = Meaning(PermissionDenied, GRANT + "roles/serviceusage.serviceUsageConsumer")
QUOTA_PROJECT = Meaning(PermissionDenied, "gcloud auth application-default set-quota-project {project}")
API_OFF = Meaning(PermissionDenied, "gcloud services enable {service} --project={project}")
BILLING = Meaning(
    PermissionDenied,
    "gcloud billing accounts list, then: gcloud billing projects link {project} --billing-account=ACCOUNT",
)
LOGIN = Meaning(PermissionDenied, "gcloud auth application-default login")
PROJECT = Meaning(PermissionDenied, "look at cloud.project in the fleet file: gcloud projects list")
ENDED_NODE = Meaning(Conflict, "tpufleet create  (deletes the node and makes it anew)")
WRONG_STATE = Meaning(Conflict, f"tpufleet status; when the node's state has changed, {AGAIN}")
FORCE = Meaning(Conflict, "tpufleet delete  (takes the queued resource and its node together)")
ANOTHER_CHANGE = Meaning(Aborted, AGAIN)
TRANSIENT = Meaning(CloudUnreachable, AGAIN)

TEXTS: tuple[tuple[str, Meaning], ...] = (
    # There is no more capacity in the zone "europe-west4-a"; you can try in another zone where Cloud TPU Nodes are
    # offered (see https://cloud.google.com/tpu/docs/regions) [EID: 0xba393c906974e61]
    # (code 8; thevasudevgupta/gsoc-wav2vec2 #11, terraform-provider-google #21243, skypilot cloud_vm_ray_backend.py)
    (r"no more capacity", CAPACITY),
    # Insufficient reserved capacity. Contact customer support to increase your reservation. [EID: 0x7adf6d58c08b0aa4]
    # (codes 8 and 9, without any reservation; skypilot #4579)
    (r"insufficient (reserved )?capacity", CAPACITY),
    # The zone 'projects/P/zones/us-central1-a' does not have enough resources available to fulfill the request. Try a
    # different zone, or try again later. (Zhen-Dong/HAWQ #4); ZONE_RESOURCE_POOL_EXHAUSTED (goldenmatch #2686)
    (r"does not have enough resources|resource_pool_exhausted|stockout", CAPACITY),
    # Cloud TPU received a bad request. The requested accelerator configuration for accelerator type, "v6e-1", could
    # not be found in the zonal accelerator configurations for "asia-east1-a".; the accelerator v6e-1 was not found in
    # zone asia-east1-a [EID: 0x362c45de1b38c529] (gcloud queued-resources create, 2026)
    # CloudTpu received an invalid AcceleratorType, "v3-8" for zone "us-central1-c". Valid values are "v2-8, ".
    # (skypilot cloud_vm_ray_backend.py)
    (r"accelerator \S+ was not found in zone|zonal accelerator configurations|invalid acceleratortype", TYPES),
    (r"runtime version \S+ was not found|invalid runtime version|invalid tensorflow version", RUNTIMES),
    # Quota exceeded for DeleteNode requests per minute. (as users report it)
    # Maximum number of CreateNode requests per minute (marin #6198)
    # Quota exceeded for quota metric 'Write requests' and limit 'Write requests per minute' of service
    # 'cloudkms.googleapis.com' for consumer 'project_number:1012616486416'. (python-docs-samples #3482)
    (r"per minute|rate limit|too many requests", RATE),
    # Quota 'TPUV4sPreemptiblePodPerProjectPerRegionForTPUAPI' exhausted. Limit 20800 in region us-central2 (marin #87)
    # Quota limit 'TPUV2sPodPerProjectPerRegionForTPUAPI,TPUV2sPodPerProjectPerZoneForTPUAPI' has been exceeded. Limit:
    # 0,0 in region us-central1,zone us-central1-a. (BioMedBERT nohup.out; marin #1612)
    (
        r"quota (?:limit )?'(?P<metric>[\w,./-]+)' (?:exhausted|has been exceeded)\.\s+limit:? (?P<limit>[\d,]+)"
        r" in (?P<place>(?:region|zone) [\w-]+(?:, ?(?:region|zone) [\w-]+)*)",
        NAMED_QUOTA,
    ),
    # Quota 'GPUS_ALL_REGIONS' exceeded. Limit: 0.0 globally. (fastai course-v3 #165); The following quota metrics
    # exceed quota limits: aiplatform.googleapis.com/custom_model_training_tpu_v2 (xmanager #29)
    (r"quota.*(exceed|exhaust)|exceed.*quota", QUOTA),
    # Location us-east1-d is not found or access is unauthorized. (as users report it)
    # Permission denied on 'locations/us-central2-b' (or it may not exist). (gcloud tpu-vm create, 2025)
    (r"location \S+ is not found|permission denied on 'locations/", ZONE),
    # Cloud TPU API has not been used in project 1032299714650 before or it is disabled. Enable it by visiting
    # https://console.developers.google.com/apis/api/tpu.googleapis.com/overview?project=1032299714650 then retry. If
    # you enabled this API recently, wait a few minutes … (GoogleCloudPlatform/training-data-analyst, poetry.ipynb)
    (r"or it is disabled\. enable it by visiting \S+/apis/api/(?P<service>[a-z-]+\.googleapis\.com)", API_OFF),
    (r"api .*(has not been used in project|is disabled|not enabled)", API_OFF),
    # cannot create a TPU Node on a project linked to a free-trial billing account (tensorflow/tpu #124)
    # This API method requires billing to be enabled. Please enable billing on project #… (Google's own words)
    (r"billing account|requires billing|billing is disabled|billing to be enabled", BILLING),
    # The user does not have access to service account '489748961690-compute@developer.gserviceaccount.com'. User: '…'.
    # Ask a project owner to grant you the iam.serviceAccountUser role on the service account.
    # (https://cloud.google.com/iam/docs/service-accounts-actas)
    (r"does not have access to service account '?\"?(?P<account>[a-z0-9.:-]+@[a-z0-9.-]+)", ACT_AS),
    # Permission 'iam.serviceaccounts.actAs' denied on service account Z (or it may not exist)
    (r"iam\.serviceaccounts\.actas'? denied on service account (?P<account>[a-z0-9.:-]+@[a-z0-9.-]+)", ACT_AS),
    (r"iam\.serviceaccounts\.actas|iam\.serviceaccountuser", ACT_AS),
    # Your application is authenticating by using local Application Default Credentials. The tpu.googleapis.com API
    # requires a quota project, which is not set by default. (https://cloud.google.com/docs/authentication/adc-troubleshooting)
    (r"requires a quota project", QUOTA_PROJECT),
    # Caller does not have required permission to use project P. Grant the caller the
    # roles/serviceusage.serviceUsageConsumer role, or a custom role with the serviceusage.services.use permission …
    (r"required permission to use project|serviceusage\.services\.use", USE_PROJECT),
    # Permission 'tpu.nodes.get' denied on 'projects/P/locations/us-central1-b/nodes/ai' (tensorflow/tpu #296)
    # Required 'compute.instances.list' permission for 'projects/P' (tensorflow/tpu #895)
    (
        r"(?:permission|required) '(?P<permission>[a-z]+\.[a-z.]+)' (?:denied|permission)",
        PERMISSION,
    ),
    # Request had insufficient authentication scopes. (tensorflow/tpu #596)
    (r"insufficient authentication scopes", LOGIN),
    # Request had invalid authentication credentials. Expected OAuth 2 access token, … (google-auth-library-python #787)
    (r"invalid authentication credentials|missing required authentication|invalid_grant|reauth", LOGIN),
    # Project 'Data-Mining' not found or permission denied. (tensorflow/tpu #859)
    (r"project \S+ not found|project \S+ has been deleted", PROJECT),
    # Read access to project 'annotator-1286' was denied (tensorflow/tpu #227); Permission denied on resource project
    # Data-Mining. (tensorflow/tpu #859); The caller does not have permission (Google's own words)
    (r"read access to project|permission denied on resource project|caller does not have permission", PERMISSION),
    # Cloud TPU received a bad request. update is not supported while in state PREEMPTED [EID: 0x73013519f5b7feb2]
    # (code 3; skypilot instance_utils.py)
    (r"not supported while in state (preempted|terminated)", ENDED_NODE),
    (r"not supported while in state", WRONG_STATE),
    (r"queued ?resource.*(force|deletable state)|force.*queued ?resource", FORCE),
)

# google.rpc.ErrorInfo's reason, https://github.com/googleapis/googleapis/blob/master/google/api/error_reason.proto
REASONS: Mapping[str, Meaning] = {
    "SERVICE_DISABLED": API_OFF,
    "BILLING_DISABLED": BILLING,
    "RATE_LIMIT_EXCEEDED": RATE,
    "RESOURCE_QUOTA_EXCEEDED": QUOTA,
    "QUOTA_EXCEEDED": QUOTA,
    "LOCATION_POLICY_VIOLATED": ZONE,
    "LOCATION_ORG_POLICY_VIOLATED": ZONE,
    "IAM_PERMISSION_DENIED": PERMISSION,
    "USER_PROJECT_DENIED": USE_PROJECT,
    "CONSUMER_INVALID": PROJECT,
    "CONSUMER_SUSPENDED": PROJECT,
    "ACCESS_TOKEN_EXPIRED": LOGIN,
    "ACCESS_TOKEN_SCOPE_INSUFFICIENT": LOGIN,
    "ACCOUNT_STATE_INVALID": LOGIN,
    "CREDENTIALS_MISSING": LOGIN,
    "ZONE_RESOURCE_POOL_EXHAUSTED": CAPACITY,
}

# google.rpc.Code by name: what is left when neither the text nor a reason is known
STATUSES: Mapping[str, Meaning] = {
    "RESOURCE_EXHAUSTED": Meaning(QuotaError, f"{AGAIN} later; or look at the project's quotas: {QUOTA_PAGE}"),
    "PERMISSION_DENIED": PERMISSION,
    "UNAUTHENTICATED": LOGIN,
    "NOT_FOUND": Meaning(NotFound, "tpufleet status"),
    "ALREADY_EXISTS": Meaning(AlreadyExists, "use another name in the file, or delete what has this one"),
    "ABORTED": ANOTHER_CHANGE,
    "CANCELLED": Meaning(Conflict, f"somebody ended it; {AGAIN}"),
    "FAILED_PRECONDITION": Meaning(Conflict, "tpufleet status"),
    "UNAVAILABLE": TRANSIENT,
    "DEADLINE_EXCEEDED": TRANSIENT,
    # also what a stock-out of spot TPUs may look like: "an internal error has occurred"
    # (code 13; terraform-provider-google #16147, skypilot #1039)
    "INTERNAL": TRANSIENT,
    "UNKNOWN": TRANSIENT,
}
