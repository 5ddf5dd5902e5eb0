// Makes elements. Text is always text: nothing from a document or a label is ever parsed as HTML.

export function h(name, options, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(options ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "value" || key === "checked" || key === "disabled") node[key] = value;
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat(3).filter((one) => one !== null && one !== undefined && one !== false));
  return node;
}

const SVG = "http://www.w3.org/2000/svg";
const PATHS = {
  accept: "M4 10.5l4 4 8-9", remove: "M5 5l10 10M15 5L5 15", add: "M10 4v12M4 10h12", undo: "M7 5L3 9l4 4M3 9h9a4 4 0 010 8h-3",
  file: "M5 3h6l4 4v10H5zM11 3v4h4", left: "M12 4l-6 6 6 6", right: "M8 4l6 6-6 6", tree: "M4 4h5v4H4zM11 12h5v4h-5zM6 8v6h5",
  gear: "M4 6h12M4 14h12M8 4v4M13 12v4", down: "M10 3v10M5 9l5 5 5-5M4 17h12", out: "M4 10h12M11 5l5 5-5 5",
};

export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 20 20");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", PATHS[name]);
  svg.append(path);
  return svg;
}

let last = 0;
export const fresh = (stem) => `${stem}-${++last}`; // an id for a label and what it labels

export function short(text, most = 220) {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length <= most ? line : `${line.slice(0, line.lastIndexOf(" ", most) > 40 ? line.lastIndexOf(" ", most) : most)} …`;
}

export function meter(share, class_ = "") {
  const fill = h("span", { class: "fill" });
  fill.style.setProperty("--share", Math.max(0, Math.min(1, share)));
  return h("span", { class: `meter ${class_}`, "aria-hidden": "true" }, fill);
}

export function sentence(text) {
  document.getElementById("said").textContent = text;
}
