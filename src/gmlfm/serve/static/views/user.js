// A user: what they did, what they are recommended, and why.

import * as api from "../api.js";
import { chips, history, recommendations } from "../cards.js";
import { combobox } from "../combobox.js";
import { announce, el, empty, fill, icon, plural, ICONS } from "../dom.js";
import { hashOf, remember } from "../main.js";
import { showReasons } from "../reasons.js";

const MANY = 40;
const AT_MOST = 2; // of one value, where variety is asked for

export const userSearch = (options) => combobox({
  find: async (words, signal) => (await api.users(words, 8, { signal })).users.map((found) => ({ key: found.user, text: String(found.user) })),
  ...options,
});

export async function view(place, asked) {
  const person = el("section", { class: "person", "aria-label": "User" });
  const go = (id) => {
    location.hash = hashOf("user", String(id));
  };
  const search = userSearch({ label: "Find a user", placeholder: "Search by id", chosen: (found) => go(found.key) });
  const surprise = el("button", { type: "button", class: "quiet", onclick: async () => {
    const { users } = await api.users("", MANY);
    if (users.length) go(users[Math.floor(Math.random() * users.length)].user);
  } }, icon(...ICONS.dice), "Surprise me");
  place.replaceChildren(
    el("div", { class: "view-head" },
      el("div", {}, el("h1", {}, "What would they like next?"), el("p", { class: "lead" }, "A user\u2019s history beside what the model recommends. Choose a recommendation to see the reason for its score.")),
      el("div", { class: "view-tools" }, search, surprise)),
    person);
  const show = ({ id, query }) => fill(person, "Asking for this user ...", () => (id ? oneUser(id, { filter: query.get("filter") ?? "", vary: query.get("vary") ?? "" }) : nobody(go)));
  await show(asked);
  return (next) => {
    person.replaceChildren();
    return show(next);
  };
}

async function nobody(go) {
  const { users, total } = await api.users("", 12);
  if (!users.length) return empty("No users", "This run has none. Try it as somebody new.");
  return el("div", { class: "panel start" },
    el("h2", {}, "Begin with one of these"),
    el("p", { class: "hint" }, `${plural(total, "user")} in all; these did most.`),
    el("div", { class: "pick" }, users.map(({ user }) => el("button", { type: "button", class: "pick-one", onclick: () => go(user) }, el("span", { class: "avatar", "aria-hidden": "true" }, initials(user)), String(user)))));
}

const initials = (user) => String(user).replace(/[^\p{L}\p{N}]/gu, "").slice(-2).toUpperCase() || "?";

async function oneUser(id, choices) {
  const [known, first, schema] = await Promise.all([api.user(id), recommended(id, choices), api.schema()]);
  const list = el("div", { class: "list" });
  const tools = filterForm(choices, schema, (changed) => {
    remember(hashOf("user", id, changed));
    fill(list, "Ranking ...", async () => listOf(id, await recommended(id, changed)));
  });
  list.replaceChildren(...listOf(id, first));
  announce(`${plural(known.total, "item")} in the history of ${id}, ${plural(first.items.length, "recommendation")}.`);
  return [
    el("div", { class: "panel person-head" },
      el("span", { class: "avatar large", "aria-hidden": "true" }, initials(id)),
      el("div", {}, el("h2", {}, String(id)), chips(known.attributes, "", 8)),
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
  const input = el("input", { type: "text", id: "filter", value: filter, placeholder: "price < 5000", spellcheck: "false", autocomplete: "off", "aria-label": "Filter" });
  const select = el("select", { "aria-label": "Variety", onchange: () => use({ filter: input.value.trim(), vary: select.value }) },
    el("option", { value: "" }, "any mixture"), fields.map((field) => el("option", { value: field.name, selected: field.name === vary }, `${AT_MOST} a ${field.name}`)));
  return el("form", { class: "filter", onsubmit: (event) => {
    event.preventDefault();
    use({ filter: input.value.trim(), vary: select.value });
  } }, fields.length > 0 && select, input, el("button", { type: "submit", class: "quiet" }, "Filter"));
}
