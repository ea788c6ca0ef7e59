// Somebody new: attributes and a few choices, and a list that answers each of them.

import * as api from "../api.js";
import { recommendations } from "../cards.js";
import { combobox } from "../combobox.js";
import { announce, el, empty, fill, icon, number, plural, titleOf, ICONS } from "../dom.js";
import { hashOf, remember } from "../main.js";
import { showReasons } from "../reasons.js";

const WAIT = 120;
const N = 12;

export const itemSearch = (options) => combobox({
  find: async (words, signal) => (await api.items(words, 8, { signal })).items.map((item) => ({ key: item.item, text: titleOf(item), detail: item.title ? String(item.item) : "", item })),
  ...options,
});

export async function view(place, asked) {
  const schema = await api.schema();
  const given = { attributes: {}, context: {}, items: [] }; // items: the cards of what was picked, in order
  read(asked.query, schema, given);
  given.items = (await Promise.all(asked.query.getAll("item").map((id) => api.item(id).catch(() => null)))).filter(Boolean);
  const results = el("div", { class: "list" });
  const summary = el("p", { class: "hint changed" });
  const picked = el("ol", { class: "picked", "aria-label": "Picked so far, the latest last" });
  let before = null;
  let timer = 0;

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
  const drop = (item) => {
    given.items = given.items.filter((other) => other.item !== item.item);
    showPicked();
    changed();
    search.input.focus();
  };
  const showPicked = () => picked.replaceChildren(...given.items.map((item) => el("li", {},
    el("span", {}, titleOf(item)),
    el("button", { type: "button", class: "round small", "aria-label": `Take away ${titleOf(item)}`, onclick: () => drop(item) }, icon(...ICONS.close)))));

  async function ask() {
    await fill(results, "Ranking ...", async () => {
      const body = whom(given);
      const answer = await api.recommend({ ...body, n: N });
      const marks = compared(before, answer.items);
      const nNew = Object.values(marks).filter((mark) => mark.kind === "fresh").length;
      summary.textContent = before ? (nNew ? `${nNew} of ${answer.items.length} are new` : "The same items") : "";
      announce(`${plural(answer.items.length, "recommendation")}${before ? `, ${nNew} of them new` : ""}.`);
      before = answer.items.map((item) => item.item);
      if (!answer.items.length) return empty("Nothing is left", "No item could be recommended.");
      return [
        ...answer.notes.map((note) => el("p", { class: "notice" }, note)),
        recommendations(answer.items, {
          marks, take: pick, takeLabel: "Pick",
          open: (item) => showReasons(item, body, { links: [["What is near it on the map", hashOf("map", "", { item: item.item })]] }),
        }),
      ];
    });
  }

  const search = itemSearch({ label: "Items they chose", placeholder: "Search a title", chosen: ({ item }) => pick(item) });
  const fields = (role, title) => {
    const ours = schema.fields.filter((field) => field.role === role);
    return ours.length > 0 && el("fieldset", {}, el("legend", {}, title), ours.map((field) => control(field, role === "user" ? given.attributes : given.context, changed)));
  };
  const form = el("form", { class: "panel newcomer", "aria-labelledby": "newcomer-title", onsubmit: (event) => event.preventDefault() },
    el("h2", { id: "newcomer-title" }, "About them"),
    fields("user", "Who they are"), fields("context", "The occasion"),
    el("fieldset", {}, el("legend", {}, "What they chose"), search, picked,
      !schema.reads_history && el("p", { class: "hint" }, "This model does not read histories: what is picked may only be left out.")),
    el("button", { type: "button", class: "quiet", onclick: () => {
      location.hash = "#/new";
      Object.assign(given, { attributes: {}, context: {}, items: [] });
      form.reset();
      before = null;
      showPicked();
      ask();
    } }, "Begin anew"));
  place.replaceChildren(
    el("div", { class: "view-head" }, el("div", {}, el("h1", {}, "Try it as somebody new"),
      el("p", { class: "lead" }, "Nobody the model has ever met. Say something about them or pick an item: the list answers at once, without training."))),
    el("div", { class: "columns" }, form,
      el("section", { class: "panel recommended", "aria-labelledby": "for-newcomer" }, el("div", { class: "panel-head" }, el("h2", { id: "for-newcomer" }, "Recommended for them"), summary), results)));
  showPicked();
  await ask();
  return () => {};
}

function whom(given) {
  return {
    attributes: given.attributes, history: given.items.map((item) => item.item),
    ...(Object.keys(given.context).length ? { context: given.context } : {}),
  };
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

function read(query, schema, given) {
  for (const field of schema.fields) {
    const texts = query.getAll(`${field.role}.${field.name}`);
    if (!texts.length || field.role === "item") continue;
    const values = field.role === "user" ? given.attributes : given.context;
    if (field.kind === "number") {
      if (Number.isFinite(Number(texts[0]))) values[field.name] = Number(texts[0]);
    } else values[field.name] = field.kind === "set" ? texts : texts[0];
  }
}

let count = 0;

function control(field, values, changed) {
  count += 1;
  const id = `field-${count}`;
  const set = (given) => {
    if (given === null) delete values[field.name];
    else values[field.name] = given;
    changed();
  };
  const current = values[field.name];
  let input;
  if (field.kind === "number") {
    input = el("input", { id, type: "number", step: "any", inputmode: "decimal", value: current ?? "", placeholder: field.median === null ? "" : `about ${number(field.median)}`,
      oninput: () => set(input.value === "" || !Number.isFinite(input.valueAsNumber) ? null : input.valueAsNumber) });
  } else if (field.kind === "set") {
    const chosen = new Set(current ?? []);
    return el("div", { class: "field", role: "group", "aria-label": field.name }, el("span", {}, field.name),
      el("div", { class: "toggles" }, field.categories.slice(0, 18).map(({ value }) => el("button", { type: "button", class: "toggle", "aria-pressed": String(chosen.has(value)), onclick: (event) => {
        if (!chosen.delete(value)) chosen.add(value);
        event.currentTarget.setAttribute("aria-pressed", String(chosen.has(value)));
        set(chosen.size ? [...chosen] : null);
      } }, value))));
  } else if (field.n_categories > field.categories.length) {
    input = el("input", { id, type: "text", list: `${id}-list`, value: current ?? "", placeholder: "not known", autocomplete: "off", onchange: () => set(input.value.trim() || null) });
    return el("label", { class: "field", for: id }, el("span", {}, field.name), input, el("datalist", { id: `${id}-list` }, field.categories.map(({ value }) => el("option", { value }))));
  } else {
    const sorted = field.categories.map(({ value }) => value).sort((one, other) => one.localeCompare(other, "en", { numeric: true }));
    input = el("select", { id, onchange: () => set(input.value || null) }, el("option", { value: "" }, "not known"),
      sorted.map((value) => el("option", { value, selected: current === value }, value)));
  }
  return el("label", { class: "field", for: id }, el("span", {}, field.name), input);
}
