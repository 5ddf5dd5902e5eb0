// Two models on the same text: what both say, and what only one says.

import { h, meter, fresh } from "../parts/element.js";
import { empty, loaded } from "../parts/loading.js";
import { service } from "../service.js";
import { current, forget, state } from "../state.js";
import { score, t } from "../words.js";

let other = null;

export function draw(main) {
  const place = h("div", {}), id = fresh("other"), field = fresh("text");
  const names = state.models.map((one) => one.name).filter((name) => name !== state.model);
  main.append(h("h1", {}, t("view_compare")), h("p", { class: "lead" }, t("compare_lead")));
  if (!names.length) return main.append(empty(t("compare_needs_two")));
  other = names.includes(other) ? other : names[0];
  const fetch = () => {
    if (!current().text.trim()) return place.replaceChildren(empty(t("no_text")));
    const answers = Promise.all([state.model, other].map((name) => service.predict(current().text, name, { floor: floor(name) })));
    return loaded(place, answers, table, fetch);
  };
  let later;
  const area = h("textarea", { id: field, rows: 5, spellcheck: "false", placeholder: t("text_placeholder"), oninput: () => {
    current().text = area.value;
    forget();
    clearTimeout(later);
    later = setTimeout(fetch, 180);
  } });
  area.value = current().text;
  const select = h("select", { id, onchange: () => { other = select.value; fetch(); } }, names.map((name) => h("option", { value: name }, name)));
  select.value = other;
  main.append(h("div", { class: "field" }, h("label", { for: field }, t("text")), area),
    h("div", { class: "field inline" }, h("label", { for: id }, t("compare_with", { name: state.model })), select), place);
  fetch();
}

const kind = (name) => state.models.find((one) => one.name === name).kind;
const floor = (name) => (kind(name) === "probability" ? 0.001 : -1e9);

function table(answers) {
  const sides = answers.map((answer) => side(answer));
  const names = [...new Set(sides.flatMap((one) => [...one.decided]))];
  if (!names.length) return empty(t("no_labels"));
  const best = (name) => Math.max(...sides.map((one) => one.scores.get(name) ?? 0));
  const agree = (name) => sides.every((one) => one.decided.has(name));
  names.sort((a, b) => agree(b) - agree(a) || best(b) - best(a));
  const both = names.filter(agree).length;
  const cell = (one, name) => {
    const value = one.scores.get(name);
    return h("td", { class: one.decided.has(name) ? "yes" : "no", "data-head": one.model }, h("span", { class: "score" },
      meter(kind(one.model) === "probability" ? value ?? 0 : 1 / (1 + Math.exp(-(value ?? -9)))),
      h("span", {}, value === undefined ? "–" : score(value, kind(one.model))),
      h("span", { class: "sign", title: t(one.decided.has(name) ? "given" : "not_given") }, one.decided.has(name) ? "✓" : "",
        h("span", { class: "unseen" }, t(one.decided.has(name) ? "given" : "not_given")))));
  };
  return [
    h("p", { class: "note", role: "status" }, t("compare_count", { n: both, first: sides[0].decided.size - both, second: sides[1].decided.size - both, a: sides[0].model, b: sides[1].model })),
    h("table", { class: "compare" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, t("label")), sides.map((one) => h("th", { scope: "col" }, one.model)))),
      h("tbody", {}, names.map((name) => h("tr", { class: agree(name) ? "" : "differs" }, h("th", { scope: "row" }, name), sides.map((one) => cell(one, name)))))),
  ];
}

function side(answer) {
  const [one] = answer.predictions;
  const scores = new Map(one.candidates.labels.map((name, at) => [name, one.candidates.scores[at]]));
  one.labels.forEach((name, at) => scores.set(name, one.scores[at]));
  return { model: answer.model, decided: new Set(one.labels), scores };
}
