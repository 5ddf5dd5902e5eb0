// Learn from corrections: make a candidate, show what it would change, let a person decide whether it goes live.

import { h } from "./element.js";
import { toast } from "./toast.js";
import { service } from "../service.js";
import { forget, model, state } from "../state.js";
import { fixed, signed, t } from "../words.js";

const METRICS = ["micro_f1", "macro_f1", "micro_precision", "micro_recall", "p@5", "subset_accuracy"];
const LABELS = 12; // labels whose changes are listed

export function learning(standing, redraw) {
  const result = h("div", { class: "difference", "aria-live": "polite" });
  const learn = h("button", { class: "primary", disabled: !standing, onclick: () => run(learn, result, redraw) }, t("learn_button"));
  const back = h("button", { onclick: () => goBack(redraw) }, t("back_button"));
  const box = h("section", { class: "card learn" }, h("h2", {}, t("learn")), h("p", {}, t("learn_note", { name: state.model })),
    h("p", { class: "acts" }, learn, model().previous && back), result);
  if (model().candidate) service.candidate(state.model).then((found) => result.replaceChildren(...difference(found, redraw, result)), () => {});
  return box;
}

async function run(button, result, redraw) {
  button.disabled = true;
  result.replaceChildren(h("p", { class: "note loading" }, t("learning")));
  try {
    const found = await service.learn(state.model);
    await changed();
    result.replaceChildren(...difference(found, redraw, result));
  } catch (error) {
    result.replaceChildren(h("p", { class: "notice" }, error.message));
  }
  button.disabled = false;
}

async function changed() {
  state.models = (await service.models()).models;
  forget();
}

async function goBack(redraw) {
  try {
    await service.back(state.model);
    await changed();
    toast(t("went_back"));
    redraw();
  } catch (error) {
    toast(error.message, { bad: true });
  }
}

function difference(found, redraw, result) {
  const { test, corrections } = found.difference, shown = test ?? corrections;
  const live = h("button", { class: "primary live", onclick: () => goLive(live, redraw, result) }, t("live_button"));
  return [
    h("h3", {}, t("difference")), h("p", { class: "note" }, t("learned", { n: found.corrections, seconds: fixed(found.seconds, 1) })),
    metrics(shown, Boolean(test)), test && h("details", {}, h("summary", {}, t("on_corrections")), metrics(corrections, false)), changes(shown),
    h("p", { class: "acts" }, h("button", { onclick: () => result.replaceChildren() }, t("not_now")), live),
  ].filter(Boolean);
}

function metrics(shown, tested) {
  const rows = shown.metrics.filter((row) => METRICS.includes(row.metric));
  const sign = (row) => (Math.abs(row.difference) < 5e-4 ? "same" : row.difference > 0 ? "good" : "bad");
  return h("table", { class: "numbers" }, h("caption", {}, t(tested ? "metrics_test" : "metrics_corrections", { n: shown.documents })),
    h("thead", {}, h("tr", {}, ["metric", "before", "after", "change"].map((key) => h("th", { scope: "col" }, t(key))))),
    h("tbody", {}, rows.map((row) => h("tr", {}, h("th", { scope: "row" }, t(`metric_${row.metric}`)), h("td", {}, fixed(row.old, 3)),
      h("td", {}, fixed(row.new, 3)), h("td", { class: sign(row) }, signed(row.difference, 3))))));
}

function changes(shown) {
  const { changes: all } = shown;
  if (!all.changes) return h("p", {}, t("changes_none"));
  const line = (row) => h("tr", {}, h("th", { scope: "row" }, row.label), h("td", {}, signed(row.gained, 0)), h("td", {}, signed(-row.lost, 0)));
  return h("details", { open: true }, h("summary", {}, t("changes_count", { n: all.changed_documents, all: all.documents })),
    h("table", { class: "numbers" }, h("caption", { class: "unseen" }, t("changes")),
      h("thead", {}, h("tr", {}, ["label", "gained", "lost"].map((key) => h("th", { scope: "col" }, t(key))))),
      h("tbody", {}, all.rows.slice(0, LABELS).map(line))));
}

async function goLive(button, redraw, result) {
  button.disabled = true;
  try {
    const found = await service.live(state.model);
    await changed();
    toast(t("went_live", { version: found.version }));
    result.replaceChildren();
    redraw();
  } catch (error) {
    toast(error.message, { bad: true });
    button.disabled = false;
  }
}
