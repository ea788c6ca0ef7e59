// An item as people see it: its title, what sets it apart from its title, and for a recommendation how strong it is and why.

import { el, titleOf, value, when, icon, ICONS } from "./dom.js";

const MOST_CHIPS = 4;

const words = (text) => ` ${(text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? []).join(" ")} `;

// Attributes that the title does not say already. opens: whether all of them can be seen where some are left out.
export function chips(attributes, title = "", most = MOST_CHIPS, { opens = false } = {}) {
  const said = words(title);
  const told = Object.entries(attributes ?? {}).filter(([, given]) => given !== null && given !== undefined && !(Array.isArray(given) && !given.length));
  const isSaid = (text) => text.trim() !== "" && said.includes(text);
  const fresh = told.filter(([, given]) => typeof given === "number" || !isSaid(words(value(given))));
  const shown = fresh.slice(0, most);
  if (!shown.length) return null;
  const left = `+${fresh.length - most}`;
  return el("ul", { class: "chips", "aria-label": "Attributes" },
    shown.map(([name, given]) => el("li", { class: "chip" }, el("span", { class: "chip-name" }, name), el("span", {}, value(given)))),
    fresh.length > most && (opens
      ? el("li", { class: "all" }, el("details", {}, el("summary", { class: "chip more" }, left, el("span", { class: "hidden" }, ` attributes of ${title}`)), attributeList(attributes)))
      : el("li", { class: "chip more" }, left)));
}

export const attributeList = (attributes) => el("dl", { class: "attributes" },
  Object.entries(attributes ?? {}).map(([name, given]) => el("div", {}, el("dt", {}, name), el("dd", {}, value(given)))));

// recommended: [{item, title, score, attributes, because}]; open(item, button); take(item): a second button;
// marks: by item a word to be shown, beside the score where isMarkAside; lit: items to be lit.
export function recommendations(recommended, { open, take, takeLabel = "Take it", marks = {}, isMarkAside = false, lit = new Set(), label = "Recommendations" }) {
  const scores = recommended.map((item) => item.score);
  const [least, most] = [Math.min(...scores), Math.max(...scores)];
  const share = (score) => (most > least ? 0.12 + (0.88 * (score - least)) / (most - least) : 1);
  return el("ol", { class: "cards", "aria-label": label }, recommended.map((item, place) => {
    const title = titleOf(item);
    const mark = marks[item.item] && el("span", { class: `mark ${marks[item.item].kind}` }, marks[item.item].text);
    return el("li", { class: `card${lit.has(item.item) ? " lit" : ""}`, "data-item": item.item },
      el("span", { class: "rank", "aria-hidden": "true" }, String(place + 1)),
      el("div", { class: "card-body" },
        el("div", { class: "card-head" },
          el("button", { type: "button", class: "card-title", onclick: (event) => open(item, event.currentTarget), "aria-haspopup": "dialog" },
            el("span", {}, title), el("span", { class: "hidden" }, ", why?")),
          !isMarkAside && mark),
        chips(item.attributes, title),
        item.because && el("p", { class: "because" }, el("span", { class: "because-word" }, "because of"), " ", item.because)),
      el("div", { class: "card-side" },
        el("span", { class: "score", title: "score" }, el("span", { class: "hidden" }, "score "), item.score.toFixed(2)),
        el("span", { class: "bar", "aria-hidden": "true", vars: { "--share": share(item.score).toFixed(3) } }),
        isMarkAside && mark,
        take && el("button", { type: "button", class: "take", onclick: () => take(item), "aria-label": `${takeLabel}: ${title}` }, icon(...ICONS.plus), el("span", {}, takeLabel))));
  }));
}

export function history(entries, total) {
  return [
    el("ol", { class: "timeline", "aria-label": "History, the latest first" }, entries.map((entry) => {
      const title = titleOf(entry);
      return el("li", {},
        el("div", { class: "timeline-head" },
          el("span", { class: "timeline-title" }, title),
          entry.observed && el("span", { class: "mark fresh" }, "just now"),
          entry.event && el("span", { class: "mark" }, entry.event)),
        el("div", { class: "timeline-foot" }, el("time", {}, when(entry.time)), chips(entry.attributes, title, 2, { opens: true })));
    })),
    total > entries.length && el("p", { class: "hint" }, `and ${total - entries.length} earlier`),
  ];
}
