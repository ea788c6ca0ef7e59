// A search field with a list of what was found: arrows, Enter, Escape, and what screen readers need.

import { el, announce, icon, plural, ICONS } from "./dom.js";

let count = 0;
const WAIT = 130; // milliseconds without a key before the question goes out

// find(words, signal) -> [{key, text, detail}]; chosen({key, ...}). Returns the element; its `input` is the field.
export function combobox({ label, placeholder = "", find, chosen, keepsText = false, isLabelHidden = false }) {
  count += 1;
  const id = `search-${count}`;
  const list = el("ul", { class: "found", id: `${id}-list`, role: "listbox", "aria-label": label, hidden: true });
  const input = el("input", {
    id, type: "text", role: "combobox", autocomplete: "off", spellcheck: "false", placeholder,
    "aria-autocomplete": "list", "aria-expanded": "false", "aria-controls": `${id}-list`,
  });
  const box = el("div", { class: "search" },
    el("label", { for: id, class: isLabelHidden ? "hidden" : "" }, label),
    el("div", { class: "search-field" }, icon(...ICONS.search), input, list));
  let options = [];
  let active = -1;
  let timer = 0;
  let asking = null;

  const show = (isOpen) => {
    list.hidden = !isOpen;
    input.setAttribute("aria-expanded", String(isOpen));
    if (!isOpen) {
      active = -1;
      input.removeAttribute("aria-activedescendant");
    }
  };

  const mark = (place) => {
    active = place;
    [...list.children].forEach((row, number) => row.setAttribute("aria-selected", String(number === place)));
    if (place >= 0 && list.children[place]) {
      input.setAttribute("aria-activedescendant", list.children[place].id);
      list.children[place].scrollIntoView({ block: "nearest" });
    } else input.removeAttribute("aria-activedescendant");
  };

  const take = (place) => {
    const option = options[place];
    if (!option) return;
    input.value = keepsText ? option.text : "";
    show(false);
    chosen(option);
  };

  const note = (text) => list.replaceChildren(el("li", { class: "nothing", role: "option", "aria-disabled": "true" }, text));

  async function search() {
    asking?.abort();
    asking = new AbortController();
    const { signal } = asking;
    try {
      options = await find(input.value.trim(), signal);
    } catch (error) {
      if (error.name === "AbortError") return;
      options = [];
      note(error.message);
      show(true);
      return;
    }
    if (signal.aborted || document.activeElement !== input) return;
    list.replaceChildren(...options.map((option, place) => el("li", {
      id: `${id}-${place}`, role: "option", "aria-selected": "false",
      onmousedown: (event) => event.preventDefault(),
      onclick: () => take(place),
    }, el("span", { class: "found-text" }, option.text), option.detail && el("span", { class: "found-detail" }, option.detail))));
    if (!options.length) note("Nothing found.");
    show(true);
    announce(options.length ? `${plural(options.length, "suggestion")}; go through them with the arrow keys.` : "Nothing found.");
  }

  const later = () => {
    clearTimeout(timer);
    timer = setTimeout(search, WAIT);
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
      if (!list.hidden && options.length) take(Math.max(active, 0));
    } else if (event.key === "Escape" && !list.hidden) {
      event.stopPropagation();
      show(false);
    }
  });
  box.input = input;
  return box;
}
