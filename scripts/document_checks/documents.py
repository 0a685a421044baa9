"""The providers' OpenAPI documents, as far as the service calls them."""

import json
import os
import re
from functools import cache
from pathlib import Path

import yaml

from calls import list_operations

PACKAGES = Path(os.environ["DOCUMENTS_PACKAGES"])
FILES = {
    "hetzner": PACKAGES / "hetzner/specs/cloud.spec.json",
    "digitalocean": PACKAGES / "digitalocean/spec/specification/DigitalOcean-public.v2.yaml",
}
METHODS = ("get", "post", "delete")


class PlainLoader(yaml.SafeLoader):
    """Reads times as the texts that they are in JSON."""


PlainLoader.yaml_implicit_resolvers = {
    first: [resolver for resolver in resolvers if resolver[0] != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def load_document(kind):
    """The document of a kind with the paths that the service calls, and without references."""
    file = FILES[kind]
    whole = load_file(file)
    schemes = whole["components"]["securitySchemes"]
    document = {key: whole[key] for key in ("openapi", "info", "servers", "security")}
    document |= {"components": {"securitySchemes": schemes}, "paths": {}}
    for path in sorted({path for _, path in list_operations(kind)}):
        operations = {method: whole["paths"][path][method] for method in METHODS if method in whole["paths"][path]}
        document["paths"][path] = {method: read_operation(operation, file) for method, operation in operations.items()}
    return document


def read_operation(operation, file):
    operation = inline_references(operation, file)
    # Hetzner writes 4xx, which OpenAPI does not know.
    responses = operation["responses"].items()
    operation["responses"] = {status.replace("xx", "XX"): response for status, response in responses}
    return operation


@cache
def load_file(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file) if path.suffix == ".json" else yaml.load(file, PlainLoader)


def inline_references(node, path):
    """A part of the file at `path`, with everything that it refers to in its place."""
    if isinstance(node, list):
        return [inline_references(item, path) for item in node]
    if not isinstance(node, dict):
        return node
    if isinstance(node.get("$ref"), str):
        file, _, pointer = node["$ref"].partition("#")
        path = (path.parent / file).resolve() if file else path
        found = load_file(path)
        for key in pointer.split("/")[1:]:
            found = found[key.replace("~1", "/").replace("~0", "~")]
        return inline_references(found, path)
    return {key: inline_references(value, path) for key, value in node.items() if key != "x-codeSamples"}


def find_example(operation, status):
    """The document's own example of an answer, or one of what its schema says of each field."""
    media = operation["responses"][status]["content"]["application/json"]
    if "example" in media:
        return media["example"]
    for example in media.get("examples", {}).values():
        return example["value"]
    return sample(media["schema"])


def sample(schema):
    """A value for a schema: its example, or one that is put together from its parts."""
    if "example" in schema:
        return schema["example"]
    if "allOf" in schema:
        parts = [sample(part) for part in schema["allOf"] if set(part) != {"description"}]
        return {key: value for part in parts for key, value in part.items()} if isinstance(parts[0], dict) else parts[0]
    for choice in ("oneOf", "anyOf"):
        if choice in schema:
            return sample(schema[choice][0])
    if "enum" in schema:
        return schema["enum"][0]
    if "properties" in schema:
        return {key: sample(part) for key, part in schema["properties"].items()}
    if schema.get("type") == "array":
        return [sample(schema["items"])]
    plain = {"integer": 1, "number": 1.0, "boolean": True, "object": {}}
    return plain.get(schema.get("type"), "text")


def list_fields(schema):
    """The fields that a schema declares, with what it says of each."""
    fields = dict(schema.get("properties", {}))
    for part in [part for word in ("allOf", "oneOf", "anyOf") for part in schema.get(word, [])]:
        fields |= list_fields(part)
    return fields


def list_granted_scopes():
    """The scopes that docs/clouds.md tells people to choose."""
    text = Path("docs/clouds.md").read_text(encoding="utf-8")
    return set(re.findall(r"`(\w+:\w+)`", text.partition("**Custom Scopes**")[2].partition("\n3.")[0]))


def read_base_url(kind):
    """Where the adapter sends its calls, by its source."""
    source = Path(f"crates/clouds/src/{kind}/mod.rs").read_text(encoding="utf-8")
    return re.search(r'BASE_URL: &str = "([^"]+)"', source)[1]


def list_calls_in_source(kind):
    """The methods and paths that the adapter's source has, with {} for what varies."""
    found = set()
    for file in Path(f"crates/clouds/src/{kind}").glob("*.rs"):
        if file.name != "tests.rs":
            calls = re.findall(r'\.(get|post|get_all)\(\s*(?:&format!\()?"(/[^"]*)"', file.read_text(encoding="utf-8"))
            found |= {(method[:4].rstrip("_").upper(), re.sub(r"\{\w+\}", "{}", path)) for method, path in calls}
    return found
