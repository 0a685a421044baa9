// A working day with the types that openapi-typescript generates, and openapi-fetch: records, pages, changes, secrets, files
// and refusals.
//
// CLIENT_URL and CLIENT_KEY say where and as whom. tsc checks this file against the generated types.

import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

type Schemas = components["schemas"];

declare const process: { env: Record<string, string | undefined> };

// What happens after the answer to a request happens within this time.
const WAIT_MS = 30_000;

const baseUrl = process.env.CLIENT_URL ?? "";
const clientFor = (key: string) => createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${key}` } });
const client = clientFor(process.env.CLIENT_KEY ?? "");

function check(holds: boolean, sentence: string): asserts holds {
  if (!holds) throw new Error(`not so: ${sentence}`);
}

// The data of an answer. A problem is data as well, and typed.
function done<T>(answer: { data?: T; error?: Schemas["Problem"]; response: Response }): T {
  if (answer.data === undefined) {
    throw new Error(`${answer.response.status} ${answer.error?.code}: ${answer.error?.detail}`);
  }
  return answer.data;
}

function refused(answer: { error?: Schemas["Problem"]; response: Response }, status: number): Schemas["Problem"] {
  check(answer.response.status === status && answer.error !== undefined, `${answer.response.status} is ${status}`);
  return answer.error;
}

async function until<T>(what: string, ask: () => Promise<T | undefined>): Promise<T> {
  for (const end = Date.now() + WAIT_MS; Date.now() < end; ) {
    const found = await ask();
    if (found !== undefined) return found;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  throw new Error(`not in time: ${what}`);
}

const TICKETS = "/api/psa/tickets";

// Page by page to the end.
async function* allTickets(status: Schemas["TicketStatus"][], limit: number): AsyncGenerator<Schemas["Ticket"]> {
  for (let cursor: string | null | undefined; cursor !== null; ) {
    const query = { status, tag: ["printer"], limit, ...(cursor === undefined ? {} : { cursor }) };
    const page = done(await client.GET(TICKETS, { params: { query } }));
    check("data" in page && page.data.length <= limit, "a list has pages");
    for (const row of page.data) if ("number" in row) yield row;
    cursor = page.next_cursor;
  }
}

async function organizationsAndTickets(): Promise<Schemas["Ticket"]> {
  const organization = done(
    await client.POST("/api/admin/organizations", { body: { name: "Globex Inc.", tags: ["gold"] } }),
  );
  const query = { slug: organization.slug, archived: false };
  const found = done(await client.GET("/api/admin/organizations", { params: { query } }));
  check("data" in found && found.data[0]?.id === organization.id, "an organization is found by its slug");

  const made: Schemas["Ticket"][] = [];
  for (let number = 0; number < 7; number += 1) {
    const body = {
      subject: `Scanner ${number} on fire`,
      priority: "high",
      organization_id: organization.id,
      tags: ["printer"],
      external_id: `typescript-${number}`,
    } as const;
    const header = { "Idempotency-Key": `typescript-${number}` };
    const params = { params: { header }, body: { ...body, tags: ["printer"] } };
    made.push(done(await client.POST(TICKETS, params)));
    const again = await client.POST(TICKETS, params);
    check(again.response.headers.get("Idempotency-Replayed") === "true", "a repeated request is replayed");
  }
  const ticket = made[3];
  check(ticket !== undefined, "seven are made");

  const read = await client.GET(TICKETS, { params: { query: { id: ticket.id } } });
  const detail = done(read);
  check("comments" in detail && detail.comments.length === 0, "one ticket comes with its comments");
  const etag = read.response.headers.get("ETag") ?? "";
  const changed = done(
    await client.PATCH(TICKETS, {
      params: { query: { id: ticket.id }, header: { "If-Match": etag } },
      body: { status: "in_progress", comment: { body: "On it.", public: false } },
    }),
  );
  check(changed.status === "in_progress" && changed.comment_count === 1 && changed.version === 2, "it is changed");
  const view = { id: ticket.id, view: "comments", limit: 5 } as const;
  const comments = done(await client.GET(TICKETS, { params: { query: view } }));
  check("data" in comments && comments.data.length === 1, "its comments are a list");

  const both: number[] = [];
  for await (const one of allTickets(["new", "in_progress"], 2)) both.push(one.number);
  check(both.join() === made.map((one) => one.number).reverse().join(), "pages go to the end, newest first");
  let fresh = 0;
  for await (const one of allTickets(["new"], 200)) fresh += one.status === "new" ? 1 : 0;
  check(fresh === 6, "a filter holds");
  return changed;
}

async function keys(): Promise<void> {
  const path = "/api/admin/api-keys";
  const body: Schemas["ApiKeyInput"] = { name: "Report", scopes: ["tickets:read", "search:read"] };
  const made = done(await client.POST(path, { body }));
  const mine = clientFor(made.key);
  check(done(await mine.GET("/api/auth/session")).actor.id === made.id, "the new key works");
  const params = { query: { id: made.id } };
  const rotated = done(await client.PUT(path, { params, body: { rotate: { overlap_hours: 0 } } }));
  check("key" in rotated && rotated.key !== made.key, "a rotation shows the next key");
  check(refused(await mine.GET("/api/auth/session"), 401).code === "unauthenticated", "the old one is over");
  const renamed = done(await client.PUT(path, { params, body: { ...body, name: "Reports" } }));
  check(renamed.expires_at === made.expires_at, "what is left out stays");
  check((await client.DELETE(path, { params })).response.status === 204, "a key is revoked");
  const read = done(await client.GET(path, { params: { query: { id: made.id, limit: 50 } } }));
  check("status" in read && read.status === "revoked", "and readable");
}

async function webhooks(): Promise<void> {
  const path = "/api/admin/webhooks";
  const body = { name: "Chat", url: "https://hooks.invalid/in", events: ["ticket.*"] };
  const made = done(await client.POST(path, { body }));
  const params = { query: { id: made.id } };
  const rotated = done(await client.PUT(path, { params, body: { rotate_secret: { overlap_hours: 1 } } }));
  check("secret" in rotated && rotated.secret !== made.secret, "a rotation shows the next secret");
  const sent = done(
    await client.POST("/api/admin/webhooks/deliveries", { body: { action: "test", webhook_id: made.id } }),
  );
  check("event_type" in sent && sent.event_type === "webhook.test", "a test is a delivery");
}

async function workflows(): Promise<void> {
  const path = "/api/psa/workflows/trigger";
  const made = done(
    await client.POST(path, {
      body: {
        action: "create",
        name: "Restart",
        on: { manual: {} },
        steps: [{ id: "make", uses: "ticket.create", with: { subject: "Restart ${{ input.host }}" } }],
      },
    }),
  );
  check("on" in made, "a workflow is made");
  const begun = done(await client.POST(path, { body: { workflow_id: made.id, input: { host: "web-1" } } }));
  check("steps" in begun && "trigger" in begun, "a run is begun");
  const run = await until("the run ends", async () => {
    const now = done(await client.GET(path, { params: { query: { run_id: begun.id } } }));
    check("steps" in now && "trigger" in now, "one run has its steps");
    return ["succeeded", "failed"].includes(now.status) ? now : undefined;
  });
  check(run.status === "succeeded" && run.steps[0]?.id === "make", "it has succeeded");
  const query = { view: "runs", status: ["succeeded", "failed"] } as const;
  const runs = done(await client.GET(path, { params: { query: { ...query, status: [...query.status] } } }));
  check("data" in runs && runs.data[0]?.id === run.id, "and is in the history");
}

// A list that can also be a file is a text, too; without `format` it is not.
function parsed<T>(answer: T | string): T {
  check(typeof answer !== "string", "JSON is not a text");
  return answer;
}

async function inventory(): Promise<void> {
  const path = "/api/rmm/reports/asset-inventory";
  const page = parsed(done(await client.GET(path, { params: { query: { include: ["disks", "nics"] } } })));
  check("data" in page && page.data.length === 3, "the devices are listed");
  const one = page.data[0];
  check(one !== undefined && "disks" in one && !("software" in one), "with what was asked for");
  const read = parsed(done(await client.GET(path, { params: { query: { id: one.id } } })));
  check("hostname" in read && read.hostname === one.hostname, "and can be read");
  const summary = parsed(done(await client.GET(path, { params: { query: { view: "summary" } } })));
  check("platform" in summary && Array.isArray(summary.platform), "and counted");
  const query = { format: "csv", fields: ["hostname"] } as const;
  const file = await client.GET(path, { params: { query: { ...query, fields: [...query.fields] } }, parseAs: "text" });
  check(String(done(file)).split("\r\n").length === 5, "and exported: a line each, the names and the end");
}

async function finding(ticket: Schemas["Ticket"]): Promise<void> {
  const query: paths["/api/search"]["get"]["parameters"]["query"] = {
    q: `"${ticket.subject}"`,
    types: ["ticket", "device"],
  };
  const found = await until("a write is found", async () => {
    const page = done(await client.GET("/api/search", { params: { query } }));
    return page.data.length > 0 ? page : undefined;
  });
  check(found.data[0]?.id === ticket.id && found.counts.ticket === 1, "what was written is found");
}

async function refusals(ticket: Schemas["Ticket"]): Promise<void> {
  const unknown = refused(await client.GET(TICKETS, { params: { query: { id: "tkt_nothing" } } }), 404);
  check(unknown.code === "not_found", "an unknown id is not found");
  const invalid = refused(await client.POST(TICKETS, { body: { subject: "", tags: ["a", ""] } }), 422);
  check(invalid.errors?.map((field) => field.pointer).join() === "/subject,/tags/1", "every bad field is named");
  const body = { subject: "Again", external_id: ticket.external_id };
  check(refused(await client.POST(TICKETS, { body }), 409).code === "conflict", "an external id is taken once");
  const params = { query: { id: ticket.id } };
  const closed = refused(await client.PATCH(TICKETS, { params, body: { status: "closed" } }), 409);
  check(closed.code === "invalid_transition", "a status goes where it may");
  const header = { "If-Match": '"1"' };
  const stale = await client.PATCH(TICKETS, { params: { ...params, header }, body: { team: "Print" } });
  check(refused(stale, 412).code === "version_mismatch", "an old version is not overwritten");
}

const changed = await organizationsAndTickets();
await keys();
await webhooks();
await workflows();
await inventory();
await refusals(changed);
await finding(changed);
console.log("TypeScript: every call of the round is typed and answered");
