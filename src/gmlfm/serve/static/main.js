// The frame: views by the address behind the #, the run that is looked at, light and dark.

import * as api from "./api.js";
import { announce, el, icon, loading, problem, replace, runLabel, ICONS } from "./dom.js";

const VIEWS = {
  user: ["User", () => import("./views/user.js")],
  new: ["Somebody new", () => import("./views/newcomer.js")],
  map: ["Map", () => import("./views/map.js")],
  run: ["Run", () => import("./views/run.js")],
  compare: ["Compare", () => import("./views/compare.js")],
};
const main = document.getElementById("main");
let shown = null; // {name, run, asked, changed}; changed(asked): takes another address of the view, once it is made

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
  return { name: Object.hasOwn(VIEWS, name) ? name : "user", id, query: new URLSearchParams(query), hash: location.hash };
}

export function hashOf(name, id = "", query = {}) {
  const parameters = new URLSearchParams();
  for (const [key, given] of Object.entries(query)) {
    for (const part of [given].flat()) if (part !== undefined && part !== null && part !== "") parameters.append(key, part);
  }
  if (api.state.run && name !== "compare") parameters.set("run", api.state.run);
  return `#/${name}${id ? `/${encodeURIComponent(id)}` : ""}${parameters.size ? `?${parameters}` : ""}`;
}

// To what is shown from now on: a step that Back undoes.
export function go(hash) {
  if (location.hash === hash) show();
  else location.hash = hash;
}

// What is typed into a form stands in the address, too, but is no step.
export const remember = (hash) => history.replaceState(null, "", hash);

function dress(asked) {
  const title = VIEWS[asked.name][0];
  const who = asked.id || asked.query.get("user");
  document.title = `${who ? `${who} - ` : ""}${title} - gmlfm explorer`;
  document.getElementById("run-choice").hidden = asked.name === "compare" || document.getElementById("run").options.length < 2;
  document.querySelector(".brand").href = hashOf("user");
  for (const link of document.querySelectorAll("#tabs a")) {
    if (link.dataset.view === asked.name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
    link.href = hashOf(link.dataset.view);
  }
}

async function show() {
  const asked = address();
  const run = asked.query.get("run");
  if (run !== api.state.run && asked.name !== "compare") choose(run);
  dress(asked);
  const isSame = shown?.name === asked.name && shown.run === api.state.run;
  const mine = isSame ? shown : { name: asked.name, run: api.state.run, changed: null };
  mine.asked = asked;
  try {
    if (isSame) {
      await mine.changed?.(asked);
      return;
    }
    shown = mine;
    replace(main, loading());
    const [title, load] = VIEWS[asked.name];
    const module = await load();
    if (shown !== mine) return;
    const place = el("div", { class: `view view-${asked.name}` });
    replace(main, place);
    announce(`${title} is shown.`);
    const made = mine.asked;
    const changed = await module.view(place, made);
    mine.changed = changed;
    if (shown === mine && mine.asked.hash !== made.hash) await changed(mine.asked);
  } catch (error) {
    if (shown !== mine) return;
    shown = null;
    replace(main, problem(error, show));
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
    api.state.run = select.selectedIndex === 0 ? null : select.value;
    query.delete("run");
    go(hashOf(name, id, Object.fromEntries([...query.keys()].map((key) => [key, query.getAll(key)]))));
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
  show();
});
document.getElementById("tabs").addEventListener("click", (event) => {
  // A view that could not be made is made again; its address is there already.
  if (!shown && event.target.closest("a")?.hash === location.hash) show();
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
dressTheme();
showRuns().catch(() => {}).finally(show);
