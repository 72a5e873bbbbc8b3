"use strict";
// Findings come from the server as JSON and become elements here: every name is text, none is ever read as HTML.
const box = document.getElementById("findings");
const state = document.getElementById("state");
const maps = document.getElementById("maps");
let items = {}, findings = [], over = false;

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

async function post(asked) {
  state.className = "";
  state.textContent = "Saving …";
  try {
    const answer = await fetch("edit", {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(asked),
    });
    const found = await answer.json();
    if (!answer.ok) throw new Error(found.error);
    return found;
  } catch (error) {
    state.className = "wrong";
    state.textContent = error instanceof TypeError ? "The server does not answer any more." : error.message;
    return null;
  }
}

async function change(k, edit) {
  const found = await post({ finding: k, ...edit });
  if (!found) return;
  findings[k] = found;
  draw(k);
  tell();
}

function tell() {
  const left = findings.filter((f) => !f.decision).length;
  state.textContent = left ? `Saved. ${findings.length - left} of ${findings.length} decided.` : "Saved. All decided.";
}

function content(i) {
  const item = items[i];
  if (item.text) return [passage(item.text)];
  const kind = maps.checked && item.map ? "map" : "picture";
  return item.picture ? [make("img", { src: `${kind}/${i}`, alt: item.caption, loading: "lazy", "data-sample": i })] : [item.caption];
}

function answer(i) {
  const { label, prediction } = items[i];
  return make("small", {}, label, ...(prediction === label ? [] : [make("b", {}, ` → ${prediction}`)]));
}

function passage(spans) {
  const quote = make("blockquote", { class: "passage" });
  for (const s of spans) quote.append(s.side ? make("mark", { class: s.side, style: `--w: ${s.weight}` }, s.text) : s.text);
  return quote;
}

function samples(rows, pick) {
  const texts = rows.some((i) => items[i].text);
  const list = make("div", { class: texts ? "samples texts" : "samples" });
  for (const i of rows) {
    const title = items[i].caption;
    list.append(pick
      ? make("button", { type: "button", class: "sample", "aria-pressed": "false", "aria-label": title, title, "data-row": i, onclick: pick }, ...content(i), answer(i))
      : make("div", { class: "sample", title }, ...content(i), answer(i)));
  }
  return list;
}

function kinds(aligned, conflicting, counts, pick) {
  const names = { aligned: "Aligned: it points to the label", conflicting: "Conflicting: it points elsewhere" };
  return Object.entries({ aligned, conflicting }).filter(([, rows]) => rows.length).map(([kind, rows]) =>
    make("div", { class: `kind ${kind}` },
      make("p", {}, counts ? `${names[kind]} (${counts[kind].toLocaleString("en")})` : names[kind].split(":")[0]),
      samples(rows, pick)));
}

// One of each group, then the next one of each: the two rows show all groups.
function mixed(f, kind, most) {
  const rows = [];
  for (let n = 0; n < most; n++) for (const g of f.groups) if (n < g[kind].length && rows.length < most) rows.push(g[kind][n]);
  return rows;
}

function draw(k) {
  const f = findings[k], before = document.getElementById(`finding-${k}`);
  const open = before?.querySelector("details")?.open ?? false;
  const held = before?.contains(document.activeElement), key = held && document.activeElement.dataset.key;
  const section = make("section", { id: `finding-${k}`, class: `card is-${(f.decision ?? "open").split(" ")[0]}`, tabindex: "-1", "aria-labelledby": `name-${k}` });
  section.append(make("h2", { id: `name-${k}` }, f.name), make("p", { class: "quiet" }, f.text));
  const most = items[f.groups[0]?.aligned[0]]?.text ? 3 : 12;
  section.append(...kinds(mixed(f, "aligned", most), mixed(f, "conflicting", most), f));
  const choices = make("div", { class: "choices", role: "group", "aria-label": `Decision on ${f.name}` });
  for (const [n, name] of ["shortcut", "legitimate", "not sure"].entries()) {
    choices.append(make("button", { type: "button", "data-key": name, "aria-pressed": String(f.decision === name), "aria-keyshortcuts": n + 1,
      onclick: () => change(k, { op: "decide", decision: f.decision === name ? null : name }) }, name[0].toUpperCase() + name.slice(1)));
  }
  section.append(choices, groups(k, f, open));
  if (before) before.replaceWith(section);
  else box.append(section);
  if (held) ((key && section.querySelector(`[data-key="${CSS.escape(key)}"]`)) || section).focus();
}

