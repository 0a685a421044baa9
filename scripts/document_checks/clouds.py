"""The two clouds: machines in memory, and answers made of the documents' examples."""

import copy
import itertools

from documents import find_example

TOKEN = "token-of-the-service-0123456789abcdef"
# Of the checks themselves: with the rights of the service's, and with all.
HAND_TOKEN = "token-of-the-checks-0123456789abcdef"
OWNER_TOKEN = "token-of-the-owner-0123456789abcdef"
TOKENS = {f"Bearer {token}" for token in (TOKEN, HAND_TOKEN, OWNER_TOKEN)}


class Cloud:
    def __init__(self, document):
        self.paths = document["paths"]
        self.ids = itertools.count(1001)
        examples = find_example(self.paths[self.LIST]["get"], "200")[self.MANY]
        self.machines = {}
        for number in range(self.MACHINES):
            self.insert(copy.deepcopy(examples[number % len(examples)]) | {"name": f"web-{number}.example.com"})

    def insert(self, machine):
        machine["id"] = next(self.ids)
        self.machines[machine["id"]] = machine
        return machine

    def answer(self, request, template, operation):
        """The status and the body of the answer to a request that the document allows."""
        if request.headers["Authorization"] not in TOKENS:
            return self.refuse(operation, 401)
        if template == self.LIST and request.method == "GET":
            found = [machine for machine in self.machines.values() if self.is_asked(machine, request.args)]
            return self.answer_list(request, operation, self.MANY, found)
        if template == self.ONE:
            machine = self.machines.get(int(request.path.rpartition("/")[2]))
            if machine is None:
                return self.refuse(operation, 404)
            if request.method == "DELETE":
                del self.machines[machine["id"]]
                return self.DELETED
            return 200, {self.SINGLE: machine}
        if request.method == "POST" and not request.get_json():
            return self.refuse(operation, 422)
        if request.method == "POST":
            return self.create(request.get_json(), operation)
        body = self.offer(find_example(operation, "200"))
        key = next(iter(body))
        return self.answer_list(request, operation, key, body[key]) if isinstance(body[key], list) else (200, body)

    def answer_list(self, request, operation, key, rows):
        page, size = (int(request.args.get(name, default)) for name, default in (("page", 1), ("per_page", 25)))
        last = max(1, -(-len(rows) // size))
        return 200, {key: rows[(page - 1) * size:page * size]} | self.page_fields(request, page, last, size, len(rows))

    def offer(self, body):
        return body


class Hetzner(Cloud):
    KIND = "hetzner"
    LIST, ONE, MANY, SINGLE = "/servers", "/servers/{id}", "servers", "server"
    # Three pages.
    MACHINES = 101
    CODES = {401: "unauthorized", 404: "not_found", 409: "uniqueness_error", 422: "invalid_input"}

    def __init__(self, document):
        super().__init__(document)
        self.DELETED = 200, find_example(self.paths[self.ONE]["delete"], "200")

    def is_asked(self, machine, query):
        key, _, value = query.get("label_selector", "").partition("==")
        return not key or machine["labels"].get(key) == value

    def page_fields(self, _request, page, last, size, total):
        numbers = {"page": page, "per_page": size, "total_entries": total, "last_page": last,
                   "previous_page": page - 1 or None, "next_page": page + 1 if page < last else None}
        return {"meta": {"pagination": numbers}}

    def refuse(self, operation, status):
        body = copy.deepcopy(find_example(operation, "4XX"))
        body["error"]["code"] = self.CODES[status]
        return status, body

    def create(self, order, operation):
        if any(machine["name"] == order["name"] for machine in self.machines.values()):
            return self.refuse(operation, 409)
        body = copy.deepcopy(find_example(operation, "201"))
        server = body["server"] | {"name": order["name"], "labels": order["labels"], "status": "running"}
        server["location"] |= {"name": order["location"]}
        body["server"] = self.insert(server) | {"status": "initializing"}
        return 201, body

    def offer(self, body):
        """The examples of a server type and of an image are deprecated ones, which nobody can order."""
        body = copy.deepcopy(body)
        for kind in body.get("server_types", []):
            for place in kind["locations"]:
                place["deprecation"] = None
            kind |= {"deprecated": False, "deprecation": None}
        for image in body.get("images", []):
            image["deprecated"] = None
        return body


class Digitalocean(Cloud):
    KIND = "digitalocean"
    LIST, ONE, MANY, SINGLE = "/v2/droplets", "/v2/droplets/{droplet_id}", "droplets", "droplet"
    MACHINES = 401
    DELETED = 204, None

    def is_asked(self, machine, query):
        """None of the examples has GPUs."""
        return query.get("type", "droplets") == "droplets" and query.get("tag_name") in [None, *machine["tags"]]

    def page_fields(self, request, page, last, _size, total):
        def address(number):
            return f"{request.base_url}?page={number}"

        pages = {"next": address(page + 1), "last": address(last)} if page < last else {}
        return {"links": {"pages": pages} if pages else {}, "meta": {"total": total}}

    def refuse(self, operation, status):
        """A status that the document does not name is its default. What is wrong with a tag has a form of its own."""
        if "400" in operation["responses"] and status == 422:
            return 400, find_example(operation, "400")
        if str(status) in operation["responses"]:
            return status, find_example(operation, str(status))
        return status, find_example(operation, "default") | {"id": "unprocessable_entity"}

    def create(self, order, operation):
        body = copy.deepcopy(find_example(operation, "202"))
        droplet = body["droplet"] | {"name": order["name"], "tags": order["tags"], "status": "active"}
        # Tags come a moment after the droplet.
        body["droplet"] = self.insert(droplet) | {"status": "new", "tags": []}
        return 202, body
