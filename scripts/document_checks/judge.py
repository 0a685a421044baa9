"""Whether a request and its answer are as a document says. openapi-core judges paths, parameters, bodies, types of content and
authentication. It lets pass what a document does not name, which a cloud would silently ignore: that is refused here."""

import re
from urllib.parse import urlsplit

from openapi_core import Config, OpenAPI
from openapi_core.contrib.werkzeug import WerkzeugOpenAPIRequest, WerkzeugOpenAPIResponse

from documents import list_fields


class Judge:
    def __init__(self, document):
        # What the rest of a document says is the provider's business.
        self.api = OpenAPI.from_dict(document, config=Config(spec_validator_cls=None))
        self.paths = document["paths"]
        # Paths of the document begin after it.
        self.base_path = urlsplit(document["servers"][0]["url"]).path

    def find_operation(self, request):
        """The path as the document writes it, and the operation; without one, the path as it is and None."""
        path = request.path.removeprefix(self.base_path)
        for template, operations in self.paths.items():
            if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path):
                return template, operations.get(request.method.lower())
        return path, None

    def list_objections(self, request, scopes):
        """What is wrong with a request of a token with these scopes; None where there are none, or it has all."""
        objections = [objection for error in self.api.iter_request_errors(WerkzeugOpenAPIRequest(request))
                      for objection in explain(error)]
        _, operation = self.find_operation(request)
        return objections + (list_undeclared(request, operation, scopes) if operation else [])

    def list_answer_objections(self, request, response):
        errors = self.api.iter_response_errors(WerkzeugOpenAPIRequest(request), WerkzeugOpenAPIResponse(response))
        return [objection for error in errors for objection in explain(error)]


def list_undeclared(request, operation, scopes):
    """Parameters and fields that the document does not have, and scopes that are missing."""
    parameters = {it["name"]: it for it in operation.get("parameters", []) if it["in"] == "query"}
    objections = [f"parameter {name}: is given {len(request.args.getlist(name))} times"
                  for name in request.args if len(request.args.getlist(name)) > 1]
    objections += [f"parameter {name}: is not declared" for name in request.args if name not in parameters]
    body = request.get_json(silent=True) or {}
    media = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    fields = list_fields(media.get("schema", {}))
    objections += [f"body: {name} is not declared" for name in body if name not in fields]
    if scopes is not None:
        used = [parameters.get(name) for name in request.args] + [fields.get(name) for name in body]
        told = [scope for part in used if part for scope in re.findall(r"Requires `(\w+:\w+)`", part.get("description", ""))]
        needed = {scope for security in operation["security"] for names in security.values() for scope in names}
        objections += [f"scope {scope}: is not among those of docs/clouds.md"
                       for scope in sorted(needed.union(told) - scopes)]
    return objections


def explain(error):
    """The sentences of an error: of a body that breaks its schema one for each breach."""
    breaches = getattr(error.__cause__, "schema_errors", None)
    where = "body" if "body" in str(error) else str(error)
    return [f"{where}: {breach.message}" for breach in breaches] if breaches else [str(error)]
