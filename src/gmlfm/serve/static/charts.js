// Charts by Plotly, which is fetched with the first one. They take their colours from the page's.

import { problem, replace } from "./dom.js";

let plotly = null;

function fetched() {
  plotly ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = "/static/plotly.min.js";
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => {
      plotly = null;
      reject(new Error("The charts could not be fetched from the service."));
    };
    document.head.append(script);
  });
  return plotly;
}

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
export const PALETTE = () => Array.from({ length: 12 }, (_, place) => colour(`group-${place + 1}`));
// Plotly reads some markup in texts.
export const escaped = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
export const isNarrow = () => matchMedia("(max-width: 640px)").matches;

function layoutOf(layout) {
  const axis = { gridcolor: colour("line"), zerolinecolor: colour("line-strong"), linecolor: colour("line"), tickcolor: colour("line"), automargin: true };
  const axes = Object.fromEntries(Object.entries(layout).filter(([name]) => /^[xy]axis/.test(name)).map(([name, given]) => [name, { ...axis, ...given }]));
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: colour("text") },
    margin: { l: 8, r: 8, t: 8, b: 8 }, xaxis: axis, yaxis: axis,
    hoverlabel: { bgcolor: colour("raised"), bordercolor: colour("line-strong"), font: { color: colour("text"), size: 13 } },
    ...layout, ...axes,
  };
}

const drawn = new Map(); // place -> what draws it

// Plotly keeps what it has drawn, and listens to the window for it, until it is told to let go.
function letGo() {
  for (const place of drawn.keys()) {
    if (place.isConnected) continue;
    window.Plotly.purge(place);
    drawn.delete(place);
  }
}

document.addEventListener("gmlfm-theme", () => {
  letGo();
  for (const draw of drawn.values()) draw();
});

// make() -> {data, layout, config}; asked again when the colours change. label: what the chart shows, for those who do not see it.
// Whether it is drawn; a reason why it is not stands in its place.
export async function chart(place, label, make) {
  let Plotly;
  try {
    Plotly = await fetched();
  } catch (error) {
    place.replaceChildren(problem(error, () => chart(place, label, make)));
    return false;
  }
  letGo();
  if (!drawn.has(place)) replace(place);
  const draw = () => {
    const { data, layout, config } = make();
    return Plotly.react(place, data, layoutOf(layout), { displayModeBar: false, responsive: true, ...config });
  };
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", label);
  drawn.set(place, draw);
  await draw();
  return true;
}

export const zoom = (place, x, y) => window.Plotly.relayout(place, { "xaxis.range": x, "yaxis.range": y });
