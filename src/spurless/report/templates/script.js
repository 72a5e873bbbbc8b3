"use strict";
// Sorting: each heading of a sortable table becomes a button; rows without a value stay at the end.
for (const table of document.querySelectorAll("table[data-sortable]")) {
  const headings = [...table.tHead.rows[0].cells];
  const valueOf = (row, i) => {
    const cell = row.cells[i];
    return cell.dataset.key === undefined ? cell.textContent.trim() : Number(cell.dataset.key);
  };
  // Among numbers a word stands for one that is missing, such as that a run diverged.
  const missing = (v, i) =>
    v === "" || v === "–" || Number.isNaN(v) || (typeof v === "string" && headings[i].classList.contains("number"));
  const compare = (a, b) =>
    typeof a === "number" && typeof b === "number"
      ? a - b
      : String(a).localeCompare(String(b), "en", { numeric: true });
  headings.forEach((heading, i) => {
    if (heading.tagName !== "TH") return;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.append(...heading.childNodes);
    heading.append(button);
    heading.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const before = heading.getAttribute("aria-sort");
      // Numbers begin with the largest, words with the first of the alphabet; ranks with the first.
      const down = heading.classList.contains("number") && heading.textContent.trim() !== "rank";
      const order = before === "none" ? (down ? "descending" : "ascending")
        : before === "ascending" ? "descending" : "ascending";
      headings.forEach((h) => h.tagName === "TH" && h.setAttribute("aria-sort", "none"));
      heading.setAttribute("aria-sort", order);
      const sign = order === "ascending" ? 1 : -1;
      const body = table.tBodies[0];
      const rows = [...body.rows].sort((r, s) => {
        const a = valueOf(r, i), b = valueOf(s, i);
        if (missing(a, i) || missing(b, i)) return missing(a, i) - missing(b, i);
        return sign * compare(a, b);
      });
      body.append(...rows);
    });
  });
}

// Enlarging: one dialog for all pictures; it walks through those of the same section.
const dialog = document.getElementById("large");
let shown = null;
function enlarge(thumb) {
  shown = thumb;
  const views = dialog.querySelector(".views");
  views.replaceChildren(...[...thumb.querySelectorAll("img")].map((image) => image.cloneNode()));
  dialog.querySelector("p").textContent = thumb.dataset.caption;
  const many = siblings().length > 1;
  dialog.querySelectorAll("[data-step]").forEach((b) => (b.hidden = !many));
  if (!dialog.open) dialog.showModal();
}
function siblings() {
  return [...shown.closest("section").querySelectorAll(".thumb")];
}
function step(by) {
  const all = siblings();
  enlarge(all[(all.indexOf(shown) + by + all.length) % all.length]);
}
document.querySelectorAll(".thumb").forEach((t) => t.addEventListener("click", () => enlarge(t)));
dialog.addEventListener("click", (event) => {
  const by = event.target.dataset.step;
  if (by) step(Number(by));
  else if (event.target === dialog || event.target.dataset.close !== undefined) dialog.close();
});
dialog.addEventListener("keydown", (event) => {
  if (event.key === "ArrowRight") step(1);
  if (event.key === "ArrowLeft") step(-1);
});
dialog.addEventListener("close", () => shown && shown.focus());

// Maps of points: a name in the legend shows its points alone, for those who cannot tell the colours apart.
for (const legend of document.querySelectorAll(".clouds")) {
  const paths = legend.closest("figure").querySelectorAll("svg > path[data-cloud]");
  for (const entry of legend.children) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...entry.childNodes);
    button.setAttribute("aria-pressed", "false");
    entry.append(button);
    button.addEventListener("click", () => {
      const on = button.getAttribute("aria-pressed") !== "true";
      legend.querySelectorAll("button").forEach((b) => b.setAttribute("aria-pressed", "false"));
      button.setAttribute("aria-pressed", String(on));
      paths.forEach((p) => p.classList.toggle("faint", on && p.dataset.cloud !== entry.dataset.cloud));
    });
  }
}
