// German. A list has two forms: for one, and for several.

export const de = {
  language_name: "Deutsch",
  skip: "Zum Inhalt", views: "Ansichten", model: "Modell", settings: "Einstellungen", close: "Schließen", done: "Fertig", again: "Noch einmal", loading: "Einen Moment …",
  view_label: "Verschlagworten", view_next: "Als Nächstes", view_corrections: "Korrekturen", view_compare: "Vergleich", view_errors: "Fehler", view_map: "Karte",
  setting_language: "Sprache", setting_colours: "Farben", setting_user: "Ihr Name",
  setting_user_note: "Ihre Korrekturen tragen diesen Namen.", anonymous: "anonym",
  colours_system: "Wie das System", colours_light: "Hell", colours_dark: "Dunkel",
  model_chosen: "Modell {name}",

  not_reached: "Der Dienst antwortet nicht", offline: "Der Dienst ist nicht erreichbar. Prüfen Sie, ob er läuft, und versuchen Sie es noch einmal.",
  failed: "Der Dienst konnte nicht antworten (Status {status}).", busy: "Der Dienst hat gerade zu viel zu tun. Versuchen Sie es gleich noch einmal.",
  needs_token: "Dieser Dienst verlangt einen Zugangsschlüssel.", forbidden: "Ihr Zugangsschlüssel erlaubt das nicht.",
  token_title: "Anmelden", token_why: "Dieser Dienst antwortet nur mit Zugangsschlüssel. Den erhalten Sie von den Betreibern. Er bleibt erhalten, bis Sie die Seite schließen.",
  token: "Zugangsschlüssel", sign_in: "Anmelden",

  text: "Text", text_placeholder: "Fügen Sie hier einen Text ein, oder legen Sie eine Datei ab: Text, CSV, JSON-Zeilen, PDF oder DOCX.",
  open_file: "Datei öffnen", clear: "Leeren", document_of: "Dokument {at} von {n}", document_before: "Voriges Dokument", document_after: "Nächstes Dokument",
  file_kind: "{name} ist keine Datei mit Text, CSV, JSON-Zeilen, PDF oder DOCX.", file_large: "{name} ist größer als 8 MB. Senden Sie große Dateien als Auftrag.",
  file_empty: "{name} enthält keinen Text.", file_failed: "{name} wurde nicht gelesen: {why}",

  labels: "Schlagwörter", label: "Schlagwort", labels_in: "Schlagwörter des Textes", labels_out: "Weitere Vorschläge", show_more: "Mehr zeigen",
  no_text: "Hier erscheinen Schlagwörter, sobald ein Text da ist.", no_labels: "Kein Schlagwort passt gut genug. Senken Sie die Schwelle, oder fügen Sie selbst eines hinzu.",
  unsure: "Das Modell ist bei diesem Text unsicher. Bitte prüfen Sie die Schlagwörter.", set_size: ["{n} Schlagwort", "{n} Schlagwörter"],
  add_label: "Schlagwort hinzufügen", add_placeholder: "Teil des Namens eingeben", browse: "Blättern", no_label: "Kein Schlagwort heißt so.",
  count_title: "Trainingsdokumente mit diesem Schlagwort", documents: ["{n} Dokument", "{n} Dokumente"],
  browse_tree: "Alle Schlagwörter", browse_frequent: "Die häufigsten Schlagwörter",
  browse_keys: "Die Eingabetaste wählt ein Schlagwort oder nimmt es weg; die Pfeiltasten öffnen und schließen Zweige.", browse_flat: "Die Eingabetaste wählt ein Schlagwort oder nimmt es weg.",

  ways: "Welche Schlagwörter", way_model: "Wie das Modell", way_threshold: "Schwelle", way_promise: "Zusage",
  way_model_note: "Die Schwellen wurden an Dokumenten bestimmt, die das Modell nicht kannte.", way_model_promise: "Das Modell hält die Zusage {promise}.",
  way_threshold_note: "Alle Schlagwörter mit mindestens dieser Wahrscheinlichkeit.", threshold: "Schwelle", promise: "Zusage", at_least: "Mindestens",
  goal_recall: "Die richtigen finden (Recall)", goal_precision: "Nur richtige geben (Precision)",
  promise_note: "Schwelle {threshold}. Auf {n} Testdokumenten: {labels} Schlagwörter je Text, {recall} der richtigen gefunden, {precision} der gegebenen richtig.",
  promise_needs_test: "Eine Zusage wird aus verschlagworteten Dokumenten berechnet. Starten Sie den Dienst mit --test DATEI.",

  drifted: "Die eintreffenden Texte unterscheiden sich von denen des Trainings. Bitte prüfen Sie die Schlagwörter genau.",
  promise_broken: "Die Zusage {promise} gilt nicht mehr: Korrekturen widersprechen ihr.", promise_drifted: "Die Zusage {promise} gilt nicht mehr: Die eintreffenden Texte unterscheiden sich von denen des Trainings.",

  add: "Hinzufügen", accept: "Annehmen", remove: "Entfernen", restore: "Zurückholen",
  did_add: "{label} hinzugefügt", did_accept: "{label} angenommen", did_remove: "{label} entfernt", did_restore: "{label} zurückgeholt", undone: "Rückgängig gemacht",
  state_kept: "vorgeschlagen", state_accepted: "angenommen", state_added: "hinzugefügt", state_removed: "entfernt", state_candidate: "nicht gewählt",
  undo: "Rückgängig", save: ["{n} Schlagwort speichern", "{n} Schlagwörter speichern"], save_next: ["{n} speichern, weiter", "{n} speichern, weiter"],
  saved: ["Mit {n} Schlagwort gespeichert.", "Mit {n} Schlagwörtern gespeichert."], not_saved: "Nicht gespeichert: {why}", taken_back: "Die Korrektur wurde rückgängig gemacht.",

  why: "Warum dieses Schlagwort?", why_hint: "Zeigen Sie auf ein Schlagwort, oder gehen Sie mit den Pfeiltasten hin. Die Wörter, die dafür sprechen, sind im Text markiert.",
  why_for: "Dafür", why_against: "Dagegen", why_none: "Kein Wort.", why_long: "Der Text ist zu lang für eine Erklärung. Kürzen Sie ihn auf 20.000 Zeichen.",

  next_lead: "Texte, aus denen das Modell am meisten lernt: Es ist bei ihnen unsicher, und sie sind verschieden.",
  next_needs_pool: "Es gibt keine Texte ohne Schlagwörter. Starten Sie den Dienst mit --pool DATEI.", next_done: "Alle Texte sind verschlagwortet.",
  next_begin: "Mit dem ersten beginnen", uncertainty: "unsicher: {value}",

  errors_lead: "Testdokumente mit übersehenen oder falschen Schlagwörtern, die meisten Fehler zuerst.", errors_of: "Fehler bei einem Schlagwort", all_labels: "Alle Schlagwörter",
  errors_need_test: "Es gibt keine verschlagworteten Dokumente. Starten Sie den Dienst mit --test DATEI.", errors_none: "Auf den Testdokumenten gibt es keinen Fehler.",
  errors_none_label: "Kein Fehler bei {label}.", errors_count: ["{n} von {all} Dokumenten hat Fehler; {shown} gezeigt.", "{n} von {all} Dokumenten haben Fehler; {shown} gezeigt."],
  document: "Dokument", missed: "Übersehen", wrong: "Falsch",

  compare_lead: "Zwei Modelle verschlagworten denselben Text.", compare_needs_two: "Es gibt nur ein Modell. Starten Sie den Dienst mit zwei Läufen.",
  compare_with: "{name} vergleichen mit", compare_count: ["{n} Schlagwort von beiden, {first} nur von {a}, {second} nur von {b}.", "{n} Schlagwörter von beiden, {first} nur von {a}, {second} nur von {b}."],
  given: "gegeben", not_given: "nicht gegeben",

  corrections_lead: "Was Menschen über die Schlagwörter von Texten sagen. Nichts wird überschrieben, alles lässt sich rückgängig machen.",
  corrections_none: "Es gibt noch keine Korrekturen.", corrections_first: "Einen Text verschlagworten", history: "Letzte Korrekturen", undone_badge: "rückgängig gemacht",
  export: "Export", export_note: ["{n} Korrektur gilt. Der Export ist ein Korpus aus JSON-Zeilen für das Training.", "{n} Korrekturen gelten. Der Export ist ein Korpus aus JSON-Zeilen für das Training."],
  export_button: "Korrekturen exportieren", exported: "Die Korrekturen wurden heruntergeladen.",
  disagreements: "Uneinigkeit", disagreements_note: "Bei diesen Texten sind Menschen uneins. Der Export lässt sie aus, bis sie sich einigen.",
  votes_for: "dafür: {who}", votes_against: "dagegen: {who}",

  learn: "Lernen", learn_note: "{name} kann aus neuen Korrekturen lernen. Sie sehen, was sich ändert, bevor etwas in Betrieb geht.", learn_button: "Jetzt lernen",
  learning: "Das Modell lernt. Das dauert Sekunden.", learned: ["Aus {n} Text in {seconds} s gelernt. Noch nicht in Betrieb.", "Aus {n} Texten in {seconds} s gelernt. Noch nicht in Betrieb."],
  difference: "Vorher und nachher", metrics_test: ["Auf {n} Testdokument", "Auf {n} Testdokumenten"], metrics_corrections: ["Auf {n} korrigierten Text", "Auf {n} korrigierten Texten"],
  on_corrections: "Auf den korrigierten Texten", metric: "Maß", before: "Vorher", after: "Nachher", change: "Änderung",
  metric_micro_f1: "micro-F1", metric_macro_f1: "macro-F1", metric_micro_precision: "Precision", metric_micro_recall: "Recall", "metric_p@5": "Precision bei 5",
  metric_subset_accuracy: "Genaue Mengen",
  changes: "Schlagwörter, die sich ändern", changes_none: "Kein Dokument ändert seine Schlagwörter.", gained: "Neu", lost: "Weg",
  changes_count: ["{n} von {all} Dokumenten ändert seine Schlagwörter", "{n} von {all} Dokumenten ändern ihre Schlagwörter"],
  live_button: "In Betrieb nehmen", not_now: "Jetzt nicht", went_live: "Version {version} ist in Betrieb.", back_button: "Zurück zur vorigen Version", went_back: "Die vorige Version ist wieder in Betrieb.",

  map_lead: "Schlagwörter, die ähnlich gebraucht werden, liegen nahe beieinander. Größere Punkte haben mehr Dokumente.", map_picture: "Karte von {n} Schlagwörtern; die Suche findet eines und nennt seine Nachbarn",
  map_find: "Schlagwort finden", map_hint: "Wählen Sie ein Schlagwort, um seine Nachbarn zu sehen.", map_near: "Nahe bei {label}", map_groups: "Gruppen", others: "andere",
  map_none: "Für eine Karte gibt es zu wenige Schlagwörter.", 
  zoom_in: "Vergrößern", zoom_out: "Verkleinern", zoom_all: "Alles zeigen",
};
