// The pages in Chromium: signing on and out as a person does, then every page, for people on phones, people
// who like it dark, and people who have it read to them.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { check, WAIT_MS, within } from "./check.mjs";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const EMAIL = "administrator@example.test";
// Characters of a page that a failure shows: enough to know which it was.
const SHOWN_MAX = 500;

// `name` is the page's in sentences and in names of screenshots.
const PAGES = [
  { name: "home", path: "/" },
  { name: "signin", path: "/signin" },
  { name: "overview", path: "/overview", isSignedIn: true },
  { name: "rate-limits", path: "/api/rate-limits/" },
  { name: "documentation", path: "/documentation/" },
  { name: "reference", path: "/documentation/api/" },
  { name: "operation", path: "/documentation/api/create_ticket/" },
  { name: "events", path: "/documentation/api/events/" },
  { name: "guides", path: "/documentation/guides/" },
  { name: "guide", path: "/documentation/guides/operating/" },
  { name: "errors", path: "/documentation/errors/" },
  { name: "changelog", path: "/documentation/changelog/" },
  { name: "status", path: "/status/" },
  { name: "not-found", path: "/no-such-page", refusal: [404, 404] },
  { name: "refused", path: "/signout", refusal: [405, 405] },
  { name: "refused-callback", path: "/internal/auth/sso/callback?code=nothing&state=nothing", refusal: [400, 499] },
];

const WIDTHS = [360, 1440];

// `link` is a sign-in link and the address of whom it signs in, `screenshots` a folder, or nothing.
export async function checkBrowser({ base, issuer, link, executablePath, screenshots }) {
  if (screenshots) mkdirSync(screenshots, { recursive: true });
  const browser = await chromium.launch({ executablePath, timeout: WAIT_MS });
  try {
    await checkUnknown(browser, base);
    await checkLink(browser, { base, link, screenshots });
    const state = await checkSignOn(browser, base, issuer);
    for (const width of WIDTHS) await checkPages(browser, { base, width, state, screenshots });
    await checkSignOut(browser, base, issuer, state);
  } finally {
    await within(browser.close(), "closing the browser");
  }
}

async function checkUnknown(browser, base) {
  const { page, seen } = await open(browser, base);
  await checkOn({ page, seen }, "in Chromium, an address of an unknown domain is told so on the page", async () => {
    await page.goto(`${base}/signin`);
    await enterAddress(page, "somebody@unknown.test");
    const told = page.locator("[role=alert], [role=status]").filter({ hasText: /\S/ });
    await told.or(page.locator("[aria-invalid=true]")).first().waitFor();
    assert.ok(isSignIn(base, page.url()), page.url());
  });
  await page.context().close();
}

// A sign-in link: looked at narrow and wide, then redeemed by its button, on a page that hides its token from everybody.
async function checkLink(browser, { base, link, screenshots }) {
  for (const width of WIDTHS) {
    await checkPage(browser, { base, width, screenshots, name: "signin-link", path: link.url.slice(base.length) });
  }
  const { page, seen } = await open(browser, base);
  const told = [];
  page.on("request", (request) => told.push([request.url(), request.headers()]));
  await checkOn({ page, seen }, "in Chromium, a sign-in link says whom it signs in, and nobody is yet", async () => {
    await page.goto(link.url);
    await page.getByRole("button", { name: `Continue as ${link.email}` }).waitFor();
    assert.deepEqual(await page.context().cookies(), []);
  });
  await checkOn({ page, seen }, "in Chromium, its button signs in, and no address or referrer has the token from then on", async () => {
    await page.getByRole("button", { name: `Continue as ${link.email}` }).click();
    await page.waitForURL(`${base}/overview`);
    assert.ok((await page.getByRole("main").innerText()).includes(link.email));
    const { search } = new URL(link.url);
    const token = search.split("=")[1];
    const elsewhere = told.filter(([url]) => url !== link.url);
    assert.ok(elsewhere.length > 1, "the stylesheet and the form are asked for");
    for (const [url, headers] of elsewhere) {
      assert.ok(!url.includes(token) && !(headers.referer ?? "").includes(token), `${url} ${headers.referer}`);
    }
    assert.deepEqual(seen.errors, []);
  });
  await checkOn({ page, seen }, "in Chromium, the link does not work a second time", async () => {
    const answer = await page.goto(link.url);
    assert.equal(answer.status(), 410);
    await page.getByRole("heading", { name: "This link does not work" }).waitFor();
  });
  await page.context().close();
}

