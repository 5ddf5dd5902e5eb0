// Stores a correction, once: a request that is sent again carries the same key.

import { toast } from "./parts/toast.js";
import { service } from "./service.js";
import { current, settings, state } from "./state.js";
import { t } from "./words.js";

let pending = { content: "", key: "" };

// rows: the labels of the set and those that a person removed from it.
export async function save(rows) {
  const { found } = state, inside = rows.filter((one) => one.state !== "removed").map((one) => one.name), belongs = new Set(inside);
  const removed = rows.filter((one) => one.state === "removed").map((one) => one.name);
  const correction = {
    text: found.text,
    accepted: inside.filter((name) => found.decided.has(name)),
    added: inside.filter((name) => !found.decided.has(name)),
    removed: [...new Set([...removed, ...[...found.decided].filter((name) => !belongs.has(name))])],
    model: found.model,
    version: found.version,
    ...(settings.user ? { user: settings.user } : {}),
    ...(current().id ? { document: current().id } : {}),
  };
  const content = JSON.stringify(correction);
  if (pending.content !== content) pending = { content, key: key() };
  const stored = await service.correct(correction, pending.key);
  pending = { content: "", key: "" };
  return stored;
}

export async function takeBack(id) {
  try {
    await service.undo(id);
    toast(t("taken_back"));
  } catch (error) {
    toast(error.message, { bad: true });
  }
}

function key() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((one) => one.toString(16).padStart(2, "0")).join("");
}
