// Tables that a reader sorts by a click on a heading and filters by a word.
"use strict";
(() => {
  const number = (text) => {
    const found = parseFloat(text.replace(/,/g, ""));
    return Number.isNaN(found) ? null : found;
  };
  const compare = (a, b) => {
    const [x, y] = [number(a), number(b)];
    if (x !== null && y !== null) return x - y;
    if (x !== null || y !== null) return x === null ? -1 : 1;
    return a.localeCompare(b);
  };
  const sortable = (table) => {
    const body = table.tBodies[0];
    [...table.tHead.rows[0].cells].forEach((cell, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = cell.textContent;
      cell.replaceChildren(button);
      button.addEventListener("click", () => {
        const down = cell.getAttribute("aria-sort") !== "descending";
        table.querySelectorAll("[aria-sort]").forEach((other) => other.removeAttribute("aria-sort"));
        cell.setAttribute("aria-sort", down ? "descending" : "ascending");
        const rows = [...body.rows];
        rows.sort((a, b) => (down ? -1 : 1) * compare(a.cells[column].textContent, b.cells[column].textContent));
        body.append(...rows);
      });
    });
  };
  const filtered = (place, table) => {
    const line = document.createElement("p"), name = document.createElement("label"), input = document.createElement("input");
    line.className = "controls";
    input.type = "search";
    name.append("Filter ", input);
    line.append(name);
    place.prepend(line);
    input.addEventListener("input", () => {
      const word = input.value.toLowerCase();
      for (const row of table.tBodies[0].rows) row.hidden = !row.cells[0].textContent.toLowerCase().includes(word);
    });
  };
  for (const place of document.querySelectorAll(".sortable")) {
    const table = place.querySelector("table");
    sortable(table);
    filtered(place, table);
  }
})();
