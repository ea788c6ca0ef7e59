// Why an item was recommended: the parts of its score as a waterfall, and as a table.

import * as api from "./api.js";
import { chips } from "./cards.js";
import { chart, colour, escaped, isNarrow } from "./charts.js";
import { asTable, el, fill, icon, readable, shortenedWithin, signed, table, titleOf, ICONS } from "./dom.js";

const MOST_PARTS = 11;

const KINDS = { earlier: ["because of what they did before", "gain"], fields: ["who they are \u00d7 what it is", "accent"], rest: ["all else", "muted"] };

const named = (part) => (part.kind === "earlier" ? String(part.title ?? part.item ?? part.label) : readable(part.label));
// What any user without a row and any item without one have together tells nothing of these two.
function isOfAnybody(part) {
  const sides = part.kind === "fields" ? part.label.split(" x ") : [];
  return sides.length > 1 && sides.every((side) => side.endsWith("= (unknown)"));
}
const isOfItem = (part) => part.fields.some((field) => field === "item" || field.startsWith("item."));
const sum = (parts) => parts.reduce((total, part) => total + part.value, 0);

// The weightiest parts by name, first the earlier items; then the rest, and what would be the same for any other item.
function steps(parts) {
  const shared = parts.filter((part) => part.kind === "fields" && !isOfItem(part));
  const isRest = (part) => part.kind === "rest" || isOfAnybody(part);
  const telling = parts.filter((part) => !isRest(part) && !shared.includes(part)).sort((one, other) => Math.abs(other.value) - Math.abs(one.value));
  const weightiest = telling.slice(0, MOST_PARTS);
  const left = [...parts.filter((part) => isRest(part) && !shared.includes(part)), ...telling.slice(MOST_PARTS)];
  const isEarlier = (part) => part.kind === "earlier" || (part.kind === "rest" && part.label.includes("earlier"));
  const [earlier, others] = [left.filter(isEarlier), left.filter((part) => !isEarlier(part))];
  const rows = (kind) => weightiest.filter((part) => part.kind === kind).map((part) => ({ text: named(part), value: part.value, kind }));
  const shown = rows("earlier");
  if (earlier.length) shown.push({ text: "other earlier items", value: sum(earlier), kind: "earlier" });
  shown.push(...rows("fields"));
  if (others.length) shown.push({ text: "all else", value: sum(others), kind: "rest" });
  if (shared.length) shown.push({ text: "the same for every item", value: sum(shared), kind: "rest" });
  return shown;
}

function headline(parts) {
  const best = parts.filter((part) => part.kind === "earlier" && part.value > 0).sort((one, other) => other.value - one.value)[0];
  const earlier = sum(parts.filter((part) => part.kind === "earlier" || (part.kind === "rest" && part.label.includes("earlier"))));
  if (best) {
    return [el("span", { class: "because-word" }, "Because of"), " ", el("strong", {}, best.title ?? String(best.item ?? best.label)),
      el("span", { class: "hint" }, ` ${signed(best.value)}; all earlier items together ${signed(earlier)}.`)];
  }
  const first = parts.filter((part) => part.kind === "fields" && part.value > 0 && isOfItem(part) && !isOfAnybody(part)).sort((one, other) => other.value - one.value)[0];
  return first ? [el("span", { class: "because-word" }, "Because of"), " ", el("strong", {}, readable(first.label)), el("span", { class: "hint" }, ` ${signed(first.value)}.`)] : [];
}

// Titles are seldom told apart by their beginnings: as many lines as there is room for, and what is cut is cut in the middle.
function inLines(text, { width, most }) {
  const lines = [""];
  for (const word of shortenedWithin(text, width * most - 8).split(" ")) {
    const last = lines.at(-1);
    if (last && last.length + word.length >= width && lines.length < most) lines.push(shortenedWithin(word, width));
    else lines[lines.length - 1] = `${last} ${shortenedWithin(word, width)}`.trimStart();
  }
  return lines.map(escaped).join("<br>");
}

