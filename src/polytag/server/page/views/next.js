// The queue: texts that are most useful to label next.

import { h, meter, short } from "../parts/element.js";
import { empty, loaded } from "../parts/loading.js";
import { service } from "../service.js";
import { open, state } from "../state.js";
import { percent, t } from "../words.js";

export function draw(main, show) {
  const place = h("div", {});
  main.append(h("h1", {}, t("view_next")), h("p", { class: "lead" }, t("next_lead")), place);
  if (!state.poolDocuments) return place.append(empty(t("next_needs_pool")));
  loaded(place, service.next(state.model), (answer) => list(answer.texts, show), () => draw(main, show));
}

function list(texts, show) {
  if (!texts.length) return empty(t("next_done"));
  const begin = (at) => {
    open(texts.slice(at).map(({ id, text }) => ({ id, text })), "next");
    show("label");
  };
  const most = Math.max(...texts.map((one) => one.uncertainty), 1e-9);
  return [
    h("p", { class: "acts start" }, h("button", { class: "primary", onclick: () => begin(0) }, t("next_begin"))),
    h("ol", { class: "queue" }, texts.map((one, at) => h("li", {},
      h("button", { class: "card wide", onclick: () => begin(at) },
        h("span", { class: "excerpt" }, short(one.text)),
        h("span", { class: "unsure" }, meter(one.uncertainty / most), h("span", {}, t("uncertainty", { value: percent(one.uncertainty / most) }))))))),
  ];
}
