// The frame: views by the address behind the #, the run that is looked at, light and dark.

import * as api from "./api.js";
import { announce, el, icon, problem, runLabel, ICONS } from "./dom.js";

const VIEWS = {
  user: ["User", () => import("./views/user.js")],
  new: ["Somebody new", () => import("./views/newcomer.js")],
  map: ["Map", () => import("./views/map.js")],
  run: ["Run", () => import("./views/run.js")],
  compare: ["Compare", () => import("./views/compare.js")],
};
const main = document.getElementById("main");
let shown = null; // {name, run, view}
let ours = null; // the address that this page set itself

// #/user/ID?item=X&run=Y -> {name: "user", id: "ID", query}
export function address() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/");
  let id = rest.join("/");
  try {
    id = decodeURIComponent(id);
  } catch {
    // shown as it is
  }
  return { name: name in VIEWS ? name : "user", id, query: new URLSearchParams(query) };
}

export function hashOf(name, id = "", query = {}) {
  const parameters = new URLSearchParams();
  for (const [key, given] of Object.entries(query)) {
    for (const part of [given].flat()) if (part !== undefined && part !== null && part !== "") parameters.append(key, part);
  }
  if (api.state.run && name !== "compare") parameters.set("run", api.state.run);
  return `#/${name}${id ? `/${encodeURIComponent(id)}` : ""}${parameters.size ? `?${parameters}` : ""}`;
}

// The address follows what is shown, without showing it again.
export function remember(hash) {
  if (location.hash === hash) return;
  ours = hash;
  history.replaceState(null, "", hash);
}

async function show() {
  const asked = address();
  const run = asked.query.get("run");
  if (run !== api.state.run && asked.name !== "compare") choose(run);
  const [title, load] = VIEWS[asked.name];
  document.getElementById("run-choice").hidden = asked.name === "compare" || document.getElementById("run").options.length < 2;
  document.title = `${title} - gmlfm explorer`;
  for (const link of document.querySelectorAll("#tabs a")) {
    if (link.dataset.view === asked.name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
    link.href = hashOf(link.dataset.view);
  }
  const isSame = shown?.name === asked.name && shown.run === api.state.run;
  const mine = { name: asked.name, run: api.state.run };
  if (!isSame) {
    shown = mine;
    main.replaceChildren(el("p", { class: "loading", role: "status" }, "Loading ..."));
  }
  try {
    const module = await load();
    if (!isSame && shown === mine) {
      const place = el("div", { class: `view view-${asked.name}` });
      main.replaceChildren(place);
      mine.changed = await module.view(place, asked);
      announce(`${title} is shown.`);
    } else if (isSame) shown.changed?.(asked);
  } catch (error) {
    main.replaceChildren(problem(error, () => {
      shown = null;
      show();
    }));
  }
}

function choose(name) {
  api.state.run = name || null;
  document.getElementById("run").value = name || document.getElementById("run").options[0]?.value || "";
}

async function showRuns() {
  const { runs } = await api.runs();
  const select = document.getElementById("run");
  select.replaceChildren(...runs.map((run) => el("option", { value: run.name }, runLabel(run))));
  const only = runs[0];
  document.getElementById("run-name").replaceChildren(...(runs.length === 1 ? [el("span", { class: "pill" }, only.model), el("span", { class: "run-data" }, only.data)] : []));
  select.addEventListener("change", () => {
    const { name, id, query } = address();
    const isFirst = select.selectedIndex === 0;
    api.state.run = isFirst ? null : select.value;
    query.delete("run");
    location.hash = hashOf(name, name === "user" ? id : "", name === "user" ? {} : Object.fromEntries(query));
    if (address().query.get("run") === shown?.run) return;
    show();
  });
  choose(address().query.get("run"));
}

function dressTheme() {
  const button = document.getElementById("theme");
  const isDark = document.documentElement.dataset.theme === "dark";
  button.setAttribute("aria-label", isDark ? "Change to light colours" : "Change to dark colours");
  button.replaceChildren(icon(...(isDark ? ICONS.sun : ICONS.moon)));
}

function setTheme(theme, isChosen) {
  document.documentElement.dataset.theme = theme;
  if (isChosen) {
    try {
      localStorage.setItem("gmlfm-theme", theme);
    } catch {
      // for this time only
    }
  }
  dressTheme();
  document.dispatchEvent(new CustomEvent("gmlfm-theme"));
}

document.getElementById("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark", true));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("gmlfm-theme");
  } catch {
    // nothing is kept
  }
  if (!chosen) setTheme(event.matches ? "dark" : "light", false);
});
window.addEventListener("hashchange", () => {
  document.getElementById("reasons").close();
  if (location.hash === ours) {
    ours = null;
    return;
  }
  ours = null;
  show();
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
dressTheme();
showRuns().catch(() => {}).finally(show);
