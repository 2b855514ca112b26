// Tables: sorted by a column, and filtered where they are long.
{
  const LONG = 12;
  const number = /^[^\d\u2212+-]*([\u2212+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)/;
  const value = (cell) => {
    const given = cell.dataset.v ?? cell.firstChild?.textContent.trim() ?? "";
    const found = cell.classList.contains("n") || cell.classList.contains("place") ? number.exec(given) : null;
    const words = cell.textContent.trim();
    return found ? Number(found[1].replaceAll(",", "").replace("\u2212", "-")) : cell.classList.contains("n") ? -Infinity : words.toLowerCase();
  };
  const compare = (a, b) => typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1;

  const sort = (table, head, at) => {
    const down = head.getAttribute("aria-sort") ? head.getAttribute("aria-sort") === "ascending" : head.classList.contains("n");
    for (const other of table.tHead.rows[0].cells) {
      other.removeAttribute("aria-sort");
      const sign = other.querySelector(".sort span");
      if (sign) sign.textContent = "\u2195";
    }
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    head.querySelector(".sort span").textContent = down ? "\u2193" : "\u2191";
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => [row.cells.length > at ? value(row.cells[at]) : -Infinity, row]);
    rows.sort((a, b) => (down ? -1 : 1) * compare(a[0], b[0]));
    body.append(...rows.map((pair) => pair[1]));
  };

  for (const table of document.querySelectorAll("table.sortable")) {
    if (table.tBodies[0].rows.length < 2) continue;
    [...table.tHead.rows[0].cells].forEach((head, at) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.setAttribute("aria-label", "Sort by " + head.textContent.trim());
      const sign = document.createElement("span");
      sign.setAttribute("aria-hidden", "true");
      sign.textContent = "\u2195";
      button.append(sign);
      button.addEventListener("click", () => sort(table, head, at));
      head.append(button);
    });
  }

  for (const region of document.querySelectorAll(".scroll.tall")) {
    const body = region.querySelector("tbody");
    if (!body || body.rows.length <= LONG) continue;
    const label = document.createElement("label");
    const field = document.createElement("input");
    const found = document.createElement("span");
    label.className = "filter";
    field.type = "search";
    field.autocomplete = "off";
    found.setAttribute("role", "status");
    label.append("Filter rows ", field, found);
    region.before(label);
    field.addEventListener("input", () => {
      const words = field.value.trim().toLowerCase();
      let shown = 0;
      for (const row of body.rows) {
        row.hidden = words !== "" && !row.textContent.toLowerCase().includes(words);
        shown += row.hidden ? 0 : 1;
      }
      found.textContent = words ? shown + " of " + body.rows.length : "";
    });
  }
}
