// Every request to the service. A refusal becomes one sentence.

import { t } from "./words.js";
import { settings } from "./state.js";

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export async function ask(path, { method = "GET", json, body, headers = {}, signal, raw = false } = {}) {
  const sent = { ...headers };
  if (json !== undefined) sent["Content-Type"] = "application/json";
  if (settings.token) sent.Authorization = `Bearer ${settings.token}`;
  const content = json === undefined ? body : JSON.stringify(json);
  let answer;
  try {
    answer = await fetch(path, { method: json === undefined ? method : "POST", headers: sent, body: content, signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, t("offline"));
  }
  if (!answer.ok) throw await refused(answer);
  return raw ? answer : answer.json();
}

async function refused(answer) {
  let detail = "";
  try {
    detail = (await answer.json()).detail;
  } catch { /* a proxy may answer with HTML */ }
  if (answer.status === 401) window.dispatchEvent(new Event("token-needed"));
  const known = { 401: "needs_token", 403: "forbidden", 429: "busy", 503: "busy" }[answer.status];
  return new Refused(answer.status, known ? t(known) : detail || t("failed", { status: answer.status }));
}

const at = (name) => `/v1/models/${encodeURIComponent(name)}`;
const admin = (name) => `/v1/admin/models/${encodeURIComponent(name)}`;
const query = (values) => new URLSearchParams(Object.entries(values).filter(([, value]) => value !== null && value !== undefined));

export const service = {
  models: () => ask("/v1/models"),
  predict: (text, model, options, signal) => ask("/v1/predict", { json: { texts: [text], model, ...options }, signal }),
  explain: (text, model, labels, signal) => ask("/v1/explain", { json: { text, model, labels }, signal }),
  labels: (q, model, limit = 12, signal) => ask(`/v1/labels?${query({ q, model, limit })}`, { signal }),
  below: (parent, model) => ask(`/v1/labels?${query({ parent, model, limit: 1000 })}`),
  extract: (file, kind) => ask(`/v1/extract?${query({ kind })}`, { method: "POST", body: file }),
  promise: (model, goal) => ask(`${at(model)}/promise?${query({ goal })}`),
  drift: (model) => ask(`${at(model)}/drift`),
  errors: (model, label) => ask(`${at(model)}/errors?${query({ label, limit: 50 })}`),
  map: (model) => ask(`${at(model)}/map`),
  next: (model) => ask(`/v1/next?${query({ model, limit: 20 })}`),
  correct: (correction, key) => ask("/v1/corrections", { json: correction, headers: { "Idempotency-Key": key } }),
  undo: (id) => ask(`/v1/corrections/${id}`, { method: "DELETE" }),
  corrections: (limit) => ask(`/v1/corrections?${query({ newest: true, limit })}`),
  disagreements: () => ask("/v1/corrections/disagreements"),
  exported: () => ask("/v1/corrections/export", { raw: true }),
  learn: (model) => ask(`${admin(model)}/learn`, { method: "POST" }),
  candidate: (model) => ask(`${at(model)}/candidate`),
  live: (model) => ask(`${admin(model)}/live`, { method: "POST" }),
  back: (model) => ask(`${admin(model)}/back`, { method: "POST" }),
};
