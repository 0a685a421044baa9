"""Who sends a request to EC2, by the bytes that are signed, and what IAM lets them do, with the resources and conditions of
policies. moto signs another form of the request, and knows only the actions of policies.

A request is allowed if every permission it needs is: RunInstances on each resource that it uses or creates, and CreateTags on
each that it tags. What a request needs is as the Service Authorization Reference of AWS lists it.
"""

import re
from urllib.parse import parse_qs

import flask
from moto.core.exceptions import _RESTError
from moto.iam.access_control import IAMPolicy, IAMRequest


class UnauthorizedOperation(_RESTError):
    """EC2's own word for what other services call AccessDenied."""

    code = 403

    def __init__(self, action, resource):
        message = f"You are not authorized to perform this operation: {action} on {resource}."
        super().__init__("UnauthorizedOperation", f"{message} Encoded authorization failure message: AAAA")


class Ec2Request(IAMRequest):
    def __init__(self, **request):
        super().__init__(**(request | {"body": flask.request.environ["cloud_checks.body"]}))

    def check_action_permitted(self, resource):
        if self._service != "ec2":
            return super().check_action_permitted(resource)
        policies = [IAMPolicy(policy)._policy_json for policy in self._access_key.collect_policies()]
        statements = [statement for policy in policies for statement in to_list(policy["Statement"])]
        for action, resource, context in self.list_needs():
            effects = {statement["Effect"] for statement in statements if applies(statement, action, resource, context)}
            if effects != {"Allow"}:
                raise UnauthorizedOperation(action, resource)

    def list_needs(self):
        """The permissions that the request needs: action, resource and the values of condition keys."""
        form = {name: values[0] for name, values in parse_qs(self._body.decode()).items()}
        context = {"aws:RequestedRegion": self._region, "ec2:Region": self._region}
        if self._action != "ec2:RunInstances":
            return [(self._action, "*", context)]
        owned = f"arn:aws:ec2:{self._region}:{self.account_id}:"
        kinds = ["instance", "volume", "network-interface", "subnet", "security-group"]
        resources = [f"{owned}{kind}/new" for kind in kinds]
        resources.append(f"arn:aws:ec2:{self._region}::image/{form['ImageId']}")
        if "KeyName" in form:
            resources.append(f"{owned}key-pair/{form['KeyName']}")
        context["ec2:InstanceType"] = form["InstanceType"]
        tags = read_tags(form)
        needs = [(self._action, resource, context | to_context(find_tags(tags, resource))) for resource in resources]
        for kind, tags_of_kind in tags.items():
            tagging = context | to_context(tags_of_kind) | {"ec2:CreateAction": "RunInstances"}
            needs.append(("ec2:CreateTags", f"{owned}{kind}/new", tagging))
        return needs


def read_tags(form):
    """The tags of a request, by the kind of resource."""
    tags = {}
    for name, kind in form.items():
        found = re.fullmatch(r"TagSpecification\.(\d+)\.ResourceType", name)
        if found:
            keys = [key for key in form if re.fullmatch(rf"TagSpecification\.{found[1]}\.Tag\.\d+\.Key", key)]
            tags[kind] = {form[key]: form.get(key.removesuffix("Key") + "Value", "") for key in keys}
    return tags


def find_tags(tags, resource):
    return tags.get(resource.split(":")[-1].split("/")[0], {})


def to_context(tags):
    return {f"aws:RequestTag/{key}": value for key, value in tags.items()} | {"aws:TagKeys": sorted(tags)}


def applies(statement, action, resource, context):
    """Whether a statement speaks of this permission."""
    for element, value in (("Action", action), ("Resource", resource)):
        if not any(matches(pattern, value) for pattern in to_list(statement[element])):
            return False
    for operator, pairs in statement.get("Condition", {}).items():
        if not all(holds(operator, context.get(key), to_list(expected)) for key, expected in pairs.items()):
            return False
    return True


def holds(operator, found, expected):
    if operator == "StringEquals":
        return found in expected
    if operator == "StringLike":
        return found is not None and any(matches(pattern, found) for pattern in expected)
    if operator == "ForAllValues:StringEquals":
        return set(found or []) <= set(expected)
    # Better no answer than one that AWS would not give.
    raise NotImplementedError(f"conditions with {operator}: add it to ec2_permissions.py")


def matches(pattern, value):
    translated = "".join({"*": ".*", "?": "."}.get(character, re.escape(character)) for character in pattern)
    return re.fullmatch(translated, value, re.IGNORECASE) is not None


def to_list(value):
    return value if isinstance(value, list) else [value]
