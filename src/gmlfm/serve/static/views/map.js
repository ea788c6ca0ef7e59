// All items in the learned metric: near means alike to the model, whatever the attributes say.

import * as api from "../api.js";
import { attributeList, chips } from "../cards.js";
import { chart, zoom } from "../charts.js";
import { announce, asTable, el, empty, fill, loading, number, plural, problem, replace, stays, table, titleOf } from "../dom.js";
import { go, hashOf } from "../main.js";
import { around, colourTable, layout, marksOf, scaled, traces, whole } from "../map-chart.js";
import { itemSearch } from "./newcomer.js";
import { userSearch } from "./user.js";

const FEW = 11; // values that can be told apart by colour

export async function view(place, asked) {
  const { fields: all } = await api.schema();
  const fields = all.filter((field) => field.role === "item");
  const categories = fields.filter((field) => field.kind !== "number" && field.n_categories > 1);
  const usual = (categories.find((field) => field.n_categories <= FEW) ?? categories[0] ?? fields[0])?.name ?? "";
  const wanted = { color: null, user: null, item: null }; // as the address says
  const shown = { points: null, field: null, total: 0, overlay: null, user: null, similar: [] }; // as far as it has been answered
  const troubles = { color: null, user: null };
  let seen = whole();
  let isStale = false; // what is drawn
  let nLoading = 0;

  const drawing = el("div", { class: "chart map-chart" });
  const note = el("div", { class: "map-note" });
  const side = el("section", { class: "panel map-side stays", "aria-label": "The item that was chosen" });
  const words = el("div", {});
  const forUser = el("span", { class: "map-user" });
  const select = el("select", { id: "map-color", onchange: () => use({ color: select.value }) }, fields.map((field) => el("option", { value: field.name }, field.name)));
  const users = userSearch({ label: "Mark a user\u2019s items", placeholder: "Search by id", chosen: ({ key }) => use({ user: String(key) }) });
  const items = itemSearch({ label: "Find an item", placeholder: "Search a title", chosen: ({ key }) => use({ item: String(key) }) });

  const use = (change) => {
    const { color, user, item } = { ...wanted, ...change };
    go(hashOf("map", "", { color: color === usual ? "" : color, user, item }));
  };

  // Each of these keeps an answer only if it is still the one that is wanted.
  const parts = {
    async color() {
      const { color } = wanted;
      const answer = await api.map(color);
      if (wanted.color !== color) return "";
      Object.assign(shown, { points: answer.points, field: answer.field, total: answer.n_items });
      return answer.field ? `The map is coloured by ${answer.field.name}.` : `The map shows ${plural(answer.points.length, "item")}.`;
    },
    async user() {
      const { user } = wanted;
      Object.assign(shown, { overlay: null, user: null });
      const overlay = user ? await overlayOf(user) : null;
      if (wanted.user !== user) return "";
      Object.assign(shown, { overlay, user });
      return overlay ? `Of ${user}, ${plural(overlay.history.length, "item")} of the history and ${plural(overlay.recommended.length, "recommendation")} are marked.` : "No user\u2019s items are marked.";
    },
  };

  async function load(name, isTold = true) {
    const value = wanted[name];
    nLoading += 1;
    drawing.setAttribute("aria-busy", "true");
    troubles[name] = null;
    let said = "";
    try {
      said = await parts[name]();
      isStale = true;
    } catch (error) {
      if (wanted[name] === value) troubles[name] = problem(error, () => load(name));
      isStale = true;
    }
    showNote();
    await plot();
    nLoading -= 1;
    if (!nLoading) drawing.removeAttribute("aria-busy");
    if (said && isTold) announce(said);
  }

  const showNote = () => replace(note, Object.values(troubles), !shown.points && !troubles.color && loading("Drawing the map; the first time takes some seconds ..."));

  function loadItem() {
    const id = wanted.item;
    const mark = (points) => {
      if (wanted.item !== id) return;
      shown.similar = points;
      isStale = true;
      plot();
    };
    mark([]);
    return fill(side, "Asking what is near ...", async (tell) => {
      if (!id) return empty("Choose an item", "A click on a point, or a search, shows what the model holds to be most alike.");
      const [item, near] = await Promise.all([api.item(id), api.similar(id)]);
      const { points } = await api.place([item.item, ...near.items.map((other) => other.item)]);
      mark(points);
      tell(`Chosen: ${titleOf(item)}.`);
      return [
        el("p", { class: "eyebrow" }, "Chosen"), el("h2", {}, titleOf(item)), attributeList(item.attributes),
        el("h3", {}, "Most alike"),
        el("ol", { class: "near" }, near.items.map((other) => el("li", {},
          el("div", {}, el("button", { type: "button", class: "link", onclick: () => use({ item: String(other.item) }) }, titleOf(other)), chips(other.attributes, titleOf(other), 2, { opens: true })),
          el("span", { class: "score" }, el("span", { class: "hidden" }, "distance "), other.distance.toFixed(2))))),
      ];
    });
  }

  async function plot() {
    if (!shown.points || !isStale) return;
    isStale = false;
    tell();
    const label = `A map of ${plural(shown.points.length, "item")} in two dimensions${shown.field ? `, coloured by ${shown.field.name}. Its groups are in the table below it.` : "."}`;
    const isDrawn = await chart(drawing, label, () => ({ data: traces(shown), layout: layout(seen), config: { scrollZoom: false } }));
    tools.hidden = !isDrawn;
    if (!isDrawn || drawing.listens) return;
    drawing.listens = true;
    drawing.on("plotly_click", ({ points }) => points[0]?.customdata !== undefined && use({ item: String(points[0].customdata) }));
    drawing.on("plotly_relayout", () => {
      seen = { x: [...drawing.layout.xaxis.range], y: [...drawing.layout.yaxis.range] };
    });
  }

  function tell() {
    toMarks.disabled = !marksOf(shown).length;
    const marked = shown.overlay && table(`What is marked for ${shown.user}`, ["item", "as"], [...shown.overlay.history.map((item) => [titleOf(item), "history"]), ...shown.overlay.recommended.map((item) => [titleOf(item), "recommended"])]);
    const tables = [colourTable(shown), marked].filter(Boolean);
    words.replaceChildren(
      el("p", { class: "hint" }, `${number(shown.points.length)} of ${plural(shown.total, "item")} are shown. Near means alike to the model; the axes mean nothing by themselves.`),
      ...(tables.length ? [asTable("The same as a table", tables)] : []));
  }

  const look = (part) => zoom(drawing, part.x, part.y);
  const button = (text, onclick, label = text) => el("button", { type: "button", class: "quiet", onclick, "aria-label": label, title: label }, text);
  const toMarks = button("Zoom to marks", () => look(around(marksOf(shown))));
  const tools = el("div", { class: "map-tools", role: "group", "aria-label": "What part of the map is shown", hidden: true },
    button("+", () => look(scaled(seen, 0.7)), "Zoom in"), button("\u2212", () => look(scaled(seen, 1 / 0.7)), "Zoom out"), button("Whole map", () => look(whole())), toMarks);

  const showUser = () => {
    const held = forUser.contains(document.activeElement);
    forUser.replaceChildren(...(wanted.user ? [el("span", { class: "pill" }, wanted.user), el("button", { type: "button", class: "link", onclick: () => use({ user: null }) }, "take away")] : []));
    if (held) users.focusQuietly();
  };

  const follow = ({ query }, isTold = true) => {
    const color = query.get("color");
    const next = { color: fields.some((field) => field.name === color) ? color : usual, user: query.get("user"), item: query.get("item") };
    const changed = Object.keys(next).filter((name) => next[name] !== wanted[name]);
    Object.assign(wanted, next);
    select.value = wanted.color;
    showUser();
    if (changed.includes("color")) load("color", isTold);
    if (changed.includes("user")) load("user", isTold);
    if (changed.includes("item")) loadItem();
  };

  place.replaceChildren(
    el("div", { class: "view-head" }, el("div", {}, el("h1", {}, "The catalogue as the model sees it"), el("p", { class: "lead" }, "Each point is an item. Items that the model holds to be alike stand together."))),
    el("div", { class: "panel toolbar map-toolbar" },
      fields.length > 0 && el("label", { class: "field", for: "map-color" }, el("span", {}, "Coloured by"), select), users, items, forUser),
    el("div", { class: "columns map-columns" }, el("section", { class: "panel", "aria-label": "Map" }, note, el("div", { class: "map-frame" }, tools, drawing), words), stays(side)));
  showNote();
  loadItem();
  follow(asked, false);
  return follow;
}

async function overlayOf(user) {
  const [known, ranked] = await Promise.all([api.user(user), api.recommend({ user, n: 10 })]);
  const history = known.history.slice(0, 30).map((item) => item.item);
  const recommended = ranked.items.map((item) => item.item);
  const { points } = await api.place([...history, ...recommended]);
  const places = new Map(points.map((point) => [String(point.item), point]));
  const placed = (ids) => ids.map((id) => places.get(String(id))).filter(Boolean);
  return { history: placed(history), recommended: placed(recommended) };
}
