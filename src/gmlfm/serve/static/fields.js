// A form made from a run's own fields: a control for each, and their values in an address.

import { el, number } from "./dom.js";

const MOST_TOGGLES = 18;

// ?user.age=20-29&context.channel=web -> {attributes: {age: "20-29"}, context: {channel: "web"}}
export function read(query, schema) {
  const given = { attributes: {}, context: {} };
  for (const field of schema.fields) {
    const texts = query.getAll(`${field.role}.${field.name}`);
    if (!texts.length || field.role === "item") continue;
    const values = field.role === "user" ? given.attributes : given.context;
    if (field.kind === "number") {
      if (Number.isFinite(Number(texts[0]))) values[field.name] = Number(texts[0]);
    } else values[field.name] = field.kind === "set" ? texts : texts[0];
  }
  return given;
}

let count = 0;

// values[field.name] follows what is chosen, and changed() is told.
export function control(field, values, changed) {
  count += 1;
  const id = `field-${count}`;
  const set = (given) => {
    if (given === null) delete values[field.name];
    else values[field.name] = given;
    changed();
  };
  const current = values[field.name];
  if (field.kind === "set") return members(id, field, new Set(current ?? []), (chosen) => set(chosen.size ? [...chosen] : null));
  let input;
  let more = null;
  if (field.kind === "number") {
    input = el("input", { id, type: "number", step: "any", inputmode: "decimal", value: current ?? "", placeholder: field.median === null ? "" : `about ${number(field.median)}`,
      oninput: () => set(input.value === "" || !Number.isFinite(input.valueAsNumber) ? null : input.valueAsNumber) });
  } else if (field.n_categories > field.categories.length) {
    [input, more] = suggesting(id, field.categories, "not known", (text) => set(text || null));
    input.value = current ?? "";
  } else {
    // An address may name a value that is not among them.
    const names = new Set([...field.categories.map(({ value }) => value), ...(current === undefined ? [] : [current])]);
    const sorted = [...names].sort((one, other) => one.localeCompare(other, "en", { numeric: true }));
    input = el("select", { id, onchange: () => set(input.value || null) }, el("option", { value: "" }, "not known"),
      sorted.map((value) => el("option", { value, selected: current === value }, value)));
  }
  return el("label", { class: "field", for: id }, el("span", {}, field.name), input, more);
}

// A field for any text, with the commonest values to choose from.
function suggesting(id, categories, placeholder, given) {
  const input = el("input", { id, type: "text", list: `${id}-list`, placeholder, autocomplete: "off", onchange: () => given(input.value.trim()) });
  return [input, el("datalist", { id: `${id}-list` }, categories.map(({ value }) => el("option", { value })))];
}

function members(id, field, chosen, use) {
  const usual = field.categories.slice(0, MOST_TOGGLES).map(({ value }) => value);
  const toggles = el("div", { class: "toggles" });
  const show = () => toggles.replaceChildren(...[...new Set([...usual, ...chosen])].map(toggle));
  const toggle = (value) => el("button", { type: "button", class: "toggle", "aria-pressed": String(chosen.has(value)), onclick: (event) => {
    if (!chosen.delete(value)) chosen.add(value);
    event.currentTarget.setAttribute("aria-pressed", String(chosen.has(value)));
    use(chosen);
  } }, value);
  show();
  const parts = [el("span", {}, field.name), toggles];
  if (field.n_categories > usual.length) {
    const [input, list] = suggesting(id, field.categories.slice(MOST_TOGGLES), "another one", (text) => {
      input.value = "";
      if (!text || chosen.has(text)) return;
      chosen.add(text);
      show();
      use(chosen);
    });
    input.setAttribute("aria-label", `Another ${field.name}`);
    parts.push(input, list);
  }
  return el("div", { class: "field", role: "group", "aria-label": field.name }, parts);
}