// Returns the cookies of who is signed in then.
async function checkSignOn(browser, base, issuer) {
  const { page, seen } = await open(browser, base);
  await checkOn({ page, seen }, "in Chromium, a work e-mail on /signin leads to its provider", async () => {
    await page.goto(`${base}/signin`);
    await enterAddress(page, EMAIL);
    await page.waitForURL((url) => url.origin === issuer);
  });
  await checkOn({ page, seen }, "in Chromium, logging in there leads to /overview", async () => {
    await page.locator("input[name=login]").fill(EMAIL);
    await page.locator("input[name=password]").fill("any");
    await page.getByRole("button", { name: "Sign-in" }).click();
    await page.getByRole("button", { name: "Continue" }).click();
    await page.waitForURL(`${base}/overview`);
  });
  await checkOn({ page, seen }, "in Chromium, /overview says who is signed in, and with which role", async () => {
    const text = await page.getByRole("main").innerText();
    for (const word of [EMAIL, "Name of administrator"]) assert.ok(text.includes(word), `${word} is missing: ${text}`);
    assert.match(text, /\badmin\b/);
    assert.deepEqual(seen.errors, []);
  });
  const state = await page.context().storageState();
  await page.context().close();
  return state;
}

async function checkSignOut(browser, base, issuer, state) {
  const { page, seen } = await open(browser, base, { storageState: state });
  await checkOn({ page, seen }, "in Chromium, the button on /overview signs out and leads on to the provider", async () => {
    await page.goto(`${base}/overview`);
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.waitForURL((url) => url.origin === issuer && url.searchParams.has("id_token_hint"));
    await page.getByRole("button", { name: "Yes, sign me out" }).waitFor();
  });
  await checkOn({ page, seen }, "in Chromium, signing out there leads back to /signin", async () => {
    await page.getByRole("button", { name: "Yes, sign me out" }).click();
    await page.waitForURL((url) => isSignIn(base, url));
    await page.getByRole("textbox", { name: /e-?mail/i }).waitFor();
  });
  await checkOn({ page, seen }, "in Chromium, /overview leads to /signin from then on", async () => {
    await page.goto(`${base}/overview`);
    assert.ok(isSignIn(base, page.url()), page.url());
    assert.deepEqual(seen.errors, []);
  });
  await checkOn({ page, seen }, "in Chromium, the provider asks who it is the next time", async () => {
    await enterAddress(page, EMAIL);
    await page.waitForURL((url) => url.origin === issuer);
    await page.locator("input[name=login]").waitFor();
  });
  await page.context().close();
  const late = await open(browser, base, { storageState: state });
  await checkOn(late, "in Chromium, the cookies of before are worth nothing by then", async () => {
    await late.page.goto(`${base}/overview`);
    assert.ok(isSignIn(base, late.page.url()), late.page.url());
  });
  await late.page.context().close();
}

async function checkPages(browser, { base, width, state, screenshots }) {
  for (const { isSignedIn, ...page } of PAGES) {
    await checkPage(browser, { base, width, screenshots, state: isSignedIn && state, ...page });
  }
}

