// A user: what they did, what they are recommended, and why.

import * as api from "../api.js";
import { chips, history, recommendations } from "../cards.js";
import { combobox } from "../combobox.js";
import { el, empty, fill, icon, plural, problem, replace, ICONS } from "../dom.js";
import { go, hashOf, remember } from "../main.js";
import { showReasons } from "../reasons.js";

const AT_MOST = 2; // of one value, where variety is asked for

// run(): of which run the users are, where it is not the one that is looked at.
export const userSearch = ({ run = () => undefined, ...options }) => combobox({
  find: async (words, signal) => (await api.users(words, 8, { signal, run: run() })).users.map((found) => ({ key: found.user, text: String(found.user) })),
  ...options,
});

export function view(place, asked) {
  const person = el("section", { class: "person", "aria-label": "User" });
  const lead = el("p", { class: "lead" }, "A user\u2019s history beside what the model recommends. Choose a recommendation to see the reason for its score.");
  const choose = (id) => go(hashOf("user", String(id)));
  const surprise = async () => {
    try {
      const { total } = await api.users("", 1);
      const { users } = await api.users("", 1, { offset: Math.floor(Math.random() * total) });
      if (users.length) choose(users[0].user);
    } catch (error) {
      replace(person, problem(error, surprise));
    }
  };
  place.replaceChildren(
    el("div", { class: "view-head" },
      el("div", {}, el("h1", {}, "What would they like next?"), lead),
      el("div", { class: "view-tools" },
        userSearch({ label: "Find a user", placeholder: "Search by id", chosen: (found) => choose(found.key) }),
        el("button", { type: "button", class: "quiet", onclick: surprise }, icon(...ICONS.dice), "Surprise me"))),
    person);
  const show = ({ id, query }) => {
    lead.hidden = id !== "";
    replace(person);
    fill(person, "Asking for this user ...", () => (id ? oneUser(id, { filter: query.get("filter") ?? "", vary: query.get("vary") ?? "" }) : nobody(choose)));
  };
  show(asked);
  return show;
}

async function nobody(choose) {
  const { users, total } = await api.users("", 12);
  if (!users.length) return empty("No users", "This run has none. Try it as somebody new.");
  return el("div", { class: "panel start" },
    el("h2", {}, "Begin with one of these"),
    el("p", { class: "hint" }, `${plural(total, "user")} in all; these did most.`),
    el("div", { class: "pick" }, users.map(({ user }) => el("button", { type: "button", class: "pick-one", onclick: () => choose(user) }, el("span", { class: "avatar", "aria-hidden": "true" }, initials(user)), String(user)))));
}

const initials = (user) => String(user).replace(/[^\p{L}\p{N}]/gu, "").slice(-2).toUpperCase() || "?";

async function oneUser(id, choices) {
  const [known, schema] = await Promise.all([api.user(id), api.schema()]);
  const list = el("div", { class: "list" });
  // By itself, so that a filter that is refused leaves the history, and the filter to be mended.
  const rank = (chosen) => fill(list, "Ranking ...", async (tell) => {
    const answer = await recommended(id, chosen);
    tell(`${plural(known.total, "item")} in the history of ${id}, ${plural(answer.items.length, "recommendation")}.`);
    return listOf(id, answer);
  });
  const tools = filterForm(choices, schema, (chosen) => {
    remember(hashOf("user", id, chosen));
    rank(chosen);
  });
  rank(choices);
  return [
    el("div", { class: "panel person-head" },
      el("span", { class: "avatar large", "aria-hidden": "true" }, initials(id)),
      el("div", { class: "person-name" }, el("h2", {}, String(id)), chips(known.attributes, "", 8)),
      el("p", { class: "figures" }, el("span", {}, el("strong", {}, String(known.total)), known.total === 1 ? " item so far" : " items so far"), !known.known && el("span", { class: "mark" }, "not in training")),
      el("a", { class: "button quiet", href: hashOf("map", "", { user: id }) }, icon(...ICONS.pin), "On the map")),
    el("div", { class: "columns" },
      el("section", { class: "panel history", "aria-labelledby": "history-title" }, el("h2", { id: "history-title" }, "History"),
        known.history.length ? history(known.history, known.total) : empty("Nothing yet", "Recommendations come from what is known of the user and from what is popular.")),
      el("section", { class: "panel recommended", "aria-labelledby": "recommended-title" },
        el("div", { class: "panel-head" }, el("h2", { id: "recommended-title" }, "Recommended"), tools), list)),
  ];
}

const recommended = (id, { filter, vary }) =>
  api.recommend({ user: id, n: 12, ...(filter ? { filter } : {}), ...(vary ? { caps: { [vary]: AT_MOST } } : {}) });

function listOf(id, answer) {
  if (!answer.items.length) return [empty("Nothing is left", "No item passes the filter that this user has not had.")];
  return [
    ...(answer.notes ?? []).map((note) => el("p", { class: "notice" }, note)),
    recommendations(answer.items, {
      open: (item) => showReasons(item, { user: id }, { links: [["What is near it on the map", hashOf("map", "", { item: item.item, user: id })]] }),
    }),
  ];
}

function filterForm({ filter, vary }, schema, use) {
  const fields = schema.fields.filter((field) => field.role === "item" && field.kind !== "number");
  const input = el("input", { type: "text", id: "filter", value: filter, placeholder: exampleOf(schema), spellcheck: "false", autocomplete: "off" });
  const select = el("select", { id: "vary", onchange: () => use({ filter: input.value.trim(), vary: select.value }) },
    el("option", { value: "" }, "no limit"), fields.map((field) => el("option", { value: field.name, selected: field.name === vary }, `at most ${AT_MOST} per ${field.name}`)));
  return el("form", { class: "filter", onsubmit: (event) => {
    event.preventDefault();
    use({ filter: input.value.trim(), vary: select.value });
  } },
  fields.length > 0 && el("label", { class: "filter-field", for: "vary" }, el("span", {}, "Variety"), select),
  el("label", { class: "filter-field grows", for: "filter" }, el("span", {}, "Filter"), input),
  el("button", { type: "submit", class: "quiet" }, "Filter"));
}

// A filter that these data could have.
function exampleOf(schema) {
  const fields = schema.fields.filter((field) => field.role === "item" && /^[A-Za-z_]\w*$/.test(field.name));
  const measured = fields.find((field) => field.kind === "number" && field.median !== null);
  if (measured) return `${measured.name} < ${Number(measured.median.toPrecision(2))}`;
  const named = fields.find((field) => field.kind === "category" && field.categories.length > 0 && !field.categories[0].value.includes("'"));
  return named ? `${named.name} = '${named.categories[0].value}'` : "";
}
