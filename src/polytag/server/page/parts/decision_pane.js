// How the set is chosen: as the model decides, by one threshold, or by a promise.

import { h, fresh } from "./element.js";
import { service } from "../service.js";
import { model, state } from "../state.js";
import { fixed, percent, t } from "../words.js";

const WAYS = ["model", "threshold", "promise"];
const kept = new Map(); // promises that the service computed, by model, version and goal

export class DecisionPane {
  constructor(onchange) {
    this.onchange = onchange;
    const id = fresh("way");
    this.radios = WAYS.map((way) => h("input", { type: "radio", name: id, value: way, id: `${id}-${way}`, checked: way === state.way,
      onchange: () => this.choose(way) }));
    const choices = WAYS.map((way, at) => [this.radios[at], h("label", { for: `${id}-${way}` }, t(`way_${way}`))]);
    this.detail = h("div", { class: "way-detail" });
    this.note = h("p", { class: "note", "aria-live": "polite" });
    this.node = h("fieldset", { class: "ways" }, h("legend", {}, t("ways")), h("div", { class: "segments" }, choices), this.detail, this.note);
    this.draw();
  }

  choose(way) {
    state.way = way;
    this.draw();
    this.onchange();
  }

  draw() {
    if (state.way === "promise") this.promise();
    else if (state.way === "threshold") this.threshold();
    else {
      this.detail.replaceChildren();
      const promised = model().promise;
      this.note.textContent = promised ? t("way_model_promise", { promise: promised }) : t("way_model_note");
    }
  }

  range() {
    if (model().kind === "probability") return [0, 1, 0.01];
    const scores = [...(state.found?.scores.values() ?? [-1, 1])];
    return [Math.floor(Math.min(...scores)), Math.ceil(Math.max(...scores)), 0.05];
  }

  slider(label, [min, max, step], value, format, oninput) {
    const id = fresh("slider");
    const input = h("input", { id, type: "range", min, max, step, "aria-valuetext": format(value) });
    input.value = value;
    const shown = h("output", { for: id }, format(value));
    input.addEventListener("input", () => {
      shown.textContent = format(Number(input.value));
      input.setAttribute("aria-valuetext", shown.textContent);
      oninput(Number(input.value));
    });
    return h("div", { class: "slider" }, h("label", { for: id }, label), input, shown);
  }

  threshold() {
    const format = (value) => (model().kind === "probability" ? percent(value) : fixed(value, 2));
    this.note.textContent = t("way_threshold_note");
    this.detail.replaceChildren(this.slider(t("threshold"), this.range(), state.threshold, format, (value) => {
      state.threshold = value;
      this.onchange();
    }));
  }

  promise() {
    if (!state.testDocuments) {
      this.detail.replaceChildren();
      this.note.textContent = t("promise_needs_test");
      return;
    }
    const id = fresh("goal");
    const goal = h("select", { id, onchange: () => { state.promise.goal = goal.value; this.fetch(); } },
      ["recall", "precision"].map((one) => h("option", { value: one }, t(`goal_${one}`))));
    goal.value = state.promise.goal;
    this.detail.replaceChildren(h("div", { class: "field inline" }, h("label", { for: id }, t("promise")), goal),
      this.slider(t("at_least"), [0.5, 0.99, 0.01], state.promise.value, percent, (value) => {
        state.promise.value = value;
        clearTimeout(this.later);
        this.later = setTimeout(() => this.fetch(), 60);
      }));
    this.fetch();
  }

  async fetch() {
    const { goal, value } = state.promise;
    const wanted = `${goal}=${value.toFixed(2)}`;
    const key = `${model().name} ${model().version} ${wanted}`;
    this.note.classList.toggle("waiting", !kept.has(key));
    try {
      if (!kept.has(key)) kept.set(key, await service.promise(model().name, wanted));
      if (wanted !== `${state.promise.goal}=${state.promise.value.toFixed(2)}` || state.way !== "promise") return;
      state.promise.kept = kept.get(key);
      const found = state.promise.kept;
      this.note.textContent = t("promise_note", { threshold: percent(found.threshold), n: found.documents,
        labels: fixed(found.labels_per_document, 1), precision: percent(found.precision), recall: percent(found.recall) });
    } catch (error) {
      state.promise.kept = null;
      this.note.textContent = error.message;
    }
    this.note.classList.remove("waiting");
    this.onchange();
  }
}

// The labels that the chosen way takes, before a person changes anything.
export function chosen(found) {
  const limit = state.way === "threshold" ? state.threshold : state.way === "promise" ? state.promise.kept?.threshold : null;
  if (limit === null || limit === undefined) return new Set(found.decided);
  return new Set([...found.scores].filter(([, value]) => value >= limit).map(([name]) => name));
}
