"use strict";
// Ask for the rows again: often while something trains, seldom otherwise, not at all while nobody looks.
const body = document.getElementById("rows");
const state = document.getElementById("state");
async function refresh() {
  if (!document.hidden) {
    try {
      const answer = await fetch("/rows");
      if (!answer.ok) throw new Error(answer.statusText);
      const text = await answer.text();
      if (text.trim() !== shown) {
        const at = document.activeElement.getAttribute("href");
        body.innerHTML = shown = text.trim(); // Names in it are escaped where it is made.
        if (at) body.querySelector(`a[href="${CSS.escape(at)}"]`)?.focus();
      }
      state.textContent = "Up to date.";
    } catch (error) {
      state.textContent = "The server does not answer any more.";
    }
  }
  setTimeout(refresh, body.querySelector("[data-live]") ? 2000 : 10000);
}
let shown = "";
setTimeout(refresh, 2000);
