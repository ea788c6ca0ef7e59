// The run: how good it is, how it was learned, what it was made from, and what it is not for.

import * as api from "../api.js";
import { chart, colour, isNarrow, PALETTE } from "../charts.js";
import { asTable, el, number, plural, table, value } from "../dom.js";

const NAMES = { hr: "hit rate", ndcg: "NDCG", rmse: "RMSE", mae: "MAE", auc: "AUC", mrr: "MRR", recall: "recall" };
const named = (metric) => {
  const [name, cutoff] = metric.split("@");
  return (NAMES[name] ?? name) + (cutoff ? ` @ ${cutoff}` : "");
};

export async function view(place) {
  const [{ card }, learned, schema] = await Promise.all([api.model(), api.curve(), api.schema()]);
  const drawing = el("div", { class: "chart" });
  const epochs = learned.curve;
  const metrics = Object.keys(learned.validation);
  place.replaceChildren(...[
    el("div", { class: "view-head" }, el("div", {}, el("h1", {}, `${card.model ?? "The model"} on ${card.data?.name ?? "its data"}`),
      el("p", { class: "lead" }, `${plural(schema.n_users, "user")}, ${plural(schema.n_items, "item")}; ${schema.reads_history ? "what users did before counts" : "histories are not read"}.`))),
    el("ul", { class: "tiles", "aria-label": "Metrics" }, metrics.map((metric) => tile(named(metric), learned.validation[metric].toFixed(3), `validation, ${learned.validation_protocol}`)),
      epochs.length > 0 && tile("best epoch", String(learned.best_epoch), `of ${epochs.length} seen`)),
    el("div", { class: "columns run-columns" },
      el("section", { class: "panel", "aria-labelledby": "curve-title" }, el("h2", { id: "curve-title" }, "How it was learned"),
        epochs.length ? [drawing, asTable("The same as a table", table("Loss and metrics by epoch", ["epoch", "loss", ...metrics.map(named)], epochs.map((epoch) => [String(epoch.epoch), fixed(epoch.loss), ...metrics.map((metric) => fixed(epoch.validation?.[metric]))])))]
          : el("p", { class: "hint" }, "This model is fitted in one step; there is no curve.")),
      el("section", { class: "panel", "aria-labelledby": "card-title" }, el("h2", { id: "card-title" }, "Card"), facts(card))),
    limits(card),
    el("section", { class: "panel", "aria-labelledby": "fields-title" }, el("h2", { id: "fields-title" }, "What it reads"), el("div", { class: "fields" }, schema.fields.map(fieldCard))),
  ].filter(Boolean));
  if (epochs.length) drawCurve(drawing, epochs, metrics, learned.best_epoch);
  return () => {};
}

const fixed = (given) => (typeof given === "number" ? given.toFixed(4) : "");
const tile = (name, figure, note) => el("li", { class: "tile" }, el("span", { class: "tile-name" }, name), el("strong", {}, figure), el("span", { class: "hint" }, note));

function drawCurve(place, epochs, metrics, best) {
  const x = epochs.map((epoch) => epoch.epoch);
  const isSmall = isNarrow();
  return chart(place, `Training loss and validation metrics over ${plural(epochs.length, "epoch")}. The table below has the same.`, () => ({
    data: [
      { type: "scatter", mode: "lines+markers", name: "loss", x, y: epochs.map((epoch) => epoch.loss), yaxis: "y2", line: { color: colour("muted"), width: 2, dash: "dot" } },
      ...metrics.map((metric, place_) => ({ type: "scatter", mode: "lines+markers", name: named(metric), x, y: epochs.map((epoch) => epoch.validation?.[metric] ?? null), line: { color: PALETTE()[place_ % 11], width: 3 } })),
    ],
    layout: {
      height: 340, legend: isSmall ? { orientation: "h", y: -0.22, yanchor: "top" } : { orientation: "h", y: 1.12 }, hovermode: "x unified", xaxis: { title: { text: isSmall ? "" : "epoch" }, dtick: x.length <= 12 ? 1 : undefined },
      yaxis: { title: { text: isSmall ? "" : "validation" }, rangemode: "normal" }, yaxis2: { title: { text: isSmall ? "" : "loss" }, overlaying: "y", side: "right", showgrid: false, tickmode: "auto", nticks: 6, tickformat: ".2f" },
      shapes: [{ type: "line", x0: best, x1: best, yref: "paper", y0: 0, y1: 1, line: { color: colour("line-strong"), dash: "dash", width: 1 } }],
    },
  }));
}

const flat = (given, prefix = "") => Object.entries(given).flatMap(([name, part]) =>
  part !== null && typeof part === "object" && !Array.isArray(part) ? flat(part, `${prefix}${name} `) : [[`${prefix}${name}`.replaceAll("_", " "), part]]);
// These stand elsewhere on the page.
const HIDDEN = new Set(["validation", "validation_protocol", "best_epoch", "reads_history", "limits", "updates", "fields"]);

function facts(card) {
  const { settings = {}, versions = {}, ...about } = Object.fromEntries(Object.entries(card).filter(([name]) => !HIDDEN.has(name)));
  const told = (part) => flat(part).filter(([, given]) => given !== null && given !== "");
  const more = [...told(settings), ...told(versions)];
  const happened = told(about).filter(([, given]) => given !== false && given !== 0);
  const row = ([name, part]) => el("div", {}, el("dt", {}, name), el("dd", {}, typeof part === "boolean" ? (part ? "yes" : "no") : value(Array.isArray(part) ? part.filter((one) => typeof one !== "object") : part)));
  return [el("dl", { class: "facts" }, happened.map(row)),
    more.length > 0 && el("details", { class: "as-table" }, el("summary", {}, "All settings and versions"), el("dl", { class: "facts" }, more.map(row)))];
}

function limits(card) {
  const lines = (card.limits ?? []).filter((line) => typeof line === "string");
  return lines.length > 0 && el("section", { class: "panel limits", "aria-labelledby": "limits-title" }, el("h2", { id: "limits-title" }, "Limits of use"), el("ul", {}, lines.map((line) => el("li", {}, line))));
}

function fieldCard(field) {
  const most = Math.max(...field.categories.map(({ count }) => count), 1);
  return el("article", { class: "field-card" },
    el("h3", {}, field.name, el("span", { class: "hint" }, ` ${field.role}\u2019s ${field.kind}`)),
    field.kind === "number"
      ? el("p", {}, field.median === null ? "no values" : `from ${number(field.least)} to ${number(field.most)}, half below ${number(field.median)}`)
      : [el("ul", { class: "counts", "aria-label": `Commonest of ${field.name}` }, field.categories.slice(0, 5).map(({ value: name, count }) => el("li", {},
          el("span", { class: "count-name" }, name), el("span", { class: "bar", "aria-hidden": "true", vars: { "--share": (count / most).toFixed(3) } }), el("span", { class: "count" }, number(count))))),
        field.n_categories > 5 && el("p", { class: "hint" }, `${number(field.n_categories)} values in all`)]);
}
