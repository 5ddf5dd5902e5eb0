// The label map: similar labels are near each other. A search and the list of neighbours say the same in words.

import { h, icon } from "../parts/element.js";
import { LabelBox } from "../parts/label_box.js";
import { empty, loaded } from "../parts/loading.js";
import { service } from "../service.js";
import { state } from "../state.js";
import { number, t } from "../words.js";

const COLOURS = 8, NEAR = 10, REACH = 14; // reach: pixels between a pointer and the point that it means

export function draw(main) {
  const place = h("div", {});
  main.append(h("h1", {}, t("view_map")), h("p", { class: "lead" }, t("map_lead")), place);
  loaded(place, service.map(state.model), (answer) => (answer.points.length ? new LabelMap(answer).node : empty(t("map_none"))), () => {
    main.replaceChildren();
    draw(main);
  });
}

class LabelMap {
  constructor({ points }) {
    this.points = points;
    this.view = { x: 0, y: 0, scale: 1 };
    this.bounds = bounds(points);
    const sizes = new Map();
    for (const one of points) sizes.set(one.group, (sizes.get(one.group) ?? 0) + 1);
    this.groups = [...sizes].sort((a, b) => b[1] - a[1]).map(([group]) => group);
    this.canvas = h("canvas", { role: "img", "aria-label": t("map_picture", { n: points.length }) });
    this.tip = h("div", { class: "tip", hidden: true });
    this.side = h("div", { class: "near", "aria-live": "polite" });
    const box = new LabelBox({ label: t("map_find"), placeholder: t("add_placeholder"), search: (typed) => this.search(typed), onpick: (name) => this.pick(name) });
    const zoom = (text, name, by) => h("button", { "aria-label": t(name), title: t(name), onclick: () => this.zoom(by) }, text);
    this.node = h("div", { class: "map" },
      h("div", { class: "plot" }, this.canvas, this.tip, h("div", { class: "zoom" }, zoom("+", "zoom_in", 1.5), zoom("−", "zoom_out", 1 / 1.5),
        h("button", { "aria-label": t("zoom_all"), title: t("zoom_all"), onclick: () => this.all() }, icon("undo")))),
      h("div", { class: "card side" }, box.node, this.side, this.legend()));
    this.listen();
    this.explain();
  }

  legend() {
    if (this.groups.length < 2) return null;
    return h("div", {}, h("h2", {}, t("map_groups")), h("ul", { class: "legend" }, this.groups.slice(0, COLOURS - 1).map((group, at) =>
      h("li", {}, h("span", { class: `dot c${at + 1}`, "aria-hidden": "true" }), group)),
      this.groups.length >= COLOURS && h("li", {}, h("span", { class: `dot c${COLOURS}`, "aria-hidden": "true" }), t("others"))));
  }