function groups(k, f, open) {
  const details = make("details", { open }, make("summary", { "data-key": "groups" }, `Groups (${f.groups.length}): name, split, merge, move`));
  const chosen = new Set();
  const goal = make("select", { "aria-label": "Where to move", "data-key": "goal" });
  for (const [g, group] of f.groups.entries()) goal.append(make("option", { value: g }, group.name));
  goal.append(make("option", { value: "" }, "a new group"));
  const move = make("button", { type: "button", disabled: true, "data-key": "move",
    onclick: () => change(k, { op: "move", samples: [...chosen], group: goal.value === "" ? null : Number(goal.value) }) }, "Move 0 selected");
  const pick = (event) => {
    const button = event.currentTarget, on = button.getAttribute("aria-pressed") !== "true", row = Number(button.dataset.row);
    button.setAttribute("aria-pressed", String(on));
    if (on) chosen.add(row); else chosen.delete(row);
    move.textContent = `Move ${chosen.size} selected`;
    move.disabled = !chosen.size;
  };
  details.append(make("div", { class: "tools" }, move, make("span", {}, "to"), goal,
    make("button", { type: "button", disabled: !f.edits, "data-key": "undo", onclick: () => change(k, { op: "undo" }) }, "Undo")));
  for (const [g, group] of f.groups.entries()) {
    const name = make("input", { value: group.name, maxlength: 60, "aria-label": "Name of the group", "data-key": `name ${g}`,
      onchange: (event) => change(k, { op: "name", group: g, name: event.target.value }) });
    const into = make("select", { "aria-label": `Merge ${group.name} into`, "data-key": `merge ${g}`,
      onchange: (event) => event.target.value !== "" && change(k, { op: "merge", groups: [Number(event.target.value), g] }) },
      make("option", { value: "" }, "merge into …"));
    for (const [h, other] of f.groups.entries()) if (h !== g) into.append(make("option", { value: h }, other.name));
    const tools = make("div", { class: "tools" }, name, make("span", { class: "quiet" }, `${group.n.toLocaleString("en")} samples`),
      make("button", { type: "button", "data-key": `split ${g}`, title: "Into two parts that look alike to the model",
        onclick: () => change(k, { op: "split", group: g }) }, "Split in two"), into);
    const rows = kinds(group.aligned, group.conflicting, null, pick);
    details.append(make("div", { class: "group", role: "group", "aria-label": group.name }, tools,
      ...(rows.length ? rows : [make("p", { class: "quiet" }, "None of its samples is shown.")])));
  }
  return details;
}

maps.addEventListener("change", () => {
  for (const image of document.querySelectorAll("img[data-sample]")) {
    const i = image.dataset.sample;
    image.src = `${maps.checked && items[i].map ? "map" : "picture"}/${i}`;
  }
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || over || event.target.closest("input:not([type=checkbox]), select")) return;
  const now = event.target.closest("section");
  const at = now ? Number(now.id.split("-")[1]) : -1;
  const go = { j: Math.min(at + 1, findings.length - 1), k: Math.max(at - 1, 0) }[event.key];
  if (go !== undefined) document.getElementById(`finding-${go}`)?.focus();
  const choice = { 1: "shortcut", 2: "legitimate", 3: "not sure" }[event.key];
  if (choice && at >= 0) change(at, { op: "decide", decision: choice });
});

document.getElementById("done").addEventListener("click", async () => {
  if (!(await post({ op: "done" }))) return;
  over = true;
  document.querySelectorAll("button, input, select").forEach((e) => (e.disabled = true));
  state.textContent = "Done. You can close this page.";
});

(async () => {
  try {
    ({ findings, items } = await (await fetch("state.json")).json());
    findings.forEach((_, k) => draw(k));
    maps.closest("p").hidden = !Object.values(items).some((item) => item.map);
    tell();
  } catch (error) {
    state.className = "wrong";
    state.textContent = "The findings cannot be read.";
  }
})();
