// English. A list has two forms: for one, and for several.

export const en = {
  language_name: "English",
  skip: "Skip to the content", views: "Views", model: "Model", settings: "Settings", close: "Close", done: "Done", again: "Try again", loading: "One moment …",
  view_label: "Label", view_next: "Label next", view_corrections: "Corrections", view_compare: "Compare", view_errors: "Errors", view_map: "Label map",
  setting_language: "Language", setting_colours: "Colours", setting_user: "Your name",
  setting_user_note: "Your corrections carry this name.", anonymous: "anonymous",
  colours_system: "As the system", colours_light: "Light", colours_dark: "Dark",
  model_chosen: "Model {name}",

  not_reached: "The service does not answer", offline: "The service cannot be reached. Check that it runs, then try again.",
  failed: "The service could not answer (status {status}).", busy: "The service has too much to do. Try again in a moment.",
  needs_token: "This service needs a token.", forbidden: "Your token does not allow this.",
  token_title: "Sign in", token_why: "This service answers people with a token. Whoever runs it can give you one. It is kept until you close this page.",
  token: "Token", sign_in: "Sign in",

  text: "Text", text_placeholder: "Paste a text here, or drop a file: plain text, CSV, JSON lines, PDF or DOCX.",
  open_file: "Open a file", clear: "Clear", document_of: "document {at} of {n}", document_before: "Previous document", document_after: "Next document",
  file_kind: "{name} is no text, CSV, JSON lines, PDF or DOCX file.", file_large: "{name} is larger than 8 MB. Send a large file as a job.",
  file_empty: "{name} has no text.", file_failed: "{name} was not read: {why}",

  labels: "Labels", label: "Label", labels_in: "Labels of the text", labels_out: "Further suggestions", show_more: "Show more",
  no_text: "Labels appear here as soon as there is a text.", no_labels: "No label fits well enough. Lower the threshold, or add a label yourself.",
  unsure: "The model is unsure about this text. Please check its labels.", set_size: ["{n} label", "{n} labels"],
  add_label: "Add a label", add_placeholder: "Type a part of its name", browse: "Browse", no_label: "No label has this name.",
  count_title: "Training documents with this label", documents: ["{n} document", "{n} documents"],
  browse_tree: "All labels", browse_frequent: "Most frequent labels",
  browse_keys: "Enter adds a label or removes it; the arrow keys open and close branches.", browse_flat: "Enter adds a label or removes it.",

  ways: "Which labels", way_model: "Model's choice", way_threshold: "Threshold", way_promise: "Promise",
  way_model_note: "Thresholds were fitted on documents that the model had not seen.", way_model_promise: "The model keeps the promise {promise}.",
  way_threshold_note: "All labels with at least this probability.", threshold: "Threshold", promise: "Promise", at_least: "At least",
  goal_recall: "Find the right labels (recall)", goal_precision: "Give right labels (precision)",
  promise_note: "Threshold {threshold}. On {n} test documents: {labels} labels per text, {recall} of the right labels found, {precision} of the given labels right.",
  promise_needs_test: "A promise is computed from labelled documents. Start the service with --test FILE.",

  drifted: "The texts that arrive differ from those of training. Check the labels with care.",
  promise_broken: "The promise {promise} no longer stands: corrections contradict it.", promise_drifted: "The promise {promise} no longer stands: the texts that arrive differ from those of training.",

  add: "Add", accept: "Accept", remove: "Remove", restore: "Restore",
  did_add: "{label} added", did_accept: "{label} accepted", did_remove: "{label} removed", did_restore: "{label} restored", undone: "Undone",
  state_kept: "suggested", state_accepted: "accepted", state_added: "added", state_removed: "removed", state_candidate: "not in the set",
  undo: "Undo", save: ["Save {n} label", "Save {n} labels"], save_next: ["Save {n} label, go on", "Save {n} labels, go on"],
  saved: ["Saved with {n} label.", "Saved with {n} labels."], not_saved: "Not saved: {why}", taken_back: "The correction was undone.",

  why: "Why this label?", why_hint: "Point at a label, or move to it with the arrow keys. The words that speak for it are marked in the text.",
  why_for: "For it", why_against: "Against it", why_none: "No word.", why_long: "The text is too long to explain. Shorten it to 20,000 characters.",

  next_lead: "Texts from which the model would learn most: it is unsure about them, and they differ from each other.",
  next_needs_pool: "There are no unlabelled texts. Start the service with --pool FILE.", next_done: "All texts of the pool are labelled.",
  next_begin: "Begin with the first", uncertainty: "unsure: {value}",

  errors_lead: "Test documents with missed or wrong labels, most errors first.", errors_of: "Errors about one label", all_labels: "All labels",
  errors_need_test: "There are no labelled documents. Start the service with --test FILE.", errors_none: "There is no error on the test documents.",
  errors_none_label: "No error about {label}.", errors_count: ["{n} of {all} documents has errors; {shown} shown.", "{n} of {all} documents have errors; {shown} shown."],
  document: "Document", missed: "Missed", wrong: "Wrong",

  compare_lead: "Two models label the same text.", compare_needs_two: "There is one model only. Start the service with two runs.",
  compare_with: "Compare {name} with", compare_count: ["{n} label from both, {first} only from {a}, {second} only from {b}.", "{n} labels from both, {first} only from {a}, {second} only from {b}."],
  given: "given", not_given: "not given",

  corrections_lead: "What people said about the labels of texts. Nothing is overwritten; everything can be undone.",
  corrections_none: "There are no corrections yet.", corrections_first: "Label a text", history: "Latest corrections", undone_badge: "undone",
  export: "Export", export_note: ["{n} correction stands. The export is a corpus of JSON lines to train on.", "{n} corrections stand. The export is a corpus of JSON lines to train on."],
  export_button: "Export corrections", exported: "The corrections were downloaded.",
  disagreements: "Disagreements", disagreements_note: "People disagree on these texts. The export leaves them out until they agree.",
  votes_for: "for: {who}", votes_against: "against: {who}",

  learn: "Learn", learn_note: "{name} can learn from new corrections. You see what changes before anything goes live.", learn_button: "Learn now",
  learning: "Learning. This takes seconds.", learned: ["Learned from {n} text in {seconds} s. It is not live yet.", "Learned from {n} texts in {seconds} s. It is not live yet."],
  difference: "Before and after", metrics_test: ["On {n} test document", "On {n} test documents"], metrics_corrections: ["On {n} corrected text", "On {n} corrected texts"],
  on_corrections: "On the corrected texts", metric: "Metric", before: "Before", after: "After", change: "Change",
  metric_micro_f1: "micro-F1", metric_macro_f1: "macro-F1", metric_micro_precision: "Precision", metric_micro_recall: "Recall", "metric_p@5": "Precision at 5",
  metric_subset_accuracy: "Exact sets",
  changes: "Labels that change", changes_none: "No document changes its labels.", gained: "Gained", lost: "Lost",
  changes_count: ["{n} of {all} documents changes its labels", "{n} of {all} documents change their labels"],
  live_button: "Go live", not_now: "Not now", went_live: "Version {version} is live.", back_button: "Back to the version before", went_back: "The version before is live again.",

  map_lead: "Labels that are used alike are near each other. Larger points have more documents.", map_picture: "Map of {n} labels; the search finds a label and lists its neighbours",
  map_find: "Find a label", map_hint: "Choose a label to see its neighbours.", map_near: "Near {label}", map_groups: "Groups", others: "others",
  map_none: "There are too few labels for a map.", 
  zoom_in: "Zoom in", zoom_out: "Zoom out", zoom_all: "Show all",
};
