"""A proxy between the service and moto that fails as networks and clouds do, for scripts/clouds. Prints its address.

  fault_proxy.py http://127.0.0.1:PORT

It honours ClientToken as AWS does and moto does not: the same token with the same parameters gets the stored answer of the
first request, with other parameters IdempotentParameterMismatch. What it remembers outlives the service.

The checks talk to it on the same port:
  POST /faults    a list of more rules: {"match": {…}, "effect": …, "times": …}
  GET  /state     how often each effect was used, and how many tokens were "repeated" and "mismatched"
  GET  /calls     the parameters of all calls so far, without user data
A rule matches a call by its region, its service, its access key and its parameters; * stands for any characters. The first that
matches and is not used up decides; "times" of null is never used up:
  lose_request    closes the connection, and moto never sees the request
  hold_request    the same, but the connection stays open until the service closes it or dies
  lose_answer     moto carries the request out, and the connection is closed without an answer
  hold_answer     the same, but the connection stays open until the service closes it or dies
  stall           moto carries it out, and the connection is closed after STALL_SECONDS in the middle of the answer
  truncate        the first half of the answer, as if it were all
  hide            no instances, as lists lag behind
  throttle, fail, bad_gateway, refuse_key, quota   an answer of that kind, and moto never sees the request
"""

import asyncio
import contextlib
import json
import sys
from collections import Counter
from fnmatch import fnmatchcase
from urllib.parse import parse_qsl, urlsplit

STALL_SECONDS = 2
# A held connection of a service that does not close it.
HOLD_SECONDS_MAX = 60

REFUSALS = {
    "throttle": (503, "RequestLimitExceeded", "Request limit exceeded."),
    "fail": (500, "InternalError", "An internal error has occurred"),
    "quota": (400, "VcpuLimitExceeded", "You have requested more vCPU capacity than your current vCPU limit of 5 allows."),
    # As a region that is not enabled in the account refuses every key.
    "refuse_key": (401, "AuthFailure", "AWS was not able to validate the provided access credentials"),
    "bad_gateway": (),
    "hide": (),
}


