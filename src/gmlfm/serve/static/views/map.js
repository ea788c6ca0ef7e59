// All items in the learned metric: near means alike to the model, whatever the attributes say.

import * as api from "../api.js";
import { attributeList, chips } from "../cards.js";
import { chart, colour, isNarrow, PALETTE } from "../charts.js";
import { announce, asTable, el, empty, fill, loading, number, plural, problem, shortened, table, titleOf } from "../dom.js";
import { hashOf, remember } from "../main.js";
import { escaped } from "../reasons.js";
import { itemSearch } from "./newcomer.js";
import { userSearch } from "./user.js";

const MOST_GROUPS = 11;
const REST = "all others";

export async function view(place, asked) {
  const schema = await api.schema();
  const fields = schema.fields.filter((field) => field.role === "item");
  const categories = fields.filter((field) => field.kind !== "number" && field.n_categories > 1);
  const usual = (categories.find((field) => field.n_categories <= MOST_GROUPS) ?? categories[0] ?? fields[0])?.name ?? "";
  const shown = { color: usual, user: null, item: null, traces: [], similar: [] };
  const drawing = el("div", { class: "chart map-chart" });
  const note = el("div", { class: "map-note" });
  const side = el("section", { class: "panel map-side", "aria-label": "The item that was chosen", "aria-live": "polite" });
  const words = el("div", {});
  const select = el("select", { id: "map-color", onchange: () => use({ color: select.value }) }, fields.map((field) => el("option", { value: field.name }, field.name)));

  const use = (change) => {
    Object.assign(shown, change);
    remember(hashOf("map", "", { color: shown.color === usual ? "" : shown.color, user: shown.user, item: shown.item }));
    return draw(change);
  };

  async function draw(change = {}) {
    select.value = shown.color;
    drawing.setAttribute("aria-busy", "true");
    try {
      if (!shown.points || "color" in change) {
        if (!shown.points) note.replaceChildren(loading("Drawing the map; the first time takes some seconds ..."));
        const answer = await api.map(shown.color);
        Object.assign(shown, { points: answer.points, field: answer.field, total: answer.n_items });
      }
      if ("user" in change) shown.overlay = shown.user ? await overlayOf(shown.user) : null;
      if ("item" in change) await chooseItem(shown.item);
      note.replaceChildren();
      await plot();
      tell();
    } catch (error) {
      note.replaceChildren(problem(error, () => draw(change)));
    } finally {
      drawing.removeAttribute("aria-busy");
    }
  }

  async function chooseItem(id) {
    shown.similar = [];
    if (!id) {
      side.replaceChildren(empty("Choose an item", "A click on a point, or a search, shows what the model holds to be most alike."));
      return;
    }
    await fill(side, "Asking what is near ...", async () => {
      const [item, { items }] = await Promise.all([api.item(id), api.similar(id)]);
      const { points } = await api.place([item.item, ...items.map((other) => other.item)]);
      shown.similar = points;
      return [
        el("p", { class: "eyebrow" }, "Chosen"), el("h2", {}, titleOf(item)), attributeList(item.attributes),
        el("h3", {}, "Most alike"),
        el("ol", { class: "near" }, items.map((other) => el("li", {},
          el("div", {}, el("button", { type: "button", class: "link", onclick: () => use({ item: other.item }) }, titleOf(other)), chips(other.attributes, titleOf(other), 2)),
          el("span", { class: "score" }, el("span", { class: "hidden" }, "distance "), other.distance.toFixed(2))))),
      ];
    });
  }

  function plot() {
    return chart(drawing, `A map of ${plural(shown.points.length, "item")} in two dimensions, coloured by ${shown.color || "nothing"}. Its groups are in the table below it.`, () => {
      const data = shown.field?.kind === "number" ? [scale(shown)] : groups(shown);
      if (shown.overlay) data.push(overlay("history", shown.overlay.history, { symbol: "diamond", size: 12, color: colour("text") }), overlay("recommended", shown.overlay.recommended, { symbol: "star", size: 17, color: colour("star"), edge: colour("text") }));
      if (shown.similar.length) data.push(overlay("most alike", shown.similar.slice(1), { symbol: "circle-open", size: 14, color: colour("text") }), overlay("chosen", shown.similar.slice(0, 1), { symbol: "circle-open", size: 22, color: colour("loss") }));
      shown.traces = data;
      const axis = { visible: false, range: [-1.06, 1.06] };
      const legend = isNarrow() ? { orientation: "h", y: -0.02, yanchor: "top" } : { x: 1.01, y: 1, yanchor: "top" };
      return {
        data,
        layout: { height: isNarrow() ? 560 : Math.max(470, Math.min(760, innerHeight - 370)), margin: { l: 4, r: 4, t: 4, b: 4 }, xaxis: axis, yaxis: axis, legend: { ...legend, itemsizing: "constant", font: { size: 12 } }, hovermode: "closest", dragmode: isNarrow() ? false : "pan", uirevision: "map" },
        config: { scrollZoom: !isNarrow() },
      };
    }).then(() => {
      if (drawing.listens) return;
      drawing.listens = true;
      drawing.on("plotly_click", ({ points }) => points[0]?.customdata !== undefined && use({ item: points[0].customdata }));
    });
  }

  function tell() {
    const counts = new Map();
    for (const { color } of shown.points) counts.set(groupOf(color), (counts.get(groupOf(color)) ?? 0) + 1);
    const rows = [...counts].sort((one, other) => other[1] - one[1]).slice(0, 40);
    words.replaceChildren(
      el("p", { class: "hint" }, `${number(shown.points.length)} of ${plural(shown.total ?? shown.points.length, "item")} are shown. Near means alike to the model; the axes mean nothing by themselves.`),
      asTable("The same as a table", shown.field?.kind === "number" ? numbersTable(shown) : table(`Items shown, by ${shown.color}`, [shown.color, "items"], rows),
        shown.overlay && table(`What is marked for ${shown.user}`, ["item", "as"], [...shown.overlay.history.map((item) => [titleOf(item), "history"]), ...shown.overlay.recommended.map((item) => [titleOf(item), "recommended"])])));
    announce(`The map is coloured by ${shown.color}.`);
  }

  const forUser = el("span", { class: "map-user" });
  const showUser = () => forUser.replaceChildren(...(shown.user ? [el("span", { class: "pill" }, String(shown.user)), el("button", { type: "button", class: "link", onclick: () => {
    use({ user: null });
    showUser();
  } }, "take away")] : []));
  place.replaceChildren(
    el("div", { class: "view-head" }, el("div", {}, el("h1", {}, "The catalogue as the model sees it"), el("p", { class: "lead" }, "Each point is an item. Items that the model holds to be alike stand together."))),
    el("div", { class: "panel toolbar" },
      fields.length > 0 && el("label", { class: "field", for: "map-color" }, el("span", {}, "Coloured by"), select),
      userSearch({ label: "Mark a user\u2019s items", placeholder: "Search by id", chosen: ({ key }) => use({ user: key }).then(showUser) }),
      itemSearch({ label: "Find an item", placeholder: "Search a title", chosen: ({ key }) => use({ item: key }) }), forUser),
    el("div", { class: "columns map-columns" }, el("section", { class: "panel", "aria-label": "Map" }, note, drawing, words), side));
  const change = { color: fields.some((field) => field.name === asked.query.get("color")) ? asked.query.get("color") : usual, user: asked.query.get("user"), item: asked.query.get("item") };
  await use(change);
  showUser();
  return (next) => use({ color: next.query.get("color") || usual, user: next.query.get("user"), item: next.query.get("item") }).then(showUser);
}

