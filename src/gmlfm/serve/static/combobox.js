// A search field with a list of what was found: arrows, Enter, Escape, and what screen readers need.

import { el, announce, icon, plural, ICONS } from "./dom.js";

let count = 0;
const WAIT = 130; // milliseconds without a key before the question goes out

// find(words, signal) -> [{key, text, detail}]; chosen({key, ...}). Returns the element; its `input` is the field, and
// focusQuietly() goes there without opening the list.
export function combobox({ label, placeholder = "", find, chosen }) {
  count += 1;
  const id = `search-${count}`;
  // A press on the list, also on its scrollbar, must not take the focus from the field, which would close it.
  const list = el("ul", { class: "found", id: `${id}-list`, role: "listbox", "aria-label": label, hidden: true, onmousedown: (event) => event.preventDefault() });
  const input = el("input", {
    id, type: "text", role: "combobox", autocomplete: "off", spellcheck: "false", placeholder,
    "aria-autocomplete": "list", "aria-expanded": "false", "aria-controls": `${id}-list`,
  });
  const box = el("div", { class: "search" },
    el("label", { for: id }, label),
    el("div", { class: "search-field" }, icon(...ICONS.search), input, list));
  let options = [];
  let found = null; // the words that the options are for
  let active = -1;
  let timer = 0;
  let asking = null;
  let isQuiet = false;

  const words = () => input.value.trim();

  const mark = (place) => {
    active = place;
    [...list.children].forEach((row, number) => row.setAttribute("aria-selected", String(number === place)));
    if (place >= 0 && list.children[place]) {
      input.setAttribute("aria-activedescendant", list.children[place].id);
      list.children[place].scrollIntoView({ block: "nearest" });
    } else input.removeAttribute("aria-activedescendant");
  };

  const show = (isOpen) => {
    list.hidden = !isOpen;
    input.setAttribute("aria-expanded", String(isOpen));
    if (!isOpen) mark(-1);
  };

  const take = (place) => {
    const option = options[place];
    if (!option) return;
    input.value = "";
    show(false);
    chosen(option);
  };

  function offer(asked, given, ...rows) {
    options = given;
    found = asked;
    list.replaceChildren(...rows);
    mark(-1);
    show(true);
    list.scrollTop = 0;
  }

  const note = (text) => el("li", { class: "nothing", role: "option", "aria-disabled": "true", "aria-selected": "false" }, text);

  async function search() {
    clearTimeout(timer);
    asking?.abort();
    asking = new AbortController();
    const { signal } = asking;
    const asked = words();
    let given;
    try {
      given = await find(asked, signal);
    } catch (error) {
      if (!signal.aborted) offer(null, [], note(error.message));
      return;
    }
    if (signal.aborted || document.activeElement !== input) return;
    const rows = given.map((option, place) => el("li", {
      id: `${id}-${place}`, role: "option", "aria-selected": "false", onclick: () => take(place),
    }, el("span", { class: "found-text" }, option.text), option.detail && el("span", { class: "found-detail" }, option.detail)));
    offer(asked, given, ...(rows.length ? rows : [note("Nothing found.")]));
    announce(given.length ? `${plural(given.length, "suggestion")}; go through them with the arrow keys.` : "Nothing found.");
  }

  // Enter is meant for the words that stand there, of which the answer may not have come yet.
  async function enter() {
    if (!words() && (list.hidden || found !== "")) return;
    if (list.hidden || found !== words()) await search();
    if (!list.hidden && found === words()) take(Math.max(active, 0));
  }

  const later = () => {
    clearTimeout(timer);
    if (!isQuiet) timer = setTimeout(search, WAIT);
  };
  input.addEventListener("input", later);
  input.addEventListener("focus", later);
  input.addEventListener("blur", () => {
    clearTimeout(timer);
    asking?.abort();
    show(false);
  });
  input.addEventListener("keydown", (event) => {
    const moves = { ArrowDown: 1, ArrowUp: -1 };
    if (event.key in moves) {
      event.preventDefault();
      if (list.hidden) search();
      else if (options.length) mark((active + moves[event.key] + options.length + (active < 0 && event.key === "ArrowUp" ? 1 : 0)) % options.length);
    } else if (event.key === "Enter") {
      event.preventDefault();
      enter();
    } else if (event.key === "Escape" && !list.hidden) {
      event.stopPropagation();
      show(false);
    }
  });
  box.input = input;
  box.focusQuietly = () => {
    isQuiet = true;
    input.focus();
    isQuiet = false;
  };
  return box;
}
