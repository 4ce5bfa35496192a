// What the pages need in the browser: theme, menu, keyboard, copying, relative times, live regions.
"use strict";

const body = document.body;

function say(text) {
  const toast = document.getElementById("toast");
  toast.textContent = text;
  toast.classList.add("shown");
  clearTimeout(say.timer);
  say.timer = setTimeout(() => toast.classList.remove("shown"), 2000);
}

// --- theme, menu, dialogs, copying -------------------------------------------------------------------------------

function switchTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("eruca-theme", root.dataset.theme); } catch { /* only for this page then */ }
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Browsers allow the clipboard only on HTTPS and on loopback.
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "hidden";
    body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  say(body.dataset.copied);
}

document.addEventListener("click", (event) => {
  const at = (selector) => event.target.closest(selector);
  const open = document.querySelectorAll("details.picker[open]");
  open.forEach((each) => { if (!each.contains(event.target)) each.open = false; });
  if (at("[data-theme-switch]")) switchTheme();
  if (at("[data-help]")) document.getElementById("help").showModal();
  if (at("[data-copy]")) copy(at("[data-copy]").dataset.copy);
  if (at("[data-menu]")) {
    const button = at("[data-menu]");
    const isOpen = button.getAttribute("aria-expanded") === "true";
    button.setAttribute("aria-expanded", String(!isOpen));
    document.getElementById(button.getAttribute("aria-controls")).classList.toggle("open", !isOpen);
  }
});

// A field that only some choices of another one need.
function showNeeded(form) {
  form.querySelectorAll("[data-shown-for]").forEach((each) => {
    const choice = form.elements[each.dataset.shownFor];
    each.hidden = choice !== undefined && !each.dataset.shownWith.split(" ").includes(choice.value);
  });
}
document.querySelectorAll("form.form").forEach(showNeeded);

document.addEventListener("change", (event) => {
  if (event.target.form) showNeeded(event.target.form);
  if (event.target.matches("[data-pick-all]")) {
    const table = event.target.closest("table");
    table.querySelectorAll("tbody .pick input").forEach((box) => { box.checked = event.target.checked; });
  }
  if (event.target.matches("[data-submit]")) event.target.form.requestSubmit();
});

// A form is sent once.
document.addEventListener("submit", (event) => {
  const button = event.target.querySelector("button[type=submit]");
  if (button && event.target.method === "post") setTimeout(() => { button.disabled = true; }, 0);
});
addEventListener("pageshow", () => {
  document.querySelectorAll("form button[disabled]:not([data-off])").forEach((each) => { each.disabled = false; });
});

// In a narrow window the tabs scroll, and the current one may be out of sight.
for (const tab of document.querySelectorAll(".tabs [aria-current]")) {
  const box = tab.closest(".tabs");
  box.scrollLeft = tab.offsetLeft - (box.clientWidth - tab.offsetWidth) / 2;
}

// --- keyboard ----------------------------------------------------------------------------------------------------

let waitsForLetter = false;

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input, textarea, select, [contenteditable]")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (waitsForLetter) {
    waitsForLetter = false;
    const link = document.querySelector(`nav [data-key="${CSS.escape(event.key)}"]`);
    if (link) { event.preventDefault(); link.click(); }
  } else if (event.key === "g") {
    waitsForLetter = true;
    setTimeout(() => { waitsForLetter = false; }, 1500);
  } else if (event.key === "/") {
    const search = document.querySelector("[data-search]");
    if (search) { event.preventDefault(); search.focus(); search.select(); }
  } else if (event.key === "?") {
    document.getElementById("help").showModal();
  }
});

// What was typed into the filter of a list before this page listened is looked for now.
document.addEventListener("DOMContentLoaded", () => {
  for (const field of document.querySelectorAll("form[hx-get] [data-search]")) {
    if (field.value !== field.defaultValue) field.form.requestSubmit();
  }
});

// --- fields that belong to a choice ----------------------------------------------------------------------------

// <select data-shows id="mode"> shows the fields with data-for="mode" whose data-when has its value.
function refreshFields() {
  for (const choice of document.querySelectorAll("select[data-shows]")) {
    for (const field of document.querySelectorAll(`[data-for="${choice.id}"]`)) {
      const isWanted = field.dataset.when.split(" ").includes(choice.value);
      field.hidden = !isWanted;
      field.querySelectorAll("input").forEach((input) => { input.disabled = !isWanted; });
    }
  }
}
document.addEventListener("change", refreshFields);
document.addEventListener("htmx:afterSettle", refreshFields);
addEventListener("pageshow", refreshFields);
refreshFields();

