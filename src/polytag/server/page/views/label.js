// Label one text: see the set, see why, change it, store the correction.

import { DecisionPane, chosen } from "../parts/decision_pane.js";
import { h, icon, sentence, fresh } from "../parts/element.js";
import { LabelBox } from "../parts/label_box.js";
import { LabelRows } from "../parts/label_rows.js";
import { browse } from "../parts/label_tree.js";
import { TextPane } from "../parts/text_pane.js";
import { toast } from "../parts/toast.js";
import { Why } from "../parts/why.js";
import { save, takeBack } from "../correcting.js";
import { service } from "../service.js";
import { current, forget, model, state } from "../state.js";
import { number, t } from "../words.js";

const WAIT_MS = 180; // after the last key
const MORE = 6; // candidates below the set
const NARROW = matchMedia("(max-width: 56rem)");
const ASK = 0.2; // share of texts that the model would leave to people

let view = null;

export function draw(main) {
  view = new LabelView();
  main.append(h("h1", { class: "unseen" }, t("view_label")), view.node);
  view.predict();
}

document.addEventListener("keydown", (event) => {
  if (!view?.node.isConnected || event.target.closest("textarea, input, select, dialog")) return;
  if ((event.ctrlKey || event.metaKey) && event.key === "z") {
    event.preventDefault();
    view.undo();
  }
});
document.addEventListener("keydown", (event) => {
  if (view?.node.isConnected && (event.ctrlKey || event.metaKey) && event.key === "Enter") view.store();
});

class LabelView {
  constructor() {
    this.more = MORE;
    this.text = new TextPane({ ontext: () => this.soon(), ondocument: (at) => this.step(at) });
    this.why = new Why(this.text);
    this.rows = new LabelRows({ kind: model().kind, onact: (what, name) => this.act(what, name),
      onfocus: (name) => this.explain(name), onleave: () => this.why.leave() });
    this.decision = new DecisionPane(() => this.paint());
    this.node = h("div", { class: "columns" }, h("div", { class: "left" }, this.text.node, this.why.node), this.panel());
  }

  panel() {
    const id = fresh("labels");
    this.count = h("span", { class: "badge", hidden: true });
    this.hint = h("div", { class: "empty small" }, h("p", {}, t("no_text")));
    this.unsure = h("p", { class: "notice", hidden: true }, t("unsure"));
    this.drift = h("p", { class: "notice", role: "status", hidden: true });
    this.drifted();
    this.nothing = h("p", { class: "note", hidden: true }, t("no_labels"));
    this.box = new LabelBox({ label: t("add_label"), placeholder: t("add_placeholder"), model: () => state.model, onpick: (name) => this.add(name) });
    this.further = h("button", { class: "plain", onclick: () => { this.more += 20; this.paint(); } }, t("show_more"));
    this.back = h("button", { onclick: () => this.undo() }, icon("undo"), t("undo"));
    this.keep = h("button", { class: "primary", onclick: () => this.store() });
    this.body = h("div", { class: "body", hidden: true }, this.unsure, this.rows.set, this.nothing,
      h("div", { class: "adding" }, this.box.node, h("button", { onclick: () => this.browse() }, icon("tree"), t("browse"))),
      h("h3", {}, t("labels_out")), this.rows.rest, this.further);
    this.foot = h("footer", { class: "acts", hidden: true }, this.back, this.keep);
    return h("section", { class: "card labels", "aria-labelledby": id },
      h("header", {}, h("h2", { id }, t("labels"), " ", this.count)), this.drift, this.decision.node, this.hint, this.body, this.foot);
  }

  // Says when texts have changed since training; a service that cannot tell is no reason to complain.
  async drifted() {
    const found = await service.drift(state.model).catch(() => null), promise = found?.promise;
    if (!found?.drifted && promise?.stands !== false) return;
    const key = promise?.stands !== false ? "drifted" : promise.reason === "corrections contradict it" ? "promise_broken" : "promise_drifted";
    this.drift.textContent = t(key, { promise: promise?.promise });
    this.drift.hidden = false;
  }

  // On a narrow screen the text is out of sight: the words appear below the label.
  explain(name) {
    if (NARROW.matches && !this.why.showing(name)) this.rows.rows.get(name).node.append(this.why.node);
    this.why.show(name);
  }

  soon() {
    clearTimeout(this.later);
    if (!current().text.trim()) this.predict();
    else this.later = setTimeout(() => this.predict(), WAIT_MS);
  }

