// The table of strings in the reader's language; numbers and dates as the language writes them.

import { en } from "./languages/en.js";
import { de } from "./languages/de.js";
import { settings } from "./state.js";

export const TABLES = { en, de };

export function language() {
  if (settings.language in TABLES) return settings.language;
  const wanted = (navigator.languages ?? [navigator.language]).map((one) => one.slice(0, 2));
  return wanted.find((one) => one in TABLES) ?? "en";
}

// A string with its values; a string with two forms is an array: one, several.
export function t(key, values = {}) {
  const found = TABLES[language()][key];
  const form = Array.isArray(found) ? found[values.n === 1 ? 0 : 1] : found;
  return form.replace(/\{(\w+)\}/g, (_, name) => (typeof values[name] === "number" ? number(values[name]) : values[name]));
}

export const number = (value, digits = 0) => new Intl.NumberFormat(language(), { maximumFractionDigits: digits }).format(value);
export const fixed = (value, digits) =>
  new Intl.NumberFormat(language(), { minimumFractionDigits: digits, maximumFractionDigits: digits }).format(value);
export const signed = (value, digits) =>
  new Intl.NumberFormat(language(), { minimumFractionDigits: digits, maximumFractionDigits: digits, signDisplay: "exceptZero" }).format(value).replace("-", "\u2212");
export const percent = (value) => new Intl.NumberFormat(language(), { style: "percent", maximumFractionDigits: 0 }).format(value);

// A score: a probability as a percentage, a margin as a number.
export function score(value, kind) {
  if (kind !== "probability") return fixed(value, 2);
  if (value > 0 && value < 0.01) return `< ${percent(0.01)}`;
  return percent(value > 0.99 && value < 1 ? 0.99 : value);
}

export function when(seconds) {
  return new Intl.DateTimeFormat(language(), { dateStyle: "medium", timeStyle: "short" }).format(new Date(seconds * 1000));
}