// --- filters of tables -------------------------------------------------------------------------------------------

// What was typed while the page was still loading filters too. htmx binds its handlers in the same event, before this.
addEventListener("DOMContentLoaded", () => {
  for (const input of document.querySelectorAll("form.search input[type=search]")) {
    if (input.value !== input.defaultValue) input.form.requestSubmit();
  }
});

// --- relative times ----------------------------------------------------------------------------------------------

const UNITS = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];

function writeAgo(seconds) {
  const where = seconds >= 0 ? "ago" : "ahead";
  const size = Math.abs(seconds);
  for (const [unit, length] of UNITS) {
    if (size >= length) {
      const key = `time${where[0].toUpperCase()}${where.slice(1)}${unit.toUpperCase()}`;
      return body.dataset[key].replace("#", Math.floor(size / length));
    }
  }
  return body.dataset.timeNow;
}

function refreshTimes() {
  const now = Date.now();
  for (const each of document.querySelectorAll("time[data-ago]")) {
    const text = writeAgo((now - Date.parse(each.dateTime)) / 1000);
    if (each.textContent !== text) each.textContent = text;
  }
}
setInterval(refreshTimes, 5000);

// What asks again at intervals (data-calm: the regions it replaces) waits while its page is hidden or somebody is busy in one.
document.addEventListener("htmx:beforeRequest", (event) => {
  const regions = event.target.dataset.calm;
  if (!regions) return;
  const isBusy = [...document.querySelectorAll(regions)].some((each) => each.contains(document.activeElement));
  if (document.hidden || isBusy || !getSelection().isCollapsed) event.preventDefault();
});

// --- live regions ------------------------------------------------------------------------------------------------

// Each element with data-live has a stream; an event replaces the content of the element whose id is its name, or
// with data-live-add on it, adds rows at its top, up to that many.
const streams = new Map();
// Rows that arrived while the element they belong to is held; they are added when it is released.
const holds = new Map();

function receive(event) {
  const target = document.getElementById(event.lastEventId || event.type);
  if (!target) return;
  if (target.dataset.liveAdd) {
    const most = Number(target.dataset.liveAdd);
    const held = holds.get(target);
    if (held) {
      held.rows.push(event.data);
      if (held.rows.length > most) held.rows.shift();
      held.count += 1;
      held.show();
      return;
    }
    target.insertAdjacentHTML("afterbegin", event.data);
    while (target.children.length > most) target.lastElementChild.remove();
  } else {
    target.innerHTML = event.data;
  }
}

function openStream(element) {
  const source = new EventSource(element.dataset.live);
  streams.set(element, source);
  source.onmessage = receive;
  source.addEventListener("live-error", (event) => { say(event.data); });
  source.addEventListener("live-end", () => { closeStream(element); });
  source.onopen = () => { element.classList.remove("stale"); };
  source.onerror = () => { element.classList.add("stale"); };
}

function closeStream(element) {
  const source = streams.get(element);
  if (source) source.close();
  streams.delete(element);
}

function refreshStreams() {
  const kept = document.hidden ? "[data-live-always]" : "";
  const wanted = [...document.querySelectorAll(`[data-live]${kept}:not([data-paused])`)];
  for (const element of [...streams.keys()]) if (!wanted.includes(element)) closeStream(element);
  for (const element of wanted) if (!streams.has(element)) openStream(element);
}

document.addEventListener("visibilitychange", refreshStreams);
document.addEventListener("htmx:afterSettle", (event) => {
  event.target.removeAttribute("aria-busy");
  refreshStreams();
  refreshTimes();
});
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-pause]");
  if (!button) return;
  const region = document.getElementById(button.dataset.pause);
  const isPaused = region.toggleAttribute("data-paused");
  button.setAttribute("aria-pressed", String(isPaused));
  refreshStreams();
});
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-hold]");
  if (!button) return;
  const target = document.getElementById(button.dataset.hold);
  const label = button.querySelector("span");
  const held = holds.get(target);
  button.setAttribute("aria-pressed", String(!held));
  if (held) {
    holds.delete(target);
    label.textContent = held.text;
    held.rows.forEach((data) => receive({ lastEventId: target.id, data }));
    refreshTimes();
    return;
  }
  const show = () => { label.textContent = button.dataset.heldText.replace("#", holds.get(target).count); };
  holds.set(target, { rows: [], count: 0, text: label.textContent, show });
  show();
});
addEventListener("pagehide", () => { for (const element of [...streams.keys()]) closeStream(element); });
refreshStreams();
