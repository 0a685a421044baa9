"""AWS for scripts/clouds: moto's server, made like EC2 where the checks depend on it.

- A page of DescribeInstances has at most PAGE_INSTANCES_MAX instances, and may end inside a reservation. moto counts
  reservations, so a thousand instances would be one page.
- Signatures and permissions are checked as AWS does: see ec2_permissions.py.
- Only the instance types that the checks use: moto describes all 1,395 at every verification, whatever MaxResults says.

What moto leaves out and the fault proxy adds: a repeated ClientToken. Prints its address once it serves.
"""

import base64
import copy
import io
import os

# Unknown images and sizes are refused, as by AWS. moto reads these when it is imported.
os.environ["MOTO_ENABLE_AMI_VALIDATION"] = "1"
os.environ["MOTO_EC2_ENABLE_INSTANCE_TYPE_VALIDATION"] = "1"

import moto.iam.access_control
from moto.core.responses import ActionResult
from moto.ec2.exceptions import InvalidParameterCombination
from moto.ec2.models.instance_types import InstanceTypeBackend
from moto.ec2.responses.instances import InstanceResponse
from moto.server import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

from ec2_permissions import Ec2Request

PAGE_INSTANCES_MAX = 100
KNOWN_TYPES = {"t3.micro", "t3.small", "m5.large"}


def describe_instances(response):
    """DescribeInstances with pages that are counted in instances."""
    response.error_on_dryrun()
    filters = response._filters_from_querystring()
    ids = response._get_param("InstanceIds", [])
    max_results = response._get_param("MaxResults")
    if ids and max_results:
        raise InvalidParameterCombination("The parameter instancesSet cannot be used with the parameter maxResults")
    if ids:
        reservations = response.ec2_backend.get_reservations_by_instance_ids(ids, filters=filters)
    else:
        reservations = response.ec2_backend.describe_instances(filters=filters)
    token = response._get_param("NextToken")
    start = int(base64.urlsafe_b64decode(token)) if token else 0
    end = start + min(int(max_results or PAGE_INSTANCES_MAX), PAGE_INSTANCES_MAX)
    pairs = [(reservation, instance) for reservation in reservations for instance in reservation.instances]
    page = {}
    for reservation, instance in pairs[start:end]:
        if reservation.id not in page:
            page[reservation.id] = copy.copy(reservation)
            page[reservation.id].instances = []
        page[reservation.id].instances.append(instance)
    next_token = base64.urlsafe_b64encode(str(end).encode()).decode() if len(pairs) > end else None
    return ActionResult({"Reservations": list(page.values()), "NextToken": next_token})


def keep_body(application):
    """Keeps the bytes of a request, which are what is signed: moto would sign the form that it has read from them."""

    def answer(environ, start_response):
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ |= {"wsgi.input": io.BytesIO(body), "cloud_checks.body": body}
        return application(environ, start_response)

    return answer


def main():
    known = [found for found in InstanceTypeBackend.instance_types if found["InstanceType"] in KNOWN_TYPES]
    InstanceTypeBackend.instance_types = known
    InstanceResponse.describe_instances = describe_instances
    moto.iam.access_control.IAMRequest = Ec2Request
    application = keep_body(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=MotoRequestHandler)
    print(f"moto is reached at http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


main()
