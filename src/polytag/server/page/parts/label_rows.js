// The labels of a text: one row each, kept in place while the set changes, so that nothing jumps and no focus is lost.

import { h, icon, meter } from "./element.js";
import { score, t } from "../words.js";

export class LabelRows {
  constructor({ onact, onfocus, onleave, kind }) {
    Object.assign(this, { onact, onfocus, onleave, kind, rows: new Map() });
    this.set = h("ul", { class: "rows", "aria-label": t("labels_in") });
    this.rest = h("ul", { class: "rows rest", "aria-label": t("labels_out") });
    for (const list of [this.set, this.rest]) list.addEventListener("keydown", (event) => this.key(event));
  }

  // inside and outside: [{name, value, state}] in order; state is kept, accepted, added, removed or candidate.
  show(inside, outside) {
    const focused = document.activeElement, known = new Set([...inside, ...outside].map((one) => one.name));
    for (const [name, row] of this.rows) {
      if (!known.has(name)) {
        row.node.remove();
        this.rows.delete(name);
      }
    }
    const before = this.positions(focused);
    place(this.set, inside.map((one) => this.row(one)));
    place(this.rest, outside.map((one) => this.row(one)));
    if (focused?.closest?.(".row") && document.activeElement !== focused) {
      const again = focused.isConnected && !focused.hidden ? focused : this.after(before);
      again?.focus({ preventScroll: true });
    }
  }

  positions(focused) {
    const list = focused?.closest?.(".rows");
    return list ? { list, at: [...list.children].indexOf(focused.closest(".row")) } : null;
  }

  after(before) {
    const row = before && (before.list.children[before.at] ?? before.list.lastElementChild);
    return row?.querySelector(".name");
  }

  row(one) {
    if (!this.rows.has(one.name)) this.rows.set(one.name, this.made(one.name));
    const row = this.rows.get(one.name);
    if (row.state !== one.state || row.value !== one.value) this.paint(row, one);
    return row.node;
  }

  made(name) {
    const act = (what) => h("button", { class: `plain act ${what}`, "aria-label": `${t(what)}: ${name}`, title: t(what),
      onclick: () => this.onact(what, name) }, icon(what === "restore" ? "undo" : what));
    const row = { name, value: null, state: null, button: h("button", { class: "name" }, h("span", { class: "sign", "aria-hidden": "true" }), h("span", {}, name)),
      score: h("span", { class: "score" }), acts: Object.fromEntries(["add", "accept", "remove", "restore"].map((what) => [what, act(what)])) };
    row.said = h("span", { class: "unseen" });
    row.button.append(row.said);
    row.node = h("li", { class: "row" }, row.button, row.score, h("span", { class: "acts" }, Object.values(row.acts)));
    row.node.addEventListener("pointerenter", () => this.onfocus(name));
    row.node.addEventListener("pointerleave", () => this.onleave());
    row.button.addEventListener("focus", () => this.onfocus(name));
    row.button.addEventListener("blur", () => this.onleave());
    row.button.addEventListener("click", () => this.onfocus(name));
    return row;
  }

  paint(row, one) {
    Object.assign(row, { value: one.value, state: one.state });
    row.node.dataset.state = one.state;
    row.node.dataset.label = one.name;
    const text = one.value === null ? "–" : score(one.value, this.kind);
    row.score.replaceChildren(meter(this.kind === "probability" ? one.value ?? 0 : 1 / (1 + Math.exp(-(one.value ?? 0)))), h("span", {}, text));
    row.said.textContent = `, ${text}, ${t(`state_${one.state}`)}`;
    const shown = { candidate: ["add"], kept: ["accept", "remove"], accepted: ["remove"], added: ["remove"], removed: ["restore"] }[one.state];
    for (const [what, button] of Object.entries(row.acts)) button.hidden = !shown.includes(what);
  }

  key(event) {
    const node = event.target.closest(".row");
    if (!node || event.ctrlKey || event.metaKey || event.altKey) return;
    const all = [...this.set.children, ...this.rest.children], at = all.indexOf(node);
    const name = node.dataset.label, now = node.dataset.state;
    if (event.key === "ArrowDown") all[at + 1]?.querySelector(".name").focus();
    else if (event.key === "ArrowUp") all[at - 1]?.querySelector(".name").focus();
    else if (event.key === "a" || event.key === "+") this.onact(now === "candidate" ? "add" : now === "removed" ? "restore" : "accept", name);
    else if ((event.key === "x" || event.key === "Delete") && now !== "candidate" && now !== "removed") this.onact("remove", name);
    else return;
    event.preventDefault();
  }
}

function place(list, nodes) {
  nodes.forEach((node, at) => {
    if (list.children[at] !== node) list.insertBefore(node, list.children[at] ?? null);
  });
  while (list.children.length > nodes.length) list.lastElementChild.remove();
}