// `state` is of who is signed in, or nothing; `refusal` the statuses between which the answer's is.
async function checkPage(browser, { base, width, screenshots, state, name, path, refusal = [200, 200] }) {
  // As on a phone, a narrow page without a word about its width would be laid out as a wide one.
  const phone = width < 600 && { isMobile: true, hasTouch: true };
  const options = { viewport: { width, height: 800 }, ...phone, ...(state && { storageState: state }) };
  const { page, seen } = await open(browser, base, options);
  const sentence = `${name} at ${width} px: fits, is accessible, light and dark, logs no error and asks nobody else`;
  await checkOn({ page, seen }, sentence, async () => {
    const response = await page.goto(base + path);
    assert.equal(page.url(), base + path);
    assert.ok(response.status() >= refusal[0] && response.status() <= refusal[1], `it answered ${response.status()}`);
    assert.match(response.headers()["content-type"], /^text\/html/);
    await assertFits(page, width);
    await within(page.evaluate(AXE), "loading axe-core");
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme });
      const picture = screenshots && join(screenshots, `${name}-${width}-${colorScheme}.png`);
      if (picture) await page.screenshot({ path: picture, fullPage: true });
      // By dark only colours are others.
      await assertAccessible(page, colorScheme === "dark" && { runOnly: ["color-contrast"] });
    }
    assert.deepEqual(seen.errors, []);
    assert.deepEqual(seen.elsewhere, []);
  });
  await page.context().close();
}

// A check that says, if it fails, what the page was showing and what was wrong with it.
async function checkOn({ page, seen }, sentence, work) {
  await check(sentence, async () => {
    try {
      await work();
    } catch (error) {
      const text = await page.locator("body").innerText({ timeout: 1_000 }).catch(() => "nothing");
      const shown = `the page was ${page.url()} and said: ${text.slice(0, SHOWN_MAX)}`;
      throw new Error([error.message, ...seen.errors, shown].join("\n"));
    }
  });
}

async function assertFits(page, width) {
  const [inside, outside] = await within(
    page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]),
    "measuring the page",
  );
  assert.equal(outside, width, `it is laid out ${outside} px wide`);
  assert.ok(inside <= outside, `it scrolls sideways: ${inside} px in ${outside} px`);
}

async function assertAccessible(page, options) {
  const asked = page.evaluate((options) => globalThis.axe.run(document, { resultTypes: ["violations"], ...options }), options);
  const { violations } = await within(asked, "axe-core");
  const told = violations.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.map((node) => node.html).join(" ")}`);
  assert.deepEqual(told, []);
}

// A page of a browser that knows nothing yet, and what is seen of it. Nothing leaves this machine: the provider's form asks
// for a font that it does not need.
async function open(browser, base, options = {}) {
  const context = await browser.newContext(options);
  context.setDefaultTimeout(WAIT_MS);
  await context.route((url) => !/^127\./.test(url.hostname), (route) => route.abort());
  const page = await context.newPage();
  return { page, seen: watch(page, base) };
}

// What goes wrong on the service's pages, and whom they ask beside it. That a page is refused on purpose is no error.
function watch(page, base) {
  const seen = { errors: [], elsewhere: [] };
  page.on("pageerror", (error) => seen.errors.push(error.message));
  page.on("console", (message) => {
    const { url } = message.location();
    const isRefusal = url === page.url() && /^Failed to load resource: the server responded/.test(message.text());
    if (message.type() === "error" && !isRefusal && page.url().startsWith(base)) seen.errors.push(`${message.text()} (${url})`);
  });
  page.on("request", (request) => {
    const { protocol, origin } = new URL(request.url());
    if (origin !== base && protocol !== "data:") seen.elsewhere.push(request.url());
  });
  return seen;
}

// Whatever it is asked with, such as where to go on then.
function isSignIn(base, address) {
  const { origin, pathname } = new URL(address);
  return origin === base && pathname === "/signin";
}

async function enterAddress(page, address) {
  const field = page.getByRole("textbox", { name: /e-?mail/i });
  await field.fill(address);
  await field.press("Enter");
}
