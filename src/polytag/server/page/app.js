// Starts the page: header, views by address, language, colours, token.

import { h, icon, sentence, fresh } from "./parts/element.js";
import { toast } from "./parts/toast.js";
import { popover } from "./parts/popover.js";
import { service } from "./service.js";
import { forget, keep, model, settings, state } from "./state.js";
import { TABLES, language, t } from "./words.js";
import * as label from "./views/label.js";
import * as next from "./views/next.js";
import * as corrections from "./views/corrections.js";
import * as compare from "./views/compare.js";
import * as errors from "./views/errors.js";
import * as map from "./views/map.js";

const VIEWS = { label, next, corrections, compare, errors, map };
const header = document.getElementById("header");
const main = document.getElementById("main");

const wanted = () => (location.hash.replace(/^#\//, "") in VIEWS ? location.hash.slice(2) : "label");

export function show(name) {
  if (location.hash === `#/${name}`) drawView();
  else location.hash = `#/${name}`;
}

function drawView() {
  const name = wanted();
  document.title = `${t(`view_${name}`)} – Polytag`;
  for (const link of header.querySelectorAll("nav a")) {
    const here = link.getAttribute("href") === `#/${name}`;
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
    if (here) link.parentElement.parentElement.scrollLeft = link.offsetLeft - 60;
  }
  main.replaceChildren();
  main.className = `view-${name}`;
  VIEWS[name].draw(main, show);
}

function draw() {
  document.documentElement.lang = language();
  const skip = document.getElementById("skip");
  skip.textContent = t("skip");
  header.replaceChildren(
    h("a", { class: "brand", href: "#/label" }, h("img", { src: "icon.svg", alt: "", width: 26, height: 26 }), "Polytag"),
    h("nav", { "aria-label": t("views") }, h("ul", {}, Object.keys(VIEWS).filter(useful).map((name) =>
      h("li", {}, h("a", { href: `#/${name}` }, t(`view_${name}`)))))),
    h("div", { class: "tools" }, modelChoice(), settingsMenu()),
  );
  if (state.models.length) drawView();
}

const useful = (name) => name !== "compare" || state.models.length > 1;

function modelChoice() {
  const id = fresh("model");
  const select = h("select", { id, onchange: () => choose(select.value) },
    state.models.map((one) => h("option", { value: one.name }, one.name)));
  select.value = state.model ?? "";
  return h("div", { class: "field inline model" }, h("label", { for: id }, t("model")), select);
}

function choose(name) {
  state.model = name;
  state.threshold = model().threshold ?? 0.5;
  state.promise.kept = null;
  forget();
  sentence(t("model_chosen", { name }));
  drawView();
}

function settingsMenu() {
  const choice = (key, values, apply) => {
    const id = fresh(key);
    const select = h("select", { id, onchange: () => { keep(key, select.value); apply(); } },
      values.map(([value, text]) => h("option", { value }, text)));
    select.value = key === "language" ? language() : settings[key] || values[0][0];
    return h("div", { class: "field" }, h("label", { for: id }, t(`setting_${key}`)), select);
  };
  const user = fresh("user");
  return popover("settings", icon("gear"), t("settings"), [
    choice("language", Object.keys(TABLES).map((one) => [one, TABLES[one].language_name]), () => {
      draw();
      header.querySelector(".popover > button").focus();
    }),
    choice("colours", ["system", "light", "dark"].map((one) => [one, t(`colours_${one}`)]), colour),
    h("div", { class: "field" }, h("label", { for: user }, t("setting_user")),
      h("input", { id: user, value: settings.user, maxlength: 200, autocomplete: "name", placeholder: t("anonymous"),
        onchange: (event) => keep("user", event.target.value.trim()) }),
      h("p", { class: "note" }, t("setting_user_note"))),
  ]);
}

function colour() {
  const root = document.documentElement;
  if (settings.colours === "light" || settings.colours === "dark") root.dataset.colours = settings.colours;
  else delete root.dataset.colours;
  window.dispatchEvent(new Event("colours"));
}

function askToken() {
  if (document.querySelector("dialog[open]")) return;
  const id = fresh("token");
  const input = h("input", { id, type: "password", autocomplete: "current-password", required: true });
  const dialog = h("dialog", { class: "narrow", "aria-labelledby": `${id}-title`, onclose: () => dialog.remove() },
    h("form", { method: "dialog", onsubmit: () => { settings.token = input.value.trim(); start(); } },
      h("h2", { id: `${id}-title` }, t("token_title")), h("p", {}, t("token_why")),
      h("div", { class: "field" }, h("label", { for: id }, t("token")), input),
      h("p", { class: "acts" }, h("button", { class: "primary" }, t("sign_in")))));
  document.body.append(dialog);
  dialog.showModal();
}

export async function start() {
  try {
    const answer = await service.models();
    state.models = answer.models;
    state.testDocuments = answer.test_documents ?? 0;
    state.poolDocuments = answer.pool_documents ?? 0;
    state.model = state.models.some((one) => one.name === state.model) ? state.model : state.models[0].name;
    state.threshold = model().threshold ?? 0.5;
    draw();
  } catch (error) {
    draw();
    main.replaceChildren(h("div", { class: "empty" }, h("h1", {}, t("not_reached")), h("p", {}, error.message),
      h("button", { onclick: start }, t("again"))));
  }
}

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
window.addEventListener("hashchange", () => {
  drawView();
  main.focus({ preventScroll: true });
  window.scrollTo(0, 0);
});
window.addEventListener("token-needed", askToken);
window.addEventListener("unhandledrejection", (event) => {
  if (event.reason?.name === "AbortError") event.preventDefault();
  else if (event.reason?.status !== undefined) {
    event.preventDefault();
    toast(event.reason.message, { bad: true });
  }
});
start();
