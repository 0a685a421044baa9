"""A cloud without anything, for scripts/schemathesis: every list of Hetzner's API is empty, and every order is refused."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PAGE = {"page": 1, "per_page": 50, "previous_page": None, "next_page": None, "last_page": 1, "total_entries": 0}
LISTS = ("servers", "locations", "server_types", "images")
EMPTY = {name: [] for name in LISTS} | {"pricing": {"currency": "EUR", "server_types": []}, "meta": {"pagination": PAGE}}
REFUSED = {"error": {"code": "invalid_input", "message": "invalid input in field 'image'", "details": None}}


class Cloud(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, content):
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(200, EMPTY)

    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.answer(422, REFUSED)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Cloud)
print(server.server_port, flush=True)
server.serve_forever()
