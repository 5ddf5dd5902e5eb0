// A place that waits for the service: says so after a moment, then shows the answer, or why there is none.

import { h } from "./element.js";
import { t } from "../words.js";

const PATIENCE_MS = 200; // an answer that comes sooner shows no message

export async function loaded(place, answer, draw, again) {
  const later = setTimeout(() => place.replaceChildren(h("p", { class: "note loading", role: "status" }, t("loading"))), PATIENCE_MS);
  try {
    const found = await answer;
    clearTimeout(later);
    place.replaceChildren(...[draw(found)].flat());
  } catch (error) {
    clearTimeout(later);
    place.replaceChildren(empty(error.message, again && h("button", { onclick: again }, t("again"))));
  }
}

export const empty = (text, ...more) => h("div", { class: "empty" }, h("p", {}, text), ...more);