  listen() {
    new ResizeObserver(() => this.paint()).observe(this.canvas);
    const repaint = () => (this.node.isConnected ? this.paint() : window.removeEventListener("colours", repaint));
    window.addEventListener("colours", repaint);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
    let held = null;
    this.canvas.addEventListener("pointerdown", (event) => {
      held = { x: event.clientX, y: event.clientY, moved: 0 };
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (!held) return this.hover(event);
      this.view.x += event.clientX - held.x;
      this.view.y += event.clientY - held.y;
      held = { x: event.clientX, y: event.clientY, moved: held.moved + Math.abs(event.clientX - held.x) + Math.abs(event.clientY - held.y) };
      this.paint();
    });
    this.canvas.addEventListener("pointerup", (event) => {
      const found = held?.moved < 6 && this.under(event);
      held = null;
      if (found) this.pick(found.label);
    });
    this.canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    this.canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return; // the page still scrolls
      event.preventDefault();
      this.zoom(event.deltaY < 0 ? 1.2 : 1 / 1.2);
    }, { passive: false });
  }

  place(one) {
    const { clientWidth: width, clientHeight: height } = this.canvas, { left, top, wide, high } = this.bounds;
    const fit = Math.min((width - 48) / wide, (height - 48) / high) * this.view.scale;
    return [width / 2 + this.view.x + (one.x - left - wide / 2) * fit, height / 2 + this.view.y - (one.y - top - high / 2) * fit];
  }

  under(event) {
    const box = this.canvas.getBoundingClientRect(), at = [event.clientX - box.left, event.clientY - box.top];
    const far = this.points.map((one) => Math.hypot(...this.place(one).map((value, axis) => value - at[axis])));
    const least = Math.min(...far);
    return least <= REACH ? this.points[far.indexOf(least)] : null;
  }

  hover(event) {
    const found = this.under(event);
    this.tip.hidden = !found;
    this.canvas.classList.toggle("over", Boolean(found));
    if (!found) return;
    this.tip.textContent = `${found.label} · ${t("documents", { n: found.count })}`;
    const [x, y] = this.place(found);
    this.tip.style.left = `${Math.min(x, this.canvas.clientWidth - 20)}px`;
    this.tip.style.top = `${y}px`;
    this.tip.classList.toggle("leftwards", x > this.canvas.clientWidth / 2);
  }

  zoom(by) {
    const { view } = this;
    view.scale = Math.max(1, Math.min(40, view.scale * by));
    [view.x, view.y] = view.scale === 1 ? [0, 0] : [view.x * by, view.y * by];
    this.paint();
  }

  all() {
    this.picked = null;
    this.near = [];
    this.explain();
    this.view = { x: 0, y: 0, scale: 1 };
    this.paint();
  }

  async search(typed) {
    const wanted = typed.trim().toLowerCase(), at = (one) => one.label.toLowerCase().indexOf(wanted);
    const found = this.points.filter((one) => at(one) >= 0).sort((a, b) => at(a) - at(b) || b.count - a.count);
    return { labels: found.slice(0, 12).map((one) => ({ name: one.label, count: one.count })) };
  }

  pick(label) {
    this.picked = this.points.find((one) => one.label === label);
    const far = (one) => Math.hypot(one.x - this.picked.x, one.y - this.picked.y);
    this.near = this.points.filter((one) => one !== this.picked).sort((a, b) => far(a) - far(b)).slice(0, NEAR);
    this.explain();
    this.approach(Math.max(...this.near.map(far), 1e-9));
  }

  // Bring the picked label to the middle, and its neighbours into sight.
  approach(reach) {
    const { clientWidth: width, clientHeight: height } = this.canvas, { left, top, wide, high } = this.bounds;
    const fit = Math.min((width - 48) / wide, (height - 48) / high);
    const scale = Math.max(1, Math.min(40, (Math.min(width, height) * 0.4) / (reach * fit)));
    this.view = { scale, x: -(this.picked.x - left - wide / 2) * fit * scale, y: (this.picked.y - top - high / 2) * fit * scale };
    this.paint();
  }

  explain() {
    if (!this.picked) return this.side.replaceChildren(h("p", { class: "note" }, t("map_hint")));
    return this.side.replaceChildren(h("h2", {}, t("map_near", { label: this.picked.label })),
      h("ol", {}, this.near.map((one) => h("li", {}, h("button", { class: "link", onclick: () => this.pick(one.label) }, one.label),
        " ", h("span", { class: "count" }, number(one.count))))));
  }

  paint() {
    const { canvas } = this, ratio = devicePixelRatio || 1, style = getComputedStyle(canvas), pen = canvas.getContext("2d");
    [canvas.width, canvas.height] = [canvas.clientWidth * ratio, canvas.clientHeight * ratio];
    pen.scale(ratio, ratio);
    const colours = Array.from({ length: COLOURS }, (_, at) => style.getPropertyValue(`--dot${at + 1}`));
    const near = new Set(this.near), most = Math.max(...this.points.map((one) => one.count), 1);
    for (const one of this.points) {
      const [x, y] = this.place(one), group = Math.min(this.groups.indexOf(one.group), COLOURS - 1);
      pen.globalAlpha = this.picked && one !== this.picked && !near.has(one) ? 0.25 : 0.8;
      pen.fillStyle = resolved(colours[group]);
      pen.beginPath();
      pen.arc(x, y, (2.5 + 7 * Math.sqrt(one.count / most)) * Math.min(2, Math.sqrt(this.view.scale)), 0, 2 * Math.PI);
      pen.fill();
    }
    pen.globalAlpha = 1;
    this.names(pen, style);
  }

  // Names of the picked label and its neighbours, or of the most frequent labels; none covers another.
  names(pen, style) {
    const wanted = this.picked ? [this.picked, ...this.near] : [...this.points].sort((a, b) => b.count - a.count).slice(0, 60), taken = [];
    pen.font = `13px ${style.fontFamily}`;
    pen.textBaseline = "middle";
    for (const one of wanted) {
      const [x, y] = this.place(one), wide = pen.measureText(one.label).width, left = x + wide + 14 > this.canvas.clientWidth ? x - wide - 9 : x + 9;
      const box = [left, y - 9, left + wide, y + 9];
      if (left < 2 || y < 9 || y > this.canvas.clientHeight - 9 || taken.some((other) => box[0] < other[2] && box[2] > other[0] && box[1] < other[3] && box[3] > other[1])) continue;
      taken.push(box);
      pen.font = `${one === this.picked ? "bold " : ""}13px ${style.fontFamily}`;
      pen.lineWidth = 3;
      pen.strokeStyle = style.backgroundColor;
      pen.fillStyle = style.color;
      pen.strokeText(one.label, left, y);
      pen.fillText(one.label, left, y);
    }
  }
}

// A canvas knows no light-dark(); this takes the side that holds now.
function resolved(colour) {
  const trimmed = colour.trim(), match = /^light-dark\((.+?),\s*(.+)\)$/.exec(trimmed);
  if (!match) return trimmed;
  const chosen = document.documentElement.dataset.colours;
  const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  return match[dark ? 2 : 1];
}

function bounds(points) {
  const xs = points.map((one) => one.x), ys = points.map((one) => one.y);
  const left = Math.min(...xs), top = Math.min(...ys);
  return { left, top, wide: Math.max(...xs) - left || 1, high: Math.max(...ys) - top || 1 };
}
