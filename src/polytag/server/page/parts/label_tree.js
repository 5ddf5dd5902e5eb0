// Browse the labels in a dialog: the tree where there is one, otherwise the most frequent labels.

import { h, fresh } from "./element.js";
import { service } from "../service.js";
import { number, t } from "../words.js";

export async function browse({ model, onpick, chosen }) {
  const id = fresh("tree");
  const tree = h("ul", { role: "tree", "aria-labelledby": `${id}-title`, class: "tree" });
  const dialog = h("dialog", { class: "browse", "aria-labelledby": `${id}-title`, onclose: () => dialog.remove() },
    h("header", {}, h("h2", { id: `${id}-title` }, t(model.tree ? "browse_tree" : "browse_frequent")),
      h("button", { onclick: () => dialog.close() }, t("done"))),
    h("p", { class: "note" }, t(model.tree ? "browse_keys" : "browse_flat")), tree);
  document.body.append(dialog);
  dialog.showModal();
  const pick = (item) => {
    const name = item.dataset.label;
    onpick(name);
    item.setAttribute("aria-selected", String(chosen(name)));
  };
  const answer = model.tree ? await service.below("", model.name) : await service.labels("", model.name, 200);
  fill(tree, answer.labels, { model, pick, chosen, level: 1 });
  tree.addEventListener("keydown", (event) => keys(event, tree, pick));
  const first = tree.querySelector("[role=treeitem]");
  if (first) {
    first.tabIndex = 0;
    first.focus();
  }
}

function fill(list, labels, context) {
  const rows = [...labels].sort((a, b) => b.count - a.count || a.name.localeCompare(b.name));
  list.replaceChildren(...rows.map((one) => item(one, context)));
}

// The group of a branch stands after its item, not inside of it: the item's name is then its own line.
function item(one, context) {
  const branch = Boolean(one.children), box = h("li", { role: "none" });
  const toggle = h("span", { class: "toggle", "aria-hidden": "true" });
  const node = h("div", { role: "treeitem", tabindex: -1, "aria-level": context.level, "aria-expanded": branch ? "false" : null,
    "aria-selected": String(context.chosen(one.name)), "data-label": one.name, class: "line", onclick: () => { move(node); context.pick(node); } },
    toggle, h("span", { class: "option-name" }, one.name),
    one.description && one.description !== one.name && h("span", { class: "note" }, one.description),
    one.count > 0 && h("span", { class: "count", title: t("count_title") }, number(one.count)));
  node.expand = async (on) => {
    if (on && !box.querySelector("ul")) {
      const group = h("ul", { role: "group" });
      fill(group, (await service.below(one.name, context.model.name)).labels, { ...context, level: context.level + 1 });
      box.append(group);
    }
    node.setAttribute("aria-expanded", String(on));
  };
  toggle.addEventListener("click", (event) => {
    if (!branch) return;
    event.stopPropagation();
    node.expand(node.getAttribute("aria-expanded") === "false");
  });
  box.append(node);
  return box;
}

function move(to) {
  to.closest("[role=tree]").querySelectorAll("[tabindex='0']").forEach((one) => { one.tabIndex = -1; });
  to.tabIndex = 0;
  to.focus();
}

function keys(event, tree, pick) {
  const node = event.target, open = node.getAttribute("aria-expanded");
  const seen = [...tree.querySelectorAll("[role=treeitem]")].filter((one) => one.checkVisibility());
  const at = seen.indexOf(node), above = node.closest("[role=group]")?.previousElementSibling;
  if (event.key === "ArrowDown" && seen[at + 1]) move(seen[at + 1]);
  else if (event.key === "ArrowUp" && seen[at - 1]) move(seen[at - 1]);
  else if (event.key === "Home") move(seen[0]);
  else if (event.key === "End") move(seen.at(-1));
  else if (event.key === "ArrowRight" && open === "false") node.expand(true);
  else if (event.key === "ArrowRight" && open === "true") move(seen[at + 1]);
  else if (event.key === "ArrowLeft" && open === "true") node.expand(false);
  else if (event.key === "ArrowLeft" && above) move(above);
  else if (event.key === "Enter" || event.key === " ") pick(node);
  else return;
  event.preventDefault();
}
