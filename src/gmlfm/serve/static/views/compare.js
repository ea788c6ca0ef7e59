// Two runs side by side: what each recommends to one user, and what they agree on.

import * as api from "../api.js";
import { recommendations } from "../cards.js";
import { el, empty, fill, runLabel, table } from "../dom.js";
import { go, hashOf } from "../main.js";
import { showReasons } from "../reasons.js";
import { userSearch } from "./user.js";

const N = 10;

export async function view(place, asked) {
  const { runs } = await api.runs();
  const head = el("div", { class: "view-head" }, el("div", {}, el("h1", {}, "Two runs, one user"), el("p", { class: "lead" }, "What each would recommend, and where they agree.")));
  if (runs.length < 2) {
    place.replaceChildren(head, el("div", { class: "panel" }, empty("Only one run is served", "Serve two to see them side by side:"), el("pre", {}, el("code", {}, "gmlfm serve runs/first runs/second"))));
    return () => {};
  }
  const names = runs.map((run) => run.name);
  const known = (name, otherwise) => (names.includes(name) ? name : otherwise);
  const chosen = {};
  const body = el("div", { class: "compared" });
  const side = (which, label) => {
    const select = el("select", { id: `run-${which}`, onchange: () => use({ [which]: select.value }) }, runs.map((run) => el("option", { value: run.name }, runLabel(run))));
    return el("label", { class: "field", for: `run-${which}` }, el("span", {}, label), select);
  };
  const use = (change) => go(hashOf("compare", "", { ...chosen, ...change }));
  place.replaceChildren(head, el("div", { class: "panel toolbar" }, side("left", "One run"), side("right", "The other"),
    userSearch({ label: "For which user?", placeholder: "Search by id", run: () => chosen.left, chosen: ({ key }) => use({ user: String(key) }) })), body);
  const follow = ({ query }) => {
    Object.assign(chosen, { left: known(query.get("left"), names[0]), right: known(query.get("right"), names[1]), user: query.get("user") });
    for (const which of ["left", "right"]) place.querySelector(`#run-${which}`).value = chosen[which];
    const these = { ...chosen };
    fill(body, "Asking both ...", (tell) => (these.user ? both(these, tell) : first(these, (user) => use({ user: String(user) }))));
  };
  follow(asked);
  return follow;
}

async function first(chosen, use) {
  const { users } = await api.users("", 6, { run: chosen.left });
  return [await metrics(chosen), el("div", { class: "panel start" }, el("h2", {}, "Begin with one of these"), el("div", { class: "pick" }, users.map(({ user }) => el("button", { type: "button", class: "pick-one", onclick: () => use(user) }, String(user)))))];
}

async function both(chosen, tell) {
  const ask = (run) => api.recommend({ user: chosen.user, n: N }, { run }).then((answer) => answer.items);
  const [left, right] = await Promise.all([ask(chosen.left), ask(chosen.right)]);
  const ids = [left, right].map((items) => new Set(items.map((item) => item.item)));
  const shared = new Set([...ids[0]].filter((id) => ids[1].has(id)));
  tell(`${shared.size} of ${N} are recommended by both.`);
  const column = (name, items, others) => el("section", { class: "panel", "aria-label": `By ${name}` }, el("h2", {}, name),
    items.length ? recommendations(items, {
      label: `Recommendations of ${name}`, lit: shared, marks: marksOf(items, others), isMarkAside: true,
      open: (item) => showReasons(item, { user: chosen.user }, { run: name }),
    }) : empty("Nothing", "This run has nothing to recommend here."));
  return [
    el("p", { class: "agreement" }, el("strong", {}, `${shared.size} of ${Math.max(left.length, right.length)}`), ` in both lists for `, el("span", { class: "pill" }, String(chosen.user))),
    el("div", { class: "columns two" }, column(chosen.left, left, right), column(chosen.right, right, left)),
    await metrics(chosen),
  ];
}

function marksOf(items, others) {
  const places = new Map(others.map(({ item }, place) => [item, place]));
  const markOf = (item) => (places.has(item) ? { kind: "both", text: `also no. ${places.get(item) + 1}` } : { kind: "only", text: "only here" });
  return Object.fromEntries(items.map(({ item }) => [item, markOf(item)]));
}

async function metrics({ left, right }) {
  const cards = await Promise.all([left, right].map((run) => api.model(run).then(({ card }) => card)));
  const validation = cards.map((card) => card.validation ?? {});
  const names = Object.keys({ ...validation[0], ...validation[1] });
  const shown = (figures, name) => (typeof figures[name] === "number" ? figures[name].toFixed(4) : "");
  return el("section", { class: "panel", "aria-label": "Metrics of both" }, table("Metrics on validation", ["figure", left, right], [
    ["model", ...cards.map((card) => String(card.model ?? ""))], ["data", ...cards.map((card) => String(card.data?.name ?? ""))],
    ...names.map((name) => [name, ...validation.map((figures) => shown(figures, name))]),
  ]));
}
