// What the page knows: settings that outlive a visit, and the text at hand.

const KEYS = ["colours", "language", "user"];

function stored(key) {
  try {
    return localStorage.getItem(`polytag.${key}`) ?? "";
  } catch {
    return "";
  }
}

export const settings = { token: "", ...Object.fromEntries(KEYS.map((key) => [key, stored(key)])) };

export function keep(key, value) {
  settings[key] = value;
  try {
    localStorage.setItem(`polytag.${key}`, value);
  } catch { /* it holds for this visit */ }
}

export const state = {
  models: [], // as the service describes them
  model: null, // the name of the chosen one
  testDocuments: 0,
  poolDocuments: 0,
  documents: [{ id: null, text: "" }], // of a file, or the one that was pasted
  at: 0,
  source: "", // name of the file, or "next" for the queue
  found: null, // the last prediction: {text, model, version, decided, scores, ask}
  edits: new Map(), // label -> "in" or "out"
  history: [], // what can be undone
  way: "model", // how the set is chosen: model, threshold or promise
  threshold: 0.5,
  promise: { goal: "recall", value: 0.9, kept: null },
};

export const model = () => state.models.find((one) => one.name === state.model);
export const current = () => state.documents[state.at];

export function open(documents, source) {
  Object.assign(state, { documents, source, at: 0 });
  forget();
}

export function forget() {
  state.found = null;
  state.edits.clear();
  state.history = [];
}
