// What the map is drawn from: points by group or by number, marks on them, and the part of it that is seen.

import { colour, escaped, isNarrow, PALETTE } from "./charts.js";
import { number, shortened, table, titleOf } from "./dom.js";

const MOST_GROUPS = 11;
const REST = "all others";
const UNKNOWN = "not known";
const NONE = "none"; // a set without members
const WHOLE = [-1.06, 1.06];
const LEAST = 0.04; // half the width of the smallest part that is worth a look

const groupOf = (color) => (color === null || color === undefined ? UNKNOWN : Array.isArray(color) ? (color[0] ?? NONE) : String(color));
const hover = (point, name) => `${escaped(shortened(titleOf(point), 60))}${name ? `<br>${escaped(name)}` : ""}`;

const trace = (name, points, marker, named = (point) => groupOf(point.color)) => ({
  type: "scatter", mode: "markers", name: escaped(shortened(name, 24)), x: points.map((point) => point.x), y: points.map((point) => point.y),
  text: points.map((point) => hover(point, named(point))), customdata: points.map((point) => point.item), hovertemplate: "%{text}<extra></extra>",
  marker: { size: 6, ...marker },
});

function groups({ points, field }, opacity) {
  const palette = PALETTE();
  const names = field.values.slice(0, MOST_GROUPS);
  const by = new Map([...names, NONE, UNKNOWN].map((name) => [name, []]));
  const rest = [];
  for (const point of points) (by.get(groupOf(point.color)) ?? rest).push(point);
  const traces = [...by].filter(([, some]) => some.length)
    .map(([name, some]) => trace(name, some, { color: names.includes(name) ? palette[names.indexOf(name)] : colour("line-strong"), opacity }));
  return rest.length ? [trace(REST, rest, { color: palette[MOST_GROUPS], opacity }), ...traces] : traces;
}

const isNumber = (point) => typeof point.color === "number";
const QUARTERS = [0, 0.25, 0.5, 0.75, 1];
const sortedOf = (points) => points.filter(isNumber).map((point) => point.color).sort((one, other) => one - other);
const at = (sorted, share) => (sorted.length ? number(sorted[Math.floor(share * (sorted.length - 1))]) : UNKNOWN);

function scale({ points, field }, opacity) {
  const known = points.filter(isNumber);
  const others = points.filter((point) => !isNumber(point));
  const sorted = sortedOf(points);
  // By order, not by size: a few large values would leave one colour for all others.
  const order = new Map(sorted.map((given, place) => [given, place / Math.max(1, sorted.length - 1)]));
  const bar = isNarrow() ? { orientation: "h", y: 1.01, yanchor: "bottom", len: 0.95 } : { y: 0, yanchor: "bottom", len: 0.6 };
  const colorbar = { ...bar, title: { text: escaped(field.name) }, thickness: 12, outlinewidth: 0, tickvals: QUARTERS, ticktext: QUARTERS.map((share) => at(sorted, share)) };
  const coloured = {
    ...trace(field.name, known, {
      color: known.map((point) => order.get(point.color)), cmin: 0, cmax: 1, opacity, colorbar,
      colorscale: [[0, colour("scale-low")], [0.5, colour("scale-middle")], [1, colour("scale-high")]],
    }, (point) => `${field.name} ${number(point.color)}`), showlegend: false,
  };
  return others.length ? [trace(UNKNOWN, others, { color: colour("line-strong"), opacity }), coloured] : [coloured];
}

function mark(name, points, { symbol, size, color }) {
  const isOpen = symbol.endsWith("open");
  return trace(name, points, { symbol, size, color, line: { width: isOpen ? 2.5 : 1.2, color: isOpen ? color : colour("surface") } }, () => name);
}

// A group that is drawn pale has its colour in full in the key, from a trace without points.
const paleWithKey = (pale) => (pale.showlegend === false ? [pale] : [
  { ...pale, legendgroup: pale.name, showlegend: false },
  { ...pale, legendgroup: pale.name, x: [null], y: [null], text: [""], customdata: [], marker: { ...pale.marker, opacity: 1 } },
]);

// shown: {points, field, overlay: {history, recommended}, similar}: traces, those of the marks last.
export function traces({ points, field, overlay, similar }) {
  const opacity = overlay || similar.length ? 0.3 : 0.85;
  let drawn = !field ? [trace("items", points, { color: colour("group-1"), opacity }, () => "")] : field.kind === "number" ? scale({ points, field }, opacity) : groups({ points, field }, opacity);
  if (opacity < 0.5) drawn = drawn.flatMap(paleWithKey);
  if (overlay) drawn.push(mark("history", overlay.history, { symbol: "diamond", size: 9, color: colour("text") }), mark("recommended", overlay.recommended, { symbol: "star", size: 13, color: colour("star") }));
  if (similar.length) drawn.push(mark("most alike", similar.slice(1), { symbol: "circle-open", size: 12, color: colour("accent-strong") }), mark("chosen", similar.slice(0, 1), { symbol: "circle-open", size: 20, color: colour("loss") }));
  return drawn;
}

export const marksOf = ({ overlay, similar }) => [...(overlay ? [...overlay.history, ...overlay.recommended] : []), ...similar];

// Of the part that is seen: {x: [from, to], y: [from, to]}.
export const whole = () => ({ x: [...WHOLE], y: [...WHOLE] });
export const scaled = ({ x, y }, by) => ({ x: about(middle(x), by * half(x)), y: about(middle(y), by * half(y)) });
export function around(points) {
  const reach = (axis) => [Math.min(...points.map((point) => point[axis])), Math.max(...points.map((point) => point[axis]))];
  const [x, y] = [reach("x"), reach("y")];
  const width = Math.max(1.15 * half(x), 1.15 * half(y), LEAST);
  return { x: about(middle(x), width), y: about(middle(y), width) };
}
const middle = ([from, to]) => (from + to) / 2;
const half = ([from, to]) => (to - from) / 2;
const about = (centre, width) => [centre - width, centre + width];

export function layout(seen) {
  const axis = { visible: false };
  const legend = isNarrow() ? { orientation: "h", y: -0.02, yanchor: "top" } : { x: 1.01, y: 1, yanchor: "top" };
  return {
    height: isNarrow() ? 470 : Math.max(470, Math.min(760, innerHeight - 370)), margin: { l: 4, r: 4, t: 4, b: 4 },
    // The same length is the same distance along both.
    xaxis: { ...axis, range: [...seen.x] }, yaxis: { ...axis, range: [...seen.y], scaleanchor: "x", scaleratio: 1 },
    legend: { ...legend, itemsizing: "constant", tracegroupgap: 0, font: { size: 12 } }, hovermode: "closest", dragmode: isNarrow() ? false : "pan",
  };
}

// What is coloured, as a table; null where there is nothing to tell.
export function colourTable({ points, field }) {
  if (!field) return null;
  if (field.kind === "number") {
    const sorted = sortedOf(points);
    const unknown = points.length - sorted.length;
    const rows = [["least", 0], ["a quarter below", 0.25], ["half below", 0.5], ["three quarters below", 0.75], ["most", 1]].map(([name, share]) => [name, at(sorted, share)]);
    return table(`${field.name} of the items shown`, ["share of items", field.name], unknown ? [...rows, [UNKNOWN, `${number(unknown)} items`]] : rows);
  }
  const counts = new Map();
  for (const { color } of points) counts.set(groupOf(color), (counts.get(groupOf(color)) ?? 0) + 1);
  return table(`Items shown, by ${field.name}`, [field.name, "items"], [...counts].sort((one, other) => other[1] - one[1]).slice(0, 40));
}
