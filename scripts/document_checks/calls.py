"""Every call that the adapters can make, and what is wrong with those that are meant to be refused.

A call is its method, its path in the document, the names of its parameters and those of its body's fields: the same path with
other parameters is another call. An adapter that learns a new one is refused until it is written here.
"""

ORDER = "image,labels,location,name,server_type,ssh_keys,user_data"
DROPLET_ORDER = "image,name,region,size,ssh_keys,tags,user_data"

CALLS = {
    "hetzner": {
        "GET /images?page&per_page&sort&status&type",
        "GET /locations?page&per_page",
        "GET /pricing",
        "GET /server_types?page&per_page",
        "GET /servers/{id}",
        "GET /servers?label_selector&per_page",
        "GET /servers?page&per_page&sort",
        "GET /servers?per_page",
        "POST /servers {}",
        f"POST /servers {{{ORDER}}}",
    },
    "digitalocean": {
        "GET /v2/account",
        "GET /v2/droplets/{droplet_id}",
        "GET /v2/droplets?page&per_page",
        "GET /v2/droplets?page&per_page&type",
        "GET /v2/droplets?per_page",
        "GET /v2/droplets?per_page&tag_name",
        "GET /v2/images?page&per_page&type",
        "GET /v2/regions?page&per_page",
        "GET /v2/sizes?page&per_page",
        "POST /v2/droplets {}",
        f"POST /v2/droplets {{{DROPLET_ORDER}}}",
        "POST /v2/tags {}",
    },
}

# A verification asks for nothing, to learn whether the token or the fields are refused. DigitalOcean's document does not say that
# a tag needs a name.
MEANT_TO_BE_REFUSED = {
    "POST /servers {}": [f"body: '{name}' is a required property" for name in ("name", "server_type", "image")],
    "POST /v2/droplets {}": ["body: {} is not valid under any of the given schemas"],
    "POST /v2/tags {}": [],
}


def list_operations(kind):
    """The methods and paths of the calls of a kind."""
    calls = [call.split("?")[0].split(" ") for call in CALLS[kind]]
    return {(method, path) for method, path, *_ in calls}
