// The words that speak for a label: marked in the text, and listed for those who do not see the marks.

import { h, fresh } from "./element.js";
import { service } from "../service.js";
import { state } from "../state.js";
import { signed, t } from "../words.js";

const HOVER_MS = 70; // a pointer that only passes asks nothing
const LISTED = 6;

export class Why {
  constructor(text) {
    this.text = text;
    this.known = new Map();
    const id = fresh("why");
    this.content = h("div", { class: "why-content", "aria-live": "polite" });
    this.node = h("section", { class: "card why", "aria-labelledby": id, hidden: true }, h("h2", { id }, t("why")), this.content);
    this.forget();
  }

  forget() {
    clearTimeout(this.later);
    this.known.clear();
    this.label = null;
    this.content.replaceChildren(h("p", { class: "note" }, t("why_hint")));
  }

  show(label) {
    clearTimeout(this.later);
    this.node.hidden = false;
    if (this.label === label) return;
    this.later = setTimeout(() => this.ask(label), this.known.has(label) ? 0 : HOVER_MS);
  }

  showing(label) {
    return this.label === label && this.node.isConnected;
  }

  leave() {
    clearTimeout(this.later); // the last words stay, so that they can be read
  }

  async ask(label) {
    const { text, model } = state.found;
    this.label = label;
    try {
      if (!this.known.has(label)) {
        const answer = await service.explain(text, model, [label]);
        this.known.set(label, answer.labels[0]);
      }
      if (this.label === label && state.found?.text === text) this.paint(this.known.get(label));
    } catch (error) {
      this.label = null;
      this.content.replaceChildren(h("p", { class: "note" }, error.status === 413 ? t("why_long") : error.message));
    }
  }

  paint(found) {
    this.text.mark(found.words);
    const sides = [["why_for", found.words.filter((word) => word.contribution > 0), 1], ["why_against", found.words.filter((word) => word.contribution < 0), -1]];
    this.content.replaceChildren(h("p", { class: "about" }, h("b", {}, found.label)), ...sides.map(([key, words, side]) => this.side(key, merged(words), side)));
  }

  side(key, words, side) {
    const rows = words.sort((a, b) => side * (b[1] - a[1])).slice(0, LISTED);
    const list = rows.map(([word, value]) => h("li", { class: side > 0 ? "for" : "against" }, h("span", {}, word), " ", h("span", { class: "value" }, signed(value, 2))));
    return h("div", {}, h("h3", {}, t(key)), rows.length ? h("ul", { class: "words" }, list) : h("p", { class: "note" }, t("why_none")));
  }
}

// The same word at several places counts once, with the sum.
function merged(words) {
  const sums = new Map();
  for (const word of words) sums.set(word.text, (sums.get(word.text) ?? 0) + word.contribution);
  return [...sums];
}