// Bars that begin where the one above ends.
function waterfall(place, rows, score) {
  const label = isNarrow() ? { width: 25, most: 3 } : { width: 44, most: 2 };
  const steps_ = [...rows, { text: "score", value: score, kind: "score" }];
  const bases = [];
  rows.reduce((total, row) => {
    bases.push(total);
    return total + row.value;
  }, 0);
  return chart(place, `Waterfall: what adds up to the score ${score.toFixed(2)}. The table below has the same.`, () => ({
    data: [{
      type: "bar", orientation: "h", base: [...bases, 0], x: steps_.map((row) => row.value), y: [...steps_.keys()],
      text: steps_.map((row) => (row.kind === "score" ? `<b>${score.toFixed(2)}</b>` : signed(row.value))), textposition: "outside", cliponaxis: false, textfont: { color: colour("text") },
      customdata: steps_.map((row) => escaped(row.text)), hovertemplate: "%{customdata}<br>%{text}<extra></extra>",
      marker: { color: steps_.map((row) => colour(row.kind === "score" ? "text" : row.value < 0 ? "loss" : KINDS[row.kind][1])), cornerradius: 4 },
    }],
    layout: {
      height: 40 + (8 + 14 * label.most) * steps_.length, margin: { l: 8, r: 52, t: 4, b: 24 }, bargap: 0.3, showlegend: false,
      yaxis: { autorange: "reversed", tickvals: [...steps_.keys()], ticktext: steps_.map((row) => (row.kind === "score" ? "<b>score</b>" : inLines(row.text, label))), ticks: "", tickfont: { size: 12 }, showgrid: false, zeroline: false },
      xaxis: { zeroline: true, zerolinewidth: 2 },
    },
  }));
}

function key(rows) {
  const kinds = Object.keys(KINDS).filter((kind) => rows.some((row) => row.kind === kind));
  const entries = kinds.map((kind) => KINDS[kind]);
  if (rows.some((row) => row.value < 0)) entries.push(["speaks against it", "loss"]);
  return el("ul", { class: "key", "aria-label": "Colours" }, entries.map(([text, name]) => el("li", { vars: { "--swatch": `var(--${name})` } }, text)));
}

// whom: {user} or {attributes, history, context}, as for /recommend. links: [[text, hash]].
export function showReasons(item, whom, { run, links = [] } = {}) {
  const dialog = document.getElementById("reasons");
  const body = el("div", { class: "drawer-body" });
  const title = titleOf(item);
  // A sheet as tall as the dialog: what is pressed outside of it is not the dialog's empty part, but the page behind.
  dialog.replaceChildren(el("div", { class: "drawer-sheet" },
    el("header", { class: "drawer-head" },
      el("div", {}, el("p", { class: "eyebrow" }, "Why this one?"), el("h2", { id: "reasons-title" }, title)),
      el("button", { type: "button", class: "round", "aria-label": "Close", onclick: () => dialog.close() }, icon(...ICONS.close))),
    el("div", { class: "drawer-about" }, el("span", { class: "pill" }, `score ${item.score.toFixed(2)}`), chips(item.attributes, "", 99)),
    body));
  if (!dialog.open) dialog.showModal();
  dialog.onclick = (event) => {
    if (event.target === dialog) dialog.close();
  };
  fill(body, "Adding up the score ...", async () => {
    const answer = await api.explain({ ...whom, item: item.item }, run ? { run } : {});
    const rows = steps(answer.parts);
    const place = el("div", { class: "chart" });
    const drawn = el("figure", {}, key(rows), place, el("figcaption", { class: "hint" }, "Each bar begins where the one above ends; together they are the score, exactly."));
    queueMicrotask(() => waterfall(place, rows, answer.score));
    return [
      el("p", { class: "headline" }, headline(answer.parts)),
      drawn,
      asTable("The same as a table", table(`What the score ${answer.score.toFixed(3)} consists of`, ["part", "adds"], [...rows.map((row) => [row.text, signed(row.value)]), ["score", answer.score.toFixed(3)]])),
      links.length > 0 && el("p", { class: "links" }, links.map(([text, hash]) => el("a", { href: hash, onclick: () => dialog.close() }, text))),
    ];
  });
}