  async predict() {
    this.running?.abort();
    const { text } = current();
    if (!text.trim()) {
      forget();
      return this.paint();
    }
    if (state.found?.text === text && state.found.model === state.model) return this.paint();
    this.running = new AbortController();
    this.node.classList.add("waiting");
    try {
      const options = { floor: model().kind === "probability" ? 0.001 : -1e9, ...(model().asks ? { ask: ASK } : {}) };
      this.take(text, await service.predict(text, state.model, options, this.running.signal));
    } catch (error) {
      if (error.name !== "AbortError") toast(error.message, { bad: true, action: t("again"), run: () => this.predict() });
      if (error.name === "AbortError") return;
    }
    this.node.classList.remove("waiting");
    this.paint();
  }

  take(text, answer) {
    const [one] = answer.predictions;
    const scores = new Map(one.candidates.labels.map((name, at) => [name, one.candidates.scores[at]]));
    one.labels.forEach((name, at) => scores.set(name, one.scores[at]));
    state.found = { text, model: answer.model, version: answer.version, decided: new Set(one.labels), scores, ask: one.ask };
    this.why.forget();
    this.decision.draw();
  }

  // The rows: those of the set with what a person removed from it, and the best of the rest.
  sorted() {
    const { found, edits } = state, set = chosen(found), rows = [];
    for (const name of new Set([...found.scores.keys(), ...edits.keys()])) {
      const edit = edits.get(name), value = found.scores.get(name) ?? null;
      const into = found.decided.has(name) ? "accepted" : "added";
      const now = edit === "in" ? into : edit === "out" ? "removed" : set.has(name) ? "kept" : "candidate";
      rows.push({ name, value, state: now });
    }
    rows.sort((a, b) => (b.value ?? -Infinity) - (a.value ?? -Infinity));
    return [rows.filter((one) => one.state !== "candidate"), rows.filter((one) => one.state === "candidate")];
  }

  paint() {
    const { found } = state, there = found !== null;
    this.hint.hidden = there;
    this.body.hidden = this.foot.hidden = this.count.hidden = !there;
    this.decision.node.hidden = !there;
    this.why.node.hidden = !there || (NARROW.matches && !this.why.node.closest(".row"));
    if (!there) return;
    const [inside, outside] = this.sorted(), size = inside.filter((one) => one.state !== "removed").length;
    this.rows.show(inside, outside.slice(0, this.more));
    this.further.hidden = outside.length <= this.more;
    this.nothing.hidden = inside.length > 0;
    this.unsure.hidden = !found.ask;
    this.back.disabled = !state.history.length;
    this.keep.textContent = t(state.at + 1 in state.documents ? "save_next" : "save", { n: size });
    this.count.textContent = number(size);
    if (size !== this.said) sentence(t("set_size", { n: size }));
    this.said = size;
  }

  edit(name, value) {
    state.history.push({ label: name, before: state.edits.get(name) });
    if (value) state.edits.set(name, value);
    else state.edits.delete(name);
    this.paint();
  }

  act(what, name) {
    const inside = chosen(state.found).has(name);
    if (what === "remove") this.edit(name, inside || state.found.decided.has(name) ? "out" : null);
    else this.edit(name, what === "restore" ? null : "in");
    sentence(t(`did_${what}`, { label: name }));
  }

  add(name) {
    this.edit(name, "in");
    sentence(t("did_add", { label: name }));
  }

  browse() {
    const inside = (name) => this.sorted()[0].some((one) => one.name === name && one.state !== "removed");
    browse({ model: model(), chosen: inside, onpick: (name) => this.act(inside(name) ? "remove" : "add", name) });
  }

  async undo() {
    const last = state.history.pop();
    if (!last) return;
    if (last.saved) await takeBack(last.saved);
    else if (last.before) state.edits.set(last.label, last.before);
    else state.edits.delete(last.label);
    if (!last.saved) sentence(t("undone"));
    this.paint();
  }

  async store() {
    if (!state.found || this.keep.disabled) return;
    this.keep.disabled = true;
    try {
      const stored = await save(this.sorted()[0]);
      state.history.push({ saved: stored.id });
      const text = t("saved", { n: stored.accepted.length + stored.added.length });
      toast(text, { action: t("undo"), run: () => { state.history = state.history.filter((one) => one.saved !== stored.id); takeBack(stored.id); this.paint(); } });
      if (state.at + 1 in state.documents) this.step(state.at + 1);
    } catch (error) {
      toast(t("not_saved", { why: error.message }), { bad: true, action: t("again"), run: () => this.store() });
    } finally {
      this.keep.disabled = false;
      this.paint();
    }
  }

  step(at) {
    state.at = at;
    forget();
    this.more = MORE;
    this.text.show();
    if (document.activeElement === document.body) this.text.area.focus({ preventScroll: true }); // the arrow was drawn anew
    sentence(t("document_of", { at: at + 1, n: state.documents.length }));
    this.predict();
  }
}
