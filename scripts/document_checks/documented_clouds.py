"""Hetzner and DigitalOcean as their documents describe them, for scripts/cloud_documents: every request is judged and remembered
with what is wrong with it, and every answer is made of the document's examples and judged, too.

An order whose name begins with LOST makes its machine, and its answer is lost. Prints where each cloud is reached.
"""

import json
import os
import socket
import threading

from werkzeug.serving import make_server
from werkzeug.wrappers import Request, Response

from calls import MEANT_TO_BE_REFUSED
from clouds import OWNER_TOKEN, Digitalocean, Hetzner
from documents import list_granted_scopes, load_document, read_base_url
from judge import Judge

CALLS_PATH = os.path.join(os.environ["DOCUMENTS_FOLDER"], "calls.log")
LOST = "lost-"
lock = threading.Lock()


class DocumentedCloud:
    def __init__(self, cloud_class):
        kind = cloud_class.KIND
        document = load_document(kind)
        self.kind = kind
        self.judge = Judge(document)
        # Hetzner's tokens have none.
        self.scopes = list_granted_scopes() if kind == "digitalocean" else None
        self.cloud = cloud_class(document)
        self.scheme, _, rest = read_base_url(kind).partition("://")
        self.host, _, self.base_path = rest.partition("/")

    def __call__(self, environ, start_response):
        # The document is of the host that the adapter asks when no operator has pointed it elsewhere.
        request = Request(environ | {"wsgi.url_scheme": self.scheme, "HTTP_HOST": self.host})
        with lock:
            response = self.answer(request)
        if request.method == "POST" and (request.get_json(silent=True) or {}).get("name", "").startswith(LOST):
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        return response(environ, start_response)

    def answer(self, request):
        is_owner = request.headers.get("Authorization") == f"Bearer {OWNER_TOKEN}"
        objections = self.judge.list_objections(request, None if is_owner else self.scopes)
        template, operation = self.judge.find_operation(request)
        call = describe_call(request, template)
        if objections and MEANT_TO_BE_REFUSED.get(call) != objections:
            self.remember(request, call, objections, [])
            return Response(json.dumps({"objections": objections}), 400, content_type="application/json")
        status, body = self.cloud.answer(request, template, operation)
        text = "" if body is None else json.dumps(body)
        response = Response(text, status, content_type="application/json" if text else None)
        self.remember(request, call, objections, self.judge.list_answer_objections(request, response))
        return response

    def remember(self, request, call, objections, answer_objections):
        token = request.headers.get("Authorization", "").partition(" ")[2]
        record = {"kind": self.kind, "token": token, "call": call, "objections": objections,
                  "answer_objections": answer_objections}
        with open(CALLS_PATH, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


def describe_call(request, template):
    """A call as calls.py writes it."""
    parameters = "&".join(sorted(request.args))
    body = request.get_json(silent=True)
    fields = f" {{{','.join(sorted(body))}}}" if isinstance(body, dict) else ""
    return f"{request.method} {template}{'?' if parameters else ''}{parameters}{fields}"


def main():
    for cloud_class in (Hetzner, Digitalocean):
        cloud = DocumentedCloud(cloud_class)
        server = make_server("127.0.0.1", 0, cloud, threaded=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(f"{cloud.kind} is reached at http://127.0.0.1:{server.server_port}/{cloud.base_path}", flush=True)
    threading.Event().wait()


main()
