// Creates a first API key, which needs a script. The key is shown once and stored nowhere.
"use strict";

const byId = (id) => document.getElementById(id);

for (const element of document.querySelectorAll("[data-with-script]")) element.hidden = false;
for (const element of document.querySelectorAll("[data-without-script]")) element.hidden = true;

// Calls the API. An error response is thrown as its problem.
async function ask(method, path, headers, body) {
  let response;
  try {
    response = await fetch(path, { method, headers, body });
  } catch {
    throw { detail: "The service could not be reached. Try again." };
  }
  if (response.ok) return response.json();
  if (response.status === 401) return leave();
  throw await response.json().catch(() => ({ detail: `The service answered ${response.status}.` }));
}

// Goes to the sign-in page; the returned promise never resolves, so no code after it runs.
function leave() {
  location.replace("/signin");
  return new Promise(() => {});
}

const form = byId("key-form");
if (form) {
  // One Idempotency-Key for each filled-in form: sending it again after a lost answer creates no second key.
  let attempt = null;
  form.addEventListener("input", () => (attempt = null));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    attempt ??= Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
    const button = byId("key-submit");
    button.disabled = true;
    showProblem(null);
    try {
      const headers = { "Content-Type": "application/json", "Idempotency-Key": attempt };
      showKey(await ask("POST", "/api/admin/api-keys", headers, JSON.stringify(input())));
    } catch (problem) {
      showProblem(problem);
    }
    button.disabled = false;
  });
}

function input() {
  const fields = new FormData(form);
  return { name: fields.get("name"), scopes: fields.getAll("scopes"), expires_days: Number(fields.get("expires_days")) };
}

function showProblem(problem) {
  const lines = problem?.errors?.map((error) => `${error.pointer.split("/")[1]}: ${error.detail}`);
  byId("key-problem").textContent = problem ? (lines ?? [problem.detail]).join("\n") : "";
}

function showKey(made) {
  byId("made-name").textContent = made.name;
  byId("made-key").textContent = made.key;
  byId("made-call").textContent = `curl -H "Authorization: Bearer ${made.key}" ${form.dataset.baseUrl}/api/auth/session`;
  form.hidden = true;
  byId("made").hidden = false;
  byId("made-heading").focus();
}

for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", async () => {
    const source = byId(button.dataset.copy);
    getSelection().selectAllChildren(source);
    // Browsers allow the clipboard only on https and localhost; elsewhere the text is only selected.
    const copied = await navigator.clipboard?.writeText(source.textContent).then(() => true, () => false);
    button.nextElementSibling.textContent = copied ? "Copied." : "Selected: copy it with Ctrl+C or ⌘C.";
  });
}
