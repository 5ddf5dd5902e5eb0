// Runs before the first paint, so that a reader who chose dark never sees a white flash.
try {
  const chosen = localStorage.getItem("polytag.colours");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.colours = chosen;
} catch { /* a browser without storage follows the system */ }