class FaultProxy:
    def __init__(self, target):
        self.target = urlsplit(target)
        self.rules = []
        self.calls = []
        self.counts = Counter(repeated=0, mismatched=0)
        # The answer to each token, as a task: a repetition waits for the first request.
        self.tokens = {}

    async def serve_connection(self, reader, writer):
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while await self.serve_request(reader, writer):
                pass
        writer.close()

    async def serve_request(self, reader, writer):
        """Answers one request. False if the connection ends."""
        head = await reader.readuntil(b"\r\n\r\n")
        line, *fields = head.decode("latin-1").split("\r\n")[:-2]
        headers = {name.lower(): value.strip() for name, value in (field.split(":", 1) for field in fields)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        path = line.split(" ")[1]
        if path in ("/faults", "/state", "/calls"):
            answer = self.control(path, body)
            writer.write(to_response(200, "application/json", json.dumps(answer).encode()))
        else:
            call = read_call(headers, body)
            self.calls.append({name: value for name, value in call.items() if name != "UserData"})
            response = await self.answer(call, head, body, reader, writer)
            if response is None:
                return False
            writer.write(response)
        await writer.drain()
        return True

    def control(self, path, body):
        if path == "/calls":
            return self.calls
        if path == "/faults":
            self.rules += json.loads(body)
        return self.counts

    async def answer(self, call, head, body, reader, writer):
        """The answer to a call. None if there is none, and the connection is to be closed."""
        effect = self.take_effect(call)
        if effect in ("lose_request", "hold_request", *REFUSALS):
            response = self.refuse(effect, call)
        else:
            response = await self.forward_once(call, head, body)
        if effect:
            self.counts[effect] += 1
        if effect in ("hold_request", "hold_answer"):
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(reader.read(1), HOLD_SECONDS_MAX)
        if effect == "stall":
            writer.write(response[: len(response) // 2])
            await writer.drain()
            await asyncio.sleep(STALL_SECONDS)
        if effect in ("lose_answer", "hold_answer", "stall"):
            return None
        if effect == "truncate":
            content = response.partition(b"\r\n\r\n")[2]
            return to_response(200, "text/xml", content[: len(content) // 2])
        return response

    def refuse(self, effect, call):
        """The answer to a call that moto does not see, if there is one."""
        if effect == "refuse_key" and call["service"] == "sts":
            return to_error(403, "InvalidClientTokenId", "The security token included in the request is invalid")
        if effect == "bad_gateway":
            return to_response(502, "text/html", b"<html><h1>502 Bad Gateway</h1></html>")
        if effect == "hide":
            return to_response(200, "text/xml", b"<DescribeInstancesResponse><reservationSet/></DescribeInstancesResponse>")
        return to_error(*REFUSALS[effect]) if effect in REFUSALS else None

    def take_effect(self, call):
        for rule in self.rules:
            is_met = all(name in call and fnmatchcase(call[name], pattern) for name, pattern in rule["match"].items())
            if is_met and rule["times"] != 0:
                rule["times"] = rule["times"] and rule["times"] - 1
                return rule["effect"]
        return None

    async def forward_once(self, call, head, body):
        """The answer of moto, or the stored one to the same token."""
        token = call.get("ClientToken")
        if token is None:
            return await self.forward(head, body)
        key, parameters = (call["region"], token), sorted(parse_qsl(body.decode()))
        if key not in self.tokens:
            self.tokens[key] = (parameters, asyncio.create_task(self.forward(head, body)))
        elif self.tokens[key][0] != parameters:
            self.counts["mismatched"] += 1
            return to_error(400, "IdempotentParameterMismatch", "The token was used with other parameters.")
        else:
            self.counts["repeated"] += 1
        response = await self.tokens[key][1]
        if not response.startswith(b"HTTP/1.1 200"):
            # AWS remembers a token only with the instance that it stands for.
            self.tokens.pop(key, None)
        return response

    async def forward(self, head, body):
        reader, writer = await asyncio.open_connection(self.target.hostname, self.target.port)
        try:
            # The signature covers neither of these. Closing tells the end of the answer.
            lines = [line for line in head[:-4].split(b"\r\n") if not line.lower().startswith(b"connection:")]
            writer.write(b"\r\n".join([*lines, b"Connection: close", b"", body]))
            await writer.drain()
            answer = await reader.read()
        finally:
            writer.close()
        if not answer:
            raise ConnectionError("moto has closed the connection")
        answer_head, _, content = answer.partition(b"\r\n\r\n")
        status = int(answer_head.split(b" ", 2)[1])
        return to_response(status, "text/xml", content)


def read_call(headers, body):
    """The parameters of a call, and from its signature the region, the service and the access key."""
    scope = headers.get("authorization", "").partition("Credential=")[2].partition(",")[0].split("/")
    key, region, service = (scope[0], scope[2], scope[3]) if len(scope) == 5 else ("", "", "")
    call = dict(parse_qsl(body.decode()))
    # The name of what is ordered, wherever its tag stands.
    names = [value for name, value in call.items() if name.endswith(".Value") and call.get(name[:-5] + "Key") == "Name"]
    return {**call, "region": region, "service": service, "access_key": key, "name": names[0] if names else ""}


def to_response(status, kind, content):
    head = f"HTTP/1.1 {status} -\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n\r\n"
    return head.encode() + content


def to_error(status, code, message):
    error = f"<Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors>"
    return to_response(status, "text/xml", f"<Response>{error}<RequestID>0</RequestID></Response>".encode())


async def main():
    proxy = FaultProxy(sys.argv[1])
    server = await asyncio.start_server(proxy.serve_connection, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    print(f"the fault proxy is reached at http://127.0.0.1:{port}", flush=True)
    await server.serve_forever()


asyncio.run(main())
