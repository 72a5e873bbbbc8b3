"use strict";
// Ask for the list again: often while something trains, seldom otherwise, not at all while nobody looks.
const body = document.getElementById("rows");
const state = document.getElementById("state");
const filters = ["data", "method"].map((name) => document.getElementById(name));
const wanted = new URLSearchParams(location.hash.slice(1)); // the choice is in the address: a reload keeps it

function filter() {
  for (const select of filters) {
    const key = select.id;
    const values = [...new Set([...body.querySelectorAll(`[data-${key}]`)].map((e) => e.dataset[key]))].sort();
    const chosen = wanted.get(key) || "";
    if (chosen && !values.includes(chosen)) values.push(chosen);
    select.replaceChildren(...["", ...values].map((v) => new Option(v || "all", v, false, v === chosen)));
    for (const element of body.querySelectorAll(`[data-${key}]`))
      element.classList.toggle(`not-${key}`, chosen !== "" && element.dataset[key] !== chosen);
  }
  for (const section of body.querySelectorAll("section"))
    section.hidden = !section.querySelector(":is(tbody tr, li[data-method]):not(.not-data, .not-method, .not-data *)");
}

async function refresh() {
  if (!document.hidden) {
    try {
      const answer = await fetch("/rows");
      if (!answer.ok) throw new Error(answer.statusText);
      const text = await answer.text();
      if (text.trim() !== shown) {
        const at = document.activeElement.getAttribute("href");
        const open = [...body.querySelectorAll("details[open]")].map((e) => e.dataset.key);
        body.innerHTML = shown = text.trim(); // Names in it are escaped where it is made.
        for (const each of body.querySelectorAll("details")) each.open = open.includes(each.dataset.key);
        if (at) body.querySelector(`a[href="${CSS.escape(at)}"]`)?.focus();
        filter();
      }
      state.textContent = "Up to date.";
    } catch (error) {
      state.textContent = "The server does not answer any more.";
    }
  }
  setTimeout(refresh, body.querySelector("[data-live]") ? 2000 : 10000);
}

for (const select of filters)
  select.addEventListener("change", () => {
    if (select.value) wanted.set(select.id, select.value);
    else wanted.delete(select.id);
    history.replaceState(null, "", `#${wanted}`);
    filter();
  });
let shown = "";
document.getElementById("filters").hidden = false;
filter();
setTimeout(refresh, 2000);
