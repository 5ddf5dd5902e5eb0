// The text: paste it, type it, drop a file, and see the words that speak for a label marked in place.

import { h, icon, fresh } from "./element.js";
import { toast } from "./toast.js";
import { service } from "../service.js";
import { current, open, state } from "../state.js";
import { t } from "../words.js";

const KINDS = { txt: "txt", text: "txt", md: "txt", csv: "csv", tsv: "tsv", jsonl: "jsonl", ndjson: "jsonl", docx: "docx", pdf: "pdf" };
const LARGEST = 8_000_000; // bytes, as the service accepts
const LEVELS = 5;

export class TextPane {
  constructor({ ontext, ondocument }) {
    Object.assign(this, { ontext, ondocument });
    const id = fresh("text");
    this.marks = h("div", { class: "marks", "aria-hidden": "true" });
    this.area = h("textarea", { id, spellcheck: "false", placeholder: t("text_placeholder"), oninput: () => this.typed() });
    this.picker = h("input", { type: "file", class: "unseen", tabindex: -1, "aria-hidden": "true", accept: ".txt,.text,.md,.csv,.tsv,.jsonl,.ndjson,.docx,.pdf",
      onchange: () => { if (this.picker.files[0]) this.read(this.picker.files[0]); this.picker.value = ""; } });
    this.clear = h("button", { class: "plain", onclick: () => this.empty() }, t("clear"));
    this.steps = h("div", { class: "steps" });
    this.node = h("section", { class: "card text", "aria-labelledby": `${id}-title` },
      h("header", {}, h("h2", { id: `${id}-title` }, h("label", { for: id }, t("text"))),
        h("div", { class: "acts" }, this.clear, h("button", { onclick: () => this.picker.click() }, icon("file"), t("open_file")), this.picker)),
      this.steps, h("div", { class: "paper" }, this.marks, this.area));
    this.drops();
    this.show();
  }

  show() {
    this.area.value = current().text;
    this.mark([]);
    this.clear.hidden = !current().text;
    const many = state.documents.length > 1;
    const step = (by, name) => h("button", { class: "plain", "aria-label": t(name), title: t(name),
      disabled: !(state.at + by in state.documents), onclick: () => this.ondocument(state.at + by) }, icon(by < 0 ? "left" : "right"));
    const where = t("document_of", { at: state.at + 1, n: state.documents.length });
    const source = state.source === "next" ? t("view_next") : state.source;
    this.steps.replaceChildren(...(state.source ? [h("p", {}, h("b", {}, source), many ? ` · ${where}` : ""),
      ...(many ? [h("span", {}, step(-1, "document_before"), step(1, "document_after"))] : [])] : []));
    this.steps.hidden = !state.source;
  }

  typed() {
    current().text = this.area.value;
    this.clear.hidden = !this.area.value;
    this.mark([]);
    this.ontext();
  }

  empty() {
    open([{ id: null, text: "" }], "");
    this.show();
    this.area.focus();
    this.ontext();
  }

  async read(file) {
    const kind = KINDS[file.name.split(".").pop().toLowerCase()] ?? (file.type.startsWith("text/") ? "txt" : null);
    if (!kind) return toast(t("file_kind", { name: file.name }), { bad: true });
    if (file.size > LARGEST) return toast(t("file_large", { name: file.name }), { bad: true });
    this.node.setAttribute("aria-busy", "true");
    try {
      const documents = (await service.extract(file, kind)).documents.filter((one) => one.text.trim());
      if (!documents.length) return toast(t("file_empty", { name: file.name }), { bad: true });
      open(documents.map((one) => ({ ...one, id: documents.length > 1 ? one.id : file.name })), file.name);
      this.show();
      this.ontext();
    } catch (error) {
      toast(t("file_failed", { name: file.name, why: error.message }), { bad: true });
    } finally {
      this.node.removeAttribute("aria-busy");
    }
  }

  drops() {
    const over = (on) => (event) => {
      event.preventDefault();
      this.node.classList.toggle("over", on);
    };
    this.node.addEventListener("dragover", over(true));
    this.node.addEventListener("dragleave", over(false));
    this.node.addEventListener("drop", (event) => {
      over(false)(event);
      const [file] = event.dataTransfer.files;
      const text = event.dataTransfer.getData("text/plain");
      if (file) this.read(file);
      else if (text) {
        this.area.value = text;
        this.typed();
      }
    });
  }

  // Lay marks under the words; the text of this layer is invisible and has the same places as that of the field.
  mark(words) {
    const text = this.area.value, places = offsets(text), most = Math.max(...words.map((word) => Math.abs(word.contribution)), 1e-9);
    const parts = [];
    let end = 0;
    for (const word of [...words].sort((a, b) => a.start - b.start)) {
      const from = places(word.start), to = places(word.end);
      const level = Math.ceil((Math.abs(word.contribution) / most) * LEVELS - 0.4);
      if (from < end || level < 1) continue;
      parts.push(text.slice(end, from), h("mark", { class: `${word.contribution > 0 ? "for" : "against"}-${level}` }, text.slice(from, to)));
      end = to;
    }
    this.marks.replaceChildren(...parts, `${text.slice(end)}\u200b\n`);
  }
}

// The service counts code points, the browser UTF-16 units.
function offsets(text) {
  if (!/[\ud800-\udbff]/.test(text)) return (at) => at;
  const units = [0];
  for (const sign of text) units.push(units.at(-1) + sign.length);
  return (at) => units[at] ?? text.length;
}
