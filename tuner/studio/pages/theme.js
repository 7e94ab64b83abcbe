// Light and dark: as the system says, unless the reader chose.
import { h } from "./dom.js";
import { isDark } from "./palette.js";

const KEY = "tuner-theme";
const SYSTEM = matchMedia("(prefers-color-scheme: dark)");

export function applyTheme() {
  const theme = localStorage.getItem(KEY) ?? (SYSTEM.matches ? "dark" : "light");
  document.documentElement.dataset.theme = theme;
}

export function themeButton() {
  const button = h("button.plain", { click: toggle }, text());
  function text() {
    return isDark() ? "Light" : "Dark";
  }
  function toggle() {
    localStorage.setItem(KEY, isDark() ? "light" : "dark");
    update();
  }
  function update() {
    applyTheme();
    button.textContent = text();
    dispatchEvent(new Event("themechange"));
  }
  SYSTEM.addEventListener("change", update);
  return button;
}
