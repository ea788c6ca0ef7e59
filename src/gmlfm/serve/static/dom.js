// Elements, numbers and dates. Text of the data only ever becomes text (textContent), never markup.

const SVG = "http://www.w3.org/2000/svg";

// el("button", {class: "primary", onclick: go}, "Go", anotherElement)
export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "vars") for (const [key, part] of Object.entries(value)) element.style.setProperty(key, part);
    else if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function icon(...paths) {
  const drawing = document.createElementNS(SVG, "svg");
  drawing.setAttribute("class", "icon");
  drawing.setAttribute("viewBox", "0 0 24 24");
  drawing.setAttribute("aria-hidden", "true");
  for (const path of paths) {
    const line = document.createElementNS(SVG, "path");
    line.setAttribute("d", path);
    drawing.append(line);
  }
  return drawing;
}

export const ICONS = {
  close: ["M6 6l12 12M18 6L6 18"],
  plus: ["M12 5v14M5 12h14"],
  search: ["M10.500 4a6.500 6.500 0 1 1 0 13 6.500 6.500 0 0 1 0-13zM15.500 15.500L20 20"],
  dice: ["M4 8l8-4.500L20 8v8l-8 4.500L4 16zM4 8l8 4.500L20 8M12 12.500v8"],
  why: ["M9 9a3 3 0 1 1 4.500 2.600c-1 .6-1.500 1.200-1.500 2.400M12 18v.01"],
  pin: ["M12 21s-6-5.500-6-11a6 6 0 0 1 12 0c0 5.500-6 11-6 11zM12 8v4M10 10h4"],
  sun: ["M12 8a4 4 0 1 1 0 8 4 4 0 0 1 0-8zM12 2.500v2M12 19.500v2M2.500 12h2M19.500 12h2M5.300 5.300l1.400 1.400M17.300 17.300l1.400 1.400M5.300 18.700l1.400-1.400M17.300 6.700l1.400-1.400"],
  moon: ["M20 14.500A8.500 8.500 0 0 1 9.500 4a8.500 8.500 0 1 0 10.500 10.500z"],
};

export function announce(text) {
  document.getElementById("announce").textContent = text;
}

const NUMBER = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });
const DATE = new Intl.DateTimeFormat("en", { year: "numeric", month: "short", day: "numeric", timeZone: "UTC" });

export const number = (value) => NUMBER.format(value);
export const signed = (value) => (value < 0 ? "\u2212" : "+") + Math.abs(value).toFixed(Math.abs(value) < 0.1 ? 3 : 2);
export const plural = (n, one, many = `${one}s`) => `${number(n)} ${n === 1 ? one : many}`;

// Times are numbers on the scale of the data: seconds since 1970, or thousandths, millionths, ... of them; or just an order.
export function when(time) {
  if (time === null || time === undefined) return "";
  const size = Math.abs(time);
  const seconds = size >= 1e17 ? time / 1e9 : size >= 1e14 ? time / 1e6 : size >= 1e11 ? time / 1e3 : time;
  return Math.abs(seconds) >= 1e8 ? DATE.format(new Date(seconds * 1000)) : number(time);
}

export function value(given) {
  if (given === null || given === undefined) return "not known";
  if (Array.isArray(given)) return given.length ? given.map(value).join(", ") : "none";
  return typeof given === "number" ? number(given) : String(given);
}

export const runLabel = (run) => (run.name === run.model ? run.name : `${run.name} \u00b7 ${run.model}`);

export const titleOf = (item) => (item.title === null || item.title === undefined || item.title === "" ? String(item.item) : String(item.title));

// "item.genre = Cinema x user.age = 20-29" in the words of a reader.
export const readable = (label) => label.replaceAll("item = (unknown)", "any new item").replaceAll("user = (unknown)", "any user")
  .replaceAll(" x ", " \u00d7 ").replaceAll("item.", "").replaceAll("user.", "user\u2019s ");

export const shortened = (text, most) => (text.length > most ? `${text.slice(0, most - 1).trimEnd()}\u2026` : text);

// Titles of one catalogue often begin alike and differ at the end.
export function shortenedWithin(text, most) {
  if (text.length <= most) return text;
  const end = Math.floor((most - 1) * 0.45);
  return `${text.slice(0, most - 1 - end).trimEnd()}\u2026${text.slice(text.length - end).trimStart()}`;
}

export function table(caption, headings, rows, { isHidden = false } = {}) {
  return el("div", { class: "table-box", tabindex: "0", role: "region", "aria-label": caption },
    el("table", {},
      el("caption", { class: isHidden ? "hidden" : "" }, caption),
      el("thead", {}, el("tr", {}, headings.map((heading) => el("th", { scope: "col" }, heading)))),
      el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell, place) =>
        place === 0 ? el("th", { scope: "row" }, cell) : el("td", { class: typeof cell === "number" ? "number" : "" }, typeof cell === "number" ? number(cell) : cell)))))));
}

export const asTable = (summary, ...content) => el("details", { class: "as-table" }, el("summary", {}, summary), content);

export const loading = (text = "Loading ...") => el("p", { class: "loading", role: "status" }, el("span", { class: "spinner", "aria-hidden": "true" }), text);

export const empty = (title, ...text) => el("div", { class: "empty" }, el("p", { class: "empty-title" }, title), el("p", {}, text));

export function problem(error, again) {
  return el("div", { class: "problem-box", role: "alert" },
    el("p", { class: "problem-title" }, "That did not work"), el("p", {}, error.message),
    again && el("button", { type: "button", class: "quiet", onclick: again }, "Try again"));
}

// If what has the focus goes away, its place takes it: the next Tab would otherwise begin at the top of the page.
export function replace(place, ...content) {
  const held = place.contains(document.activeElement);
  place.replaceChildren(...content.flat(Infinity).filter(Boolean));
  if (!held || place.contains(document.activeElement)) return;
  if (!place.hasAttribute("tabindex")) place.tabIndex = -1;
  place.focus({ preventScroll: true });
}

// Shows what a promise brings; what is asked later wins over what comes later. make(tell): what it tells is announced with
// what it brings.
const turns = new WeakMap();
export async function fill(place, text, make) {
  const turn = (turns.get(place) ?? 0) + 1;
  turns.set(place, turn);
  place.setAttribute("aria-busy", "true");
  if (!place.childElementCount) place.replaceChildren(loading(text));
  let content;
  let said = "";
  try {
    content = await make((words) => {
      said = words;
    });
  } catch (error) {
    if (error.name !== "AbortError") content = problem(error, () => fill(place, text, make));
  }
  if (turns.get(place) !== turn) return;
  place.removeAttribute("aria-busy");
  if (content === undefined) return;
  replace(place, content);
  if (said && place.isConnected) announce(said);
}

// A panel that stays in view while the page is scrolled; one that is taller than the window is scrolled to its end first.
export function stays(panel) {
  new ResizeObserver(() => panel.style.setProperty("--height", `${panel.offsetHeight}px`)).observe(panel);
  return panel;
}
