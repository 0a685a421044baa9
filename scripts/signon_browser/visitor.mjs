// A browser without scripts, over Node's fetch: it keeps cookies, and follows redirects and forms one at a time, so that a
// check can look at each answer.
import { WAIT_MS } from "./check.mjs";

export class Visitor {
  // By host, name and path: the provider gives cookies of one name to several paths.
  #cookies = new Map();

  async ask(url, { method = "GET", headers = {}, body, cookies = this.cookiesFor(url) } = {}) {
    const sent = { accept: "text/html,application/json;q=0.9", ...headers, ...(cookies && { cookie: cookies }) };
    const signal = AbortSignal.timeout(WAIT_MS);
    const response = await fetch(url, { method, headers: sent, body, redirect: "manual", signal });
    for (const line of response.headers.getSetCookie()) this.#keep(new URL(url), line);
    const location = response.headers.get("location");
    return {
      status: response.status,
      headers: response.headers,
      location: location && new URL(location, url).href,
      text: await response.text(),
    };
  }

  askJson(method, url, value) {
    const body = value && JSON.stringify(value);
    const headers = { accept: "application/json", ...(body && { "content-type": "application/json" }) };
    return this.ask(url, { method, headers, body });
  }

  // Sends the one form of a page: what is hidden in it, and these fields.
  submit(url, html, fields) {
    const form = html.match(/<form\b[^>]*\baction="([^"]+)"/);
    if (!form) throw new Error(`no form at ${url}: ${html}`);
    const hidden = [...html.matchAll(/<input type="hidden" name="([^"]+)" value="([^"]*)"/g)].map((found) => found.slice(1));
    const body = new URLSearchParams([...hidden, ...Object.entries(fields)]);
    return this.ask(new URL(form[1], url), { method: "POST", body });
  }

  cookiesFor(url) {
    const { hostname, pathname } = new URL(url);
    const fits = ({ host, path }) => host === hostname && `${pathname}/`.startsWith(path.replace(/\/?$/, "/"));
    return [...this.#cookies.values()].filter(fits).map(({ name, value }) => `${name}=${value}`).join("; ");
  }

  #keep({ hostname, pathname }, line) {
    const cookie = { host: hostname, ...parseCookie(line) };
    cookie.path ??= pathname.replace(/\/[^/]*$/, "") || "/";
    const key = [cookie.host, cookie.name, cookie.path].join(" ");
    if (cookie.isOver) this.#cookies.delete(key);
    else this.#cookies.set(key, cookie);
  }
}

// A Set-Cookie header.
export function parseCookie(line) {
  const [pair, ...rest] = line.split(";").map((part) => part.trim());
  const equals = pair.indexOf("=");
  const attributes = Object.fromEntries(
    rest.map((part) => part.split("=")).map(([name, value]) => [name.toLowerCase(), value ?? true]),
  );
  const age = attributes["max-age"];
  const isOver = age === undefined ? Date.parse(attributes.expires) <= Date.now() : Number(age) <= 0;
  return { name: pair.slice(0, equals), value: pair.slice(equals + 1), path: attributes.path, attributes, isOver };
}
