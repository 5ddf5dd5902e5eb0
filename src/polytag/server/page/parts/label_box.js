// Type-ahead over the labels of a model: an input, and a list that the arrow keys walk through.

import { h, fresh } from "./element.js";
import { service } from "../service.js";
import { number, t } from "../words.js";

const SHOWN = 12;

export class LabelBox {
  constructor({ label, placeholder, model, onpick, keepText = false, search = null }) {
    const ask = search ?? ((typed, signal) => service.labels(typed, model(), SHOWN, signal));
    Object.assign(this, { ask, onpick, keepText });
    const id = fresh("labels");
    this.found = [];
    this.at = -1;
    this.list = h("ul", { id: `${id}-list`, role: "listbox", "aria-label": label, class: "options", hidden: true });
    this.input = h("input", {
      id, type: "text", role: "combobox", autocomplete: "off", spellcheck: "false", "aria-expanded": "false",
      "aria-controls": `${id}-list`, "aria-autocomplete": "list", placeholder,
      oninput: () => this.search(), onkeydown: (event) => this.key(event), onblur: () => this.close(),
      onclick: () => this.list.hidden && this.search(),
    });
    this.node = h("div", { class: "field labelbox" }, h("label", { for: id }, label), this.input, this.list);
  }

  async search() {
    this.running?.abort();
    this.running = new AbortController();
    try {
      const answer = await this.ask(this.input.value, this.running.signal);
      this.found = answer.labels;
      this.paint();
    } catch (error) {
      if (error.name !== "AbortError") this.message(error.message);
    }
  }

  paint() {
    if (document.activeElement !== this.input) return;
    this.at = this.found.length && this.input.value ? 0 : -1;
    if (!this.found.length) return this.message(t("no_label"));
    this.list.replaceChildren(...this.found.map((one, at) => this.option(one, at)));
    this.open();
    this.mark();
  }

  option(one, at) {
    return h("li", { id: `${this.list.id}-${at}`, role: "option", "aria-selected": "false",
      onpointerdown: (event) => { event.preventDefault(); this.pick(at); } },
      h("span", { class: "option-name" }, ...emphasised(one.name, this.input.value)),
      one.description && one.description !== one.name && h("span", { class: "note" }, one.description),
      one.count > 0 && h("span", { class: "count", title: t("count_title") }, number(one.count)));
  }

  message(text) {
    this.found = [];
    this.at = -1;
    this.list.replaceChildren(h("li", { class: "note", role: "option", "aria-disabled": "true", "aria-selected": "false" }, text));
    this.open();
  }

  open() {
    this.list.hidden = false;
    this.input.setAttribute("aria-expanded", "true");
  }

  close() {
    this.list.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
    this.input.removeAttribute("aria-activedescendant");
  }

  mark() {
    [...this.list.children].forEach((one, at) => one.setAttribute("aria-selected", String(at === this.at)));
    if (this.at < 0) return this.input.removeAttribute("aria-activedescendant");
    this.input.setAttribute("aria-activedescendant", this.list.children[this.at].id);
    this.list.children[this.at].scrollIntoView({ block: "nearest" });
  }

  key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && this.list.hidden) this.search();
    else if (step && this.found.length) {
      this.at = (this.at + step + this.found.length) % this.found.length;
      this.mark();
    } else if (event.key === "Enter" && !this.list.hidden && this.at >= 0) this.pick(this.at);
    else if (event.key === "Escape" && !this.list.hidden) this.close();
    else return;
    event.preventDefault();
  }

  pick(at) {
    const one = this.found[at];
    this.input.value = this.keepText ? one.name : "";
    this.close();
    this.onpick(one.name, one);
  }
}

// The name, with the part that was typed in bold.
function emphasised(name, typed) {
  const wanted = typed.trim().toLowerCase();
  const at = wanted ? name.toLowerCase().indexOf(wanted) : -1;
  if (at < 0) return [name];
  return [name.slice(0, at), h("b", {}, name.slice(at, at + wanted.length)), name.slice(at + wanted.length)];
}
