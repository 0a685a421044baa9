// Single sign-on over HTTP alone, each answer looked at: what a browser would hide.
import assert from "node:assert/strict";
import { check } from "./check.mjs";
import { parseCookie, Visitor } from "./visitor.mjs";

const CALLBACK = "/internal/auth/sso/callback";
// Of redirects and forms at the provider: it needs six.
const STEPS_MAX = 12;

// `base` is the service, `issuer` the provider, `linked` the user whom the operator made: {id, email}.
export async function checkHttp({ base, issuer, linked }) {
  await checkStart(base, issuer);
  await checkSignOn(base, linked);
  await checkProvisioned(base);
  await checkRefusals(base);
}

async function checkStart(base, issuer) {
  await check("a domain nobody has shown to be theirs is refused with sso_not_available", async () => {
    const answer = await new Visitor().askJson("POST", `${base}/api/auth/sso`, { domain: "unknown.test" });
    assert.equal(answer.status, 404, answer.text);
    assert.equal(JSON.parse(answer.text).code, "sso_not_available");
  });
  await check("a sign-on starts at the provider, with PKCE, state and nonce", async () => {
    const { url, provider } = await start(new Visitor(), base);
    assert.deepEqual(provider, { name: "Test provider", protocol: "oidc" });
    const { origin, searchParams: asked } = new URL(url);
    assert.equal(origin, issuer);
    assert.equal(asked.get("response_type"), "code");
    assert.equal(asked.get("client_id"), "tenant-control");
    assert.equal(asked.get("redirect_uri"), base + CALLBACK);
    assert.equal(asked.get("code_challenge_method"), "S256");
    assert.match(asked.get("code_challenge"), /^[\w-]{43}$/);
    for (const name of ["state", "nonce"]) assert.ok(asked.get(name)?.length >= 22, `${name} in ${url}`);
    assert.ok(asked.get("scope").split(" ").includes("openid"), url);
  });
}

async function checkSignOn(base, linked) {
  const visitor = new Visitor();
  const callback = await check("the provider sends the visitor back with a code", () => logIn(visitor, base, linked.email));
  const cookies = visitor.cookiesFor(callback);
  await check("the callback answers 303 to the overview and sets the session's cookie", async () => {
    const answer = await visitor.ask(callback);
    assert.equal(answer.status, 303, answer.text);
    assert.equal(answer.location, `${base}/overview`);
    const session = sessionCookie(answer);
    assert.ok(session?.value, "no session cookie was set");
    assert.equal(session.attributes.httponly, true);
    assert.equal(session.attributes.samesite?.toLowerCase(), "lax");
    assert.equal(session.attributes.path, "/");
  });
  await check("the session is the user's whom the operator made, with the role that the provider's group maps to", async () => {
    const { actor, role, tenant } = await whoAmI(visitor, base);
    assert.deepEqual([actor.type, actor.id, actor.email], ["user", linked.id, linked.email]);
    assert.equal(role, "admin");
    assert.equal(tenant.slug, "signon");
  });
  await check("the same callback is refused the second time, with the cookies of the first", async () => {
    assertRefused(await new Visitor().ask(callback, { cookies }));
  });
  await check("signing out ends the session", async () => {
    const cookie = visitor.cookiesFor(base);
    const answer = await visitor.askJson("DELETE", `${base}/api/auth/session`);
    assert.equal(answer.status, 204, answer.text);
    const after = await visitor.ask(`${base}/api/auth/session`, { cookies: cookie });
    assert.equal(after.status, 401, after.text);
  });
}

async function checkProvisioned(base) {
  await check("somebody new gets the default role and the name that userinfo says, and goes on where they wanted", async () => {
    const visitor = new Visitor();
    const callback = await logIn(visitor, base, "new.person@example.test", { redirect_to: "/documentation/errors/" });
    const answer = await visitor.ask(callback);
    assert.equal(answer.status, 303, answer.text);
    assert.equal(answer.location, `${base}/documentation/errors/`);
    const { actor, role } = await whoAmI(visitor, base);
    assert.deepEqual([actor.email, actor.name], ["new.person@example.test", "Name of new.person"]);
    assert.equal(role, "viewer");
  });
}

async function checkRefusals(base) {
  await check("a callback in a browser that did not start the sign-on is refused", async () => {
    const callback = await logIn(new Visitor(), base, "victim@example.test");
    assertRefused(await new Visitor().ask(callback));
  });
  for (const [sentence, login] of [
    ["an address that the provider has not verified is refused", "unverified@example.test"],
    ["an address of a domain that is not the tenant's is refused", "somebody@elsewhere.test"],
  ]) {
    await check(sentence, async () => {
      const visitor = new Visitor();
      assertRefused(await visitor.ask(await logIn(visitor, base, login)));
    });
  }
  await check("who cancels at the provider gets a page that says what to do", async () => {
    const visitor = new Visitor();
    const { url } = await start(visitor, base);
    const form = (await visitor.ask(url)).location;
    const cancelled = await visitor.ask(`${form}/abort`);
    const callback = (await visitor.ask(cancelled.location)).location;
    assert.equal(new URL(callback).searchParams.get("error"), "access_denied");
    assertRefused(await visitor.ask(callback));
  });
}

async function start(visitor, base, more = {}) {
  const answer = await visitor.askJson("POST", `${base}/api/auth/sso`, { domain: "example.test", ...more });
  assert.equal(answer.status, 200, answer.text);
  return JSON.parse(answer.text);
}

// Starts a sign-on and goes through the provider's forms. Returns where it sends the visitor in the end, not asked yet.
async function logIn(visitor, base, login, more) {
  let { url } = await start(visitor, base, more);
  let answer = await visitor.ask(url);
  for (let step = 0; step < STEPS_MAX; step += 1) {
    if (answer.location?.startsWith(base + CALLBACK)) {
      assert.ok(new URL(answer.location).searchParams.get("code"), `no code in ${answer.location}`);
      return answer.location;
    }
    if (answer.location) {
      url = answer.location;
      answer = await visitor.ask(url);
    } else {
      assert.equal(answer.status, 200, `${url}: ${answer.text}`);
      const isLogin = answer.text.includes('name="login"');
      answer = await visitor.submit(url, answer.text, isLogin ? { login, password: "any" } : {});
    }
  }
  throw new Error(`the provider does not come to an end: ${url}`);
}

async function whoAmI(visitor, base) {
  const answer = await visitor.ask(`${base}/api/auth/session`);
  assert.equal(answer.status, 200, answer.text);
  return JSON.parse(answer.text);
}

// A page for people, and nobody is signed in by it.
function assertRefused(answer) {
  assert.ok(answer.status >= 400 && answer.status < 500, `${answer.status} to ${answer.location}: ${answer.text}`);
  assert.match(answer.headers.get("content-type"), /^text\/html/);
  assert.ok(!sessionCookie(answer)?.value, "a session cookie was set");
}

function sessionCookie(answer) {
  return answer.headers.getSetCookie().map(parseCookie).find((cookie) => cookie.name === "session");
}
