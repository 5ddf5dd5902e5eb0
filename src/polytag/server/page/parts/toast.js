// A short message at the edge of the window, with one action at most; it waits while somebody reads it.

import { h, icon } from "./element.js";
import { t } from "../words.js";

const SECONDS = 8;

export function toast(text, { bad = false, action = null, run = null } = {}) {
  const box = document.getElementById("toasts");
  const close = () => node.remove();
  const node = h("div", { class: bad ? "toast bad" : "toast" }, h("p", {}, text),
    action && h("button", { onclick: () => { close(); run(); } }, action),
    h("button", { class: "plain", "aria-label": t("close"), onclick: close }, icon("remove")));
  box.replaceChildren(node);
  const wait = () => setTimeout(() => (node.matches(":hover, :focus-within") ? wait() : close()), SECONDS * 1000);
  if (!bad) wait();
}
