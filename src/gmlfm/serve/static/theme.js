// Before the first drawing, so that the page does not flash: the colours chosen last, otherwise those of the system.
"use strict";
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("gmlfm-theme");
  } catch {
    // a browser that keeps nothing
  }
  const isDark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
})();
