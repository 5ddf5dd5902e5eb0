// What people corrected: the list, disagreements, export, and learning from it.

import { h, icon, short } from "../parts/element.js";
import { empty, loaded } from "../parts/loading.js";
import { learning } from "../parts/learning.js";
import { toast } from "../parts/toast.js";
import { service } from "../service.js";
import { open } from "../state.js";
import { t, when } from "../words.js";

const SHOWN = 50;

export function draw(main, show) {
  const lists = h("div", {});
  main.append(h("h1", {}, t("view_corrections")), h("p", { class: "lead" }, t("corrections_lead")), lists);
  const redraw = () => loaded(lists, Promise.all([service.corrections(SHOWN), service.disagreements()]), ([found, disputed]) =>
    parts(found, disputed.texts, show, redraw), redraw);
  redraw();
}

function parts(found, disputed, show, redraw) {
  if (!found.corrections.length) {
    return empty(t("corrections_none"), h("a", { class: "button primary", href: "#/label" }, t("corrections_first")));
  }
  return [
    h("div", { class: "split" },
      h("section", { class: "card" }, h("h2", {}, t("export")), h("p", {}, t("export_note", { n: found.standing })),
        h("p", { class: "acts" }, h("button", { onclick: download }, icon("down"), t("export_button")))),
      learning(found.standing, redraw)),
    disputed.length > 0 && disagreements(disputed, show),
    h("section", {}, h("h2", {}, t("history")), history(found.corrections, show, redraw)),
  ].filter(Boolean);
}

async function download() {
  try {
    const answer = await service.exported();
    const link = h("a", { href: URL.createObjectURL(await answer.blob()), download: "corrections.jsonl" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    toast(t("exported"));
  } catch (error) {
    toast(error.message, { bad: true });
  }
}

const tags = (names, class_) => names.map((name) => h("li", { class: `tag ${class_}` }, h("span", { class: "unseen" }, `${t(`state_${class_}`)}: `), name));

function history(rows, show, redraw) {
  const take = async (row) => {
    try {
      await service.undo(row.id);
      toast(t("taken_back"));
      redraw();
    } catch (error) {
      toast(error.message, { bad: true });
    }
  };
  const line = (row) => h("li", { class: row.undone ? "card undone" : "card" },
    h("p", { class: "note" }, h("b", {}, row.user), ` · ${when(row.time)} · ${row.model} `, row.undone ? h("span", { class: "badge" }, t("undone_badge")) : null),
    h("button", { class: "link excerpt", onclick: () => { open([{ id: row.document, text: row.text }], ""); show("label"); } }, short(row.text, 160)),
    h("ul", { class: "tags" }, tags(row.accepted, "accepted"), tags(row.added, "added"), tags(row.removed, "removed")),
    !row.undone && h("button", { class: "plain take", onclick: () => take(row) }, icon("undo"), t("undo"), h("span", { class: "unseen" }, `: ${short(row.text, 40)}`)));
  return h("ul", { class: "history" }, rows.map(line));
}

function disagreements(texts, show) {
  const line = ({ text, document, labels }) => h("li", { class: "card" },
    h("button", { class: "link excerpt", onclick: () => { open([{ id: document, text }], ""); show("label"); } }, short(text, 160)),
    h("ul", { class: "votes" }, Object.entries(labels).map(([label, votes]) => h("li", {}, h("b", {}, label), " ",
      h("span", { class: "good" }, t("votes_for", { who: votes.for.join(", ") })), " · ", h("span", { class: "bad" }, t("votes_against", { who: votes.against.join(", ") }))))));
  return h("section", {}, h("h2", {}, t("disagreements")), h("p", { class: "note" }, t("disagreements_note")), h("ul", { class: "history" }, texts.map(line)));
}
