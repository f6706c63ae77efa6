// Fetches the page again for its [data-poll] parts, and sorts and filters tables. All pages work without it.
"use strict";
const sorted = new Map(); // id of a table -> [column, direction]

const text = (row, column) => (row.cells[column] ? row.cells[column].textContent.trim() : "");

function compare(one, other) {
  const [a, b] = [one, other].map((each) => parseFloat(each.replace(/[\u202f≥ ]/g, "")));
  return a - b || one.localeCompare(other, undefined, { numeric: true });
}

function arrange(table) {
  if (!sorted.has(table.id)) return;
  const [column, direction] = sorted.get(table.id);
  table.tBodies[0].append(...[...table.tBodies[0].rows].sort((a, b) => direction * compare(text(a, column), text(b, column))));
  [...table.tHead.rows[0].cells].forEach((cell, at) => (cell.ariaSort = at !== column ? null : direction > 0 ? "ascending" : "descending"));
}

function sift(input) {
  const rows = document.getElementById(input.dataset.filter).tBodies[0].rows, wanted = input.value.toLowerCase();
  for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
}

function prepare() {
  for (const table of document.querySelectorAll("table[data-sort]")) {
    [...table.tHead.rows[0].cells].forEach((cell, column) => {
      if (cell.querySelector("button")) return;
      const button = document.createElement("button");
      button.append(...cell.childNodes);
      button.addEventListener("click", () => {
        sorted.set(table.id, [column, cell.ariaSort === "ascending" ? -1 : 1]);
        arrange(table);
      });
      cell.append(button);
    });
    arrange(table);
  }
  for (const input of document.querySelectorAll("[data-filter]")) {
    input.closest(".tools").hidden = false;
    (input.oninput = () => sift(input))();
  }
}

function swap(old, fresh) {
  const scrolled = [...old.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
  const held = [...old.querySelectorAll("a,button,input")].indexOf(document.activeElement);
  old.className = fresh.className;
  old.replaceChildren(...fresh.childNodes);
  prepare();
  [...old.querySelectorAll(".scroll")].forEach((each, at) => (each.scrollLeft = scrolled[at] || 0));
  old.querySelectorAll("a,button,input")[held]?.focus({ preventScroll: true });
}

function mark(part, words, stale) {
  part.classList.toggle("stale", stale);
  part.querySelectorAll(".age").forEach((each) => (each.textContent = words));
}

async function poll(part, seconds, lost) {
  const again = () => setTimeout(poll, seconds * 1000, part, seconds, lost);
  if (document.hidden) return again();
  if (String(getSelection())) return mark(part, "paused while text is selected", true), again();
  const missing = () => mark(part, `${Math.round((Date.now() - lost) / 1000)} s old: no answer`, true);
  const late = setTimeout(missing, Math.max(0, lost + 4000 - Date.now()));
  try {
    const answer = await fetch(location.href, { signal: AbortSignal.timeout(20000) });
    if (!answer.ok) throw new Error(answer.status);
    swap(part, new DOMParser().parseFromString(await answer.text(), "text/html").getElementById(part.id));
    lost = Date.now();
  } catch {
    missing();
  }
  clearTimeout(late);
  again();
}

prepare();
for (const part of document.querySelectorAll("[data-poll]")) {
  setTimeout(poll, part.dataset.poll * 1000, part, +part.dataset.poll, Date.now());
}
