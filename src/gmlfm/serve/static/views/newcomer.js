// Somebody new: attributes and a few choices, and a list that answers each of them.

import * as api from "../api.js";
import { recommendations } from "../cards.js";
import { combobox } from "../combobox.js";
import { el, empty, fill, icon, plural, stays, titleOf, ICONS } from "../dom.js";
import { control, read } from "../fields.js";
import { go, hashOf, remember } from "../main.js";
import { showReasons } from "../reasons.js";

const WAIT = 120;
const N = 12;

export const itemSearch = (options) => combobox({
  find: async (words, signal) => (await api.items(words, 8, { signal })).items.map((item) => ({ key: item.item, text: titleOf(item), detail: item.title ? String(item.item) : "", item })),
  ...options,
});

export function view(place, asked) {
  let leave = () => {};
  const show = (next) => {
    leave();
    fill(place, "Loading ...", async () => {
      const schema = await api.schema();
      const { attributes, context } = read(next.query, schema);
      const { items, nGone } = await itemsOf(next.query.getAll("item"));
      const made = newcomer(schema, { attributes, context, items }, nGone);
      leave = made.leave;
      return made.content;
    });
  };
  show(asked);
  return show;
}

// An address may be of another run, which has other items; any other failure is told of.
async function itemsOf(ids) {
  const found = await Promise.all(ids.map((id) => api.item(id).catch((error) => {
    if (error.status === 404) return null;
    throw error;
  })));
  const items = found.filter(Boolean);
  return { items, nGone: found.length - items.length };
}

// given: {attributes, context, items: the cards of what was picked, in order}
function newcomer(schema, given, nGone) {
  const results = el("div", { class: "list" });
  const summary = el("p", { class: "hint changed" });
  const picked = el("ol", { class: "picked", "aria-label": "Picked so far, the latest last" });
  let before = null;
  let timer = 0;
  let asking = null;
  let wasPicked = null; // how, until the list has answered: {byKeys}

  const leave = () => {
    clearTimeout(timer);
    asking?.abort();
  };
  const changed = () => {
    remember(hashOf("new", "", { ...prefixed("user", given.attributes), ...prefixed("context", given.context), item: given.items.map((item) => item.item) }));
    clearTimeout(timer);
    timer = setTimeout(ask, WAIT);
  };
  const pick = (item) => {
    if (given.items.some((other) => other.item === item.item)) return;
    given.items.push(item);
    showPicked();
    changed();
  };
  const pickListed = (item) => {
    wasPicked = { byKeys: document.activeElement.matches(":focus-visible") };
    pick(item);
  };
  const drop = (item) => {
    const at = given.items.indexOf(item);
    given.items.splice(at, 1);
    showPicked();
    changed();
    const left = picked.querySelectorAll("button");
    if (left.length) left[Math.min(at, left.length - 1)].focus();
    else search.focusQuietly();
  };
  const showPicked = () => picked.replaceChildren(...given.items.map((item) => el("li", {},
    el("span", {}, titleOf(item)),
    el("button", { type: "button", class: "round small", "aria-label": `Take away ${titleOf(item)}`, onclick: () => drop(item) }, icon(...ICONS.close)))));

  async function ask() {
    asking?.abort();
    asking = new AbortController();
    const { signal } = asking;
    const body = whom(given);
    await fill(results, "Ranking ...", async (tell) => {
      const answer = await api.recommend({ ...body, n: N }, { signal });
      signal.throwIfAborted();
      const marks = compared(before, answer.items);
      const nNew = Object.values(marks).filter((mark) => mark.kind === "fresh").length;
      summary.textContent = before ? (nNew ? `${nNew} of ${answer.items.length} are new` : "The same items") : "";
      tell(`${plural(answer.items.length, "recommendation")}${before ? `, ${nNew} of them new` : ""}.`);
      before = answer.items.map((item) => item.item);
      if (!answer.items.length) return empty("Nothing is left", "No item could be recommended.");
      return [
        ...answer.notes.map((note) => el("p", { class: "notice" }, note)),
        recommendations(answer.items, {
          marks, take: pickListed, takeLabel: "Pick",
          open: (item) => showReasons(item, body, { links: [["What is near it on the map", hashOf("map", "", { item: item.item })]] }),
        }),
      ];
    });
    if (signal.aborted || !wasPicked) return;
    // The button that was pressed is gone with its card.
    if (document.activeElement === results) results.querySelector(".take")?.focus({ preventScroll: !wasPicked.byKeys });
    wasPicked = null;
  }

  const search = itemSearch({ label: "Items they chose", placeholder: "Search a title", chosen: ({ item }) => pick(item) });
  const fields = (role, title, values) => {
    const ours = schema.fields.filter((field) => field.role === role);
    return ours.length > 0 && el("fieldset", {}, el("legend", {}, title), ours.map((field) => control(field, values, changed)));
  };
  const form = el("form", { class: "panel newcomer stays", "aria-labelledby": "newcomer-title", onsubmit: (event) => event.preventDefault() },
    el("h2", { id: "newcomer-title" }, "About them"),
    fields("user", "Who they are", given.attributes), fields("context", "The occasion", given.context),
    el("fieldset", {}, el("legend", {}, "What they chose"), search, picked,
      nGone > 0 && el("p", { class: "hint" }, `${plural(nGone, "item")} of the address ${nGone === 1 ? "is" : "are"} not in this run.`),
      !schema.reads_history && el("p", { class: "hint" }, "This model does not read histories: what is picked may only be left out.")),
    el("button", { type: "button", class: "quiet", onclick: () => go(hashOf("new")) }, "Begin anew"));
  showPicked();
  ask();
  return {
    leave,
    content: [
      el("div", { class: "view-head" }, el("div", {}, el("h1", {}, "Try it as somebody new"),
        el("p", { class: "lead" }, "Nobody the model has ever met. Say something about them or pick an item: the list answers at once, without training."))),
      el("div", { class: "columns" }, stays(form),
        el("section", { class: "panel recommended", "aria-labelledby": "for-newcomer" }, el("div", { class: "panel-head" }, el("h2", { id: "for-newcomer" }, "Recommended for them"), summary), results)),
    ],
  };
}

// As it is now: what is asked must not change with what is clicked later.
function whom({ attributes, context, items }) {
  return { attributes: { ...attributes }, history: items.map((item) => item.item), ...(Object.keys(context).length ? { context: { ...context } } : {}) };
}

// By item: new in the list, or how far it has moved.
function compared(before, items) {
  if (!before) return {};
  const marks = {};
  items.forEach(({ item }, place) => {
    const was = before.indexOf(item);
    if (was < 0) marks[item] = { kind: "fresh", text: "new" };
    else if (was > place) marks[item] = { kind: "up", text: `\u25b2 ${was - place}` };
    else if (was < place) marks[item] = { kind: "down", text: `\u25bc ${place - was}` };
  });
  return marks;
}

const prefixed = (role, values) => Object.fromEntries(Object.entries(values).map(([name, given]) => [`${role}.${name}`, given]));
