// The table of errors on the test documents.

import { h, short } from "../parts/element.js";
import { LabelBox } from "../parts/label_box.js";
import { empty, loaded } from "../parts/loading.js";
import { service } from "../service.js";
import { open, state } from "../state.js";
import { t } from "../words.js";

export function draw(main, show) {
  const place = h("div", {});
  main.append(h("h1", {}, t("view_errors")), h("p", { class: "lead" }, t("errors_lead")));
  if (!state.testDocuments) return main.append(empty(t("errors_need_test")));
  const fetch = (label) => loaded(place, service.errors(state.model, label), (answer) => table(answer, label, show), () => fetch(label));
  const box = new LabelBox({ label: t("errors_of"), placeholder: t("all_labels"), model: () => state.model, keepText: true, onpick: fetch });
  box.input.addEventListener("input", () => { if (!box.input.value) fetch(null); });
  main.append(h("div", { class: "adding" }, box.node, h("button", { onclick: () => { box.input.value = ""; fetch(null); } }, t("all_labels"))), place);
  fetch(null);
}

function table(answer, label, show) {
  if (!answer.errors.length) return empty(label ? t("errors_none_label", { label }) : t("errors_none"));
  const tags = (names, class_) => h("td", { "data-head": t(class_) }, names.length
    ? h("ul", { class: "tags" }, names.map((name) => h("li", { class: `tag ${class_}` }, name))) : "–");
  const open_ = (row) => {
    open([{ id: row.id, text: row.text }], row.id);
    show("label");
  };
  const rows = answer.errors.map((row) => h("tr", {},
    h("th", { scope: "row" }, h("button", { class: "link", onclick: () => open_(row) }, row.id), h("p", { class: "excerpt" }, short(row.text, 140))),
    tags(row.missed, "missed"), tags(row.wrong, "wrong")));
  return [
    h("p", { class: "note", role: "status" }, t("errors_count", { n: answer.with_errors, all: answer.documents, shown: answer.errors.length })),
    h("table", { class: "stack" }, h("thead", {}, h("tr", {}, ["document", "missed", "wrong"].map((key) => h("th", { scope: "col" }, t(key))))), h("tbody", {}, rows)),
  ];
}
