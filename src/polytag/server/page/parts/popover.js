// A button that opens a small panel; Escape and a click elsewhere close it.

import { h, fresh } from "./element.js";

export function popover(name, picture, text, content) {
  const id = fresh(name);
  const panel = h("div", { id, class: "panel", hidden: true }, content);
  const button = h("button", { class: "plain", "aria-expanded": "false", "aria-controls": id, "aria-label": text, title: text }, picture);
  const box = h("div", { class: `popover ${name}` }, button, panel);
  const set = (on) => {
    panel.hidden = !on;
    button.setAttribute("aria-expanded", String(on));
  };
  button.addEventListener("click", () => set(panel.hidden));
  box.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !panel.hidden) {
      set(false);
      button.focus();
    }
  });
  document.addEventListener("pointerdown", (event) => {
    if (!box.contains(event.target)) set(false);
  });
  window.addEventListener("hashchange", () => set(false));
  return box;
}
