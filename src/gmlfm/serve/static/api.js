// Questions to the service. An error's message is the sentence that the service gave.

const TOKEN = "gmlfm-token";
const WAITS = 60; // while something is being made, such as the map

export const state = { run: null };
let asking = null;

const token = () => {
  try {
    return sessionStorage.getItem(TOKEN);
  } catch {
    return state.token ?? null;
  }
};

function keep(given) {
  state.token = given;
  try {
    sessionStorage.setItem(TOKEN, given);
  } catch {
    // kept for as long as the page is
  }
}

// One dialog for all that wait for it.
function askForToken(problem) {
  asking ??= new Promise((resolve) => {
    const dialog = document.getElementById("token");
    const input = document.getElementById("token-input");
    document.getElementById("token-problem").textContent = problem;
    input.value = "";
    dialog.addEventListener("close", () => {
      keep(input.value.trim());
      asking = null;
      resolve();
    }, { once: true });
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    if (!dialog.open) dialog.showModal();
    input.focus();
  });
  return asking;
}

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

async function request(path, { query = {}, body, run = state.run, signal } = {}) {
  const parameters = new URLSearchParams();
  for (const [name, given] of Object.entries({ ...query, run })) {
    for (const part of [given].flat()) if (part !== undefined && part !== null && part !== "") parameters.append(name, part);
  }
  const address = parameters.size ? `${path}?${parameters}` : path;
  for (let left = WAITS; ; left -= 1) {
    const headers = { Accept: "application/json" };
    const used = token();
    if (used) headers.Authorization = `Bearer ${used}`;
    if (body !== undefined) headers["Content-Type"] = "application/json";
    let answer;
    try {
      answer = await fetch(address, { method: body === undefined ? "GET" : "POST", headers, body: body && JSON.stringify(body), signal });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Error("The service does not answer. Is it still running?");
    }
    if (answer.status === 401) {
      // An answer that comes late may be about a token that has been replaced meanwhile.
      if (used === token()) await askForToken(used ? "That is not the token of this service." : "");
      continue;
    }
    if (answer.status === 503 && left > 0 && answer.headers.has("Retry-After")) {
      await pause(1000 * Math.min(5, Math.max(0.3, Number(answer.headers.get("Retry-After")) || 1)));
      continue;
    }
    const content = await answer.json().catch(() => ({}));
    signal?.throwIfAborted();
    if (!answer.ok) throw Object.assign(new Error(content.detail ?? `The service answered ${answer.status}.`), { status: answer.status });
    forgetIfReplaced(content.run);
    return content;
  }
}

const kept = new Map();
const untold = new Set(); // runs that cannot tell because of what
const checks = new Map(); // of each run, by its name

// A reload puts another run in the place of one, and the next answer says so.
function forgetIfReplaced(run) {
  if (!run?.check) return;
  const before = checks.get(run.name);
  checks.set(run.name, run.check);
  if (before === undefined || before === run.check) return;
  kept.clear();
  untold.clear();
}

// What does not change while a run is served is asked for once.
function once(path, options = {}) {
  const key = JSON.stringify([path, options.query ?? {}, options.run ?? state.run]);
  if (!kept.has(key)) {
    const answer = request(path, options);
    kept.set(key, answer);
    answer.catch(() => kept.delete(key));
  }
  return kept.get(key);
}

const named = (id) => encodeURIComponent(id);

export const runs = () => request("/runs", { run: null });
export const schema = () => once("/schema");
export const model = (run) => once("/model", run ? { run } : {});
export const curve = () => once("/curve");
export const users = (q, limit = 8, { offset, ...options } = {}) => request("/users", { query: { q, limit, offset }, ...options });
export const user = (id, options = {}) => request(`/users/${named(id)}`, options);
export const items = (q, limit = 8, options = {}) => request("/items", { query: { q, limit }, ...options });
export const item = (id) => request(`/items/${named(id)}`);

// With the earlier item behind each, where the model can tell.
export async function recommend(body, options = {}) {
  const run = options.run ?? state.run;
  const because = !untold.has(run) && (await once("/schema", { run })).reads_history;
  try {
    return await request("/recommend", { body: { ...body, because }, ...options });
  } catch (error) {
    if (!because || !error.message.startsWith("because ")) throw error;
    untold.add(run);
    return request("/recommend", { body, ...options });
  }
}

export const explain = (body, options = {}) => request("/explain", { body, ...options });
export const similar = (id, n = 8) => request("/similar", { body: { item: id, n } });
export const map = (color, n = 2500) => drawn(() => request("/map", { query: { color, n } }));
export const place = (ids) => drawn(() => request("/map/place", { query: { items: ids } }));

// The map is drawn when it is asked for first, which takes some seconds.
async function drawn(ask) {
  for (let left = WAITS; ; left -= 1) {
    const answer = await ask();
    if (answer.is_drawn) return answer;
    if (!left) throw new Error("The map takes long to be drawn. Try again later.");
    await pause(1000);
  }
}