async function overlayOf(user) {
  const [known, ranked] = await Promise.all([api.user(user), api.recommend({ user, n: 10 })]);
  const history = known.history.slice(0, 30).map((item) => item.item);
  const recommended = ranked.items.map((item) => item.item);
  const { points } = await api.place([...history, ...recommended]);
  const places = new Map(points.map((point) => [point.item, point]));
  const placed = (ids) => ids.map((id) => places.get(id)).filter(Boolean);
  return { history: placed(history), recommended: placed(recommended) };
}

const groupOf = (color) => (color === null || color === undefined ? "not known" : Array.isArray(color) ? (color[0] ?? "none") : String(color));
const hover = (point, name) => `${escaped(shortened(titleOf(point), 60))}<br>${escaped(name)}`;

function groups({ points, field }) {
  const named = field?.values ?? [...new Set(points.map((point) => groupOf(point.color)))];
  const shown = named.slice(0, MOST_GROUPS);
  const by = new Map(shown.map((name) => [name, []]));
  const rest = [];
  for (const point of points) (by.get(groupOf(point.color)) ?? rest).push(point);
  const palette = PALETTE();
  const traces = [...by].filter(([, some]) => some.length).map(([name, some]) => trace(name, some, palette[shown.indexOf(name)]));
  return rest.length ? [trace(REST, rest, palette[11]), ...traces] : traces;
}

const trace = (name, points, color) => ({
  type: "scatter", mode: "markers", name: escaped(shortened(name, 24)), x: points.map((point) => point.x), y: points.map((point) => point.y),
  text: points.map((point) => hover(point, groupOf(point.color))), customdata: points.map((point) => point.item), hovertemplate: "%{text}<extra></extra>",
  marker: { size: 6, color, opacity: 0.82 },
});

function scale({ points, color }) {
  const known = points.filter((point) => typeof point.color === "number");
  const sorted = known.map((point) => point.color).sort((one, other) => one - other);
  // By order, not by size: a few large values would leave one colour for all others.
  const order = new Map(sorted.map((given, place) => [given, place / Math.max(1, sorted.length - 1)]));
  const quarters = [0, 0.25, 0.5, 0.75, 1];
  const texts = quarters.map((share) => (sorted.length ? number(sorted[Math.floor(share * (sorted.length - 1))]) : ""));
  return {
    ...trace(color, known, null), showlegend: false,
    marker: { size: 6, color: known.map((point) => order.get(point.color)), cmin: 0, cmax: 1, opacity: 0.9, colorscale: [[0, colour("scale-low")], [0.5, colour("scale-middle")], [1, colour("scale-high")]], colorbar: { title: { text: escaped(color) }, thickness: 12, outlinewidth: 0, len: 0.6, tickvals: quarters, ticktext: texts } },
  };
}

function numbersTable({ points, color }) {
  const sorted = points.map((point) => point.color).filter((given) => typeof given === "number").sort((one, other) => one - other);
  const at = (share) => (sorted.length ? number(sorted[Math.floor(share * (sorted.length - 1))]) : "not known");
  return table(`${color} of the items shown`, ["share of items", color], [["least", at(0)], ["a quarter below", at(0.25)], ["half below", at(0.5)], ["three quarters below", at(0.75)], ["most", at(1)]]);
}

const overlay = (name, points, { symbol, size, color, edge = colour("surface") }) => ({
  type: "scatter", mode: "markers", name, x: points.map((point) => point.x), y: points.map((point) => point.y),
  text: points.map((point) => hover(point, name)), customdata: points.map((point) => point.item), hovertemplate: "%{text}<extra></extra>",
  marker: { symbol, size, color, line: { width: symbol.endsWith("open") ? 2.5 : 1.5, color: symbol.endsWith("open") ? color : edge } },
});
