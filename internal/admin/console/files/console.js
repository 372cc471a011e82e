// Keeps a page up to date and copies secrets. Everything else on the page works without this script.
"use strict";

const said = document.getElementById("said");

// --- session

// The paths of a session begin with its random root. This script stores the root for this origin, so
// that a link without the root leads to the session. A page on another port cannot read the root.
const root = document.body.dataset.root;
try {
  const kept = localStorage.getItem("root");
  if (root) localStorage.setItem("root", root);
  else if (location.pathname.startsWith("/s/")) localStorage.removeItem("root"); // that session has ended
  else if (kept) location.replace(kept + location.pathname.replace(/\/$/, "") + location.search);
} catch {
  // Without storage, the login is shown.
}

// --- live

const from = document.body.dataset.liveFrom && root + document.body.dataset.liveFrom;
const sign = document.getElementById("live");

function say(state, text) {
  if (sign && sign.textContent !== text) {
    sign.textContent = text;
    sign.className = "live " + state;
  }
}

// opened returns the headings of the details that the reader has opened.
function opened(element) {
  return new Set([...element.querySelectorAll("details[open] > summary")].map((s) => s.textContent));
}

function fill(element, html) {
  // If the keyboard focus or a text selection is in this part, replacing the part would lose it. So
  // the part is filled later, once the focus and the selection have left it.
  const picked = getSelection();
  if (element.contains(document.activeElement) || (!picked.isCollapsed && picked.containsNode(element, true))) return false;
  const open = opened(element);
  element.innerHTML = html;
  for (const s of element.querySelectorAll("details > summary")) {
    if (open.has(s.textContent)) s.parentElement.open = true;
  }
  arm(element);
  watchStrips(element);
  localTimes(element);
  return true;
}

if (from) {
  const waiting = new Map();
  let source = null;

  const listen = () => {
    source = new EventSource(from);
    source.onopen = () => say("on", "Live");
    source.onerror = () => say("off", source.readyState === EventSource.CLOSED ? "Not live: load the page again" : "Not live: trying again");
    source.addEventListener("late", () => say("off", "Not up to date: trying again"));
    source.onmessage = (e) => {
      say("on", "Live");
      for (const [name, html] of Object.entries(JSON.parse(e.data))) waiting.set(name, html);
      for (const [name, html] of waiting) {
        const element = document.querySelector(`[data-live="${name}"]`);
        if (!element || fill(element, html)) waiting.delete(name);
      }
    };
    source.addEventListener("end", () => {
      source.close();
      location.reload(); // the page is then the login or another page
    });
  };

  // Without TLS, a browser opens at most six connections to a host. If pages in the background used
  // all six, no further page could be opened.
  const attend = () => {
    if (document.hidden) {
      if (source) source.close();
      source = null;
      say("off", "Paused");
    } else if (!source) {
      listen();
    }
  };
  document.addEventListener("visibilitychange", attend);
  attend();
}

// --- charts: the text for the pointer's position, which the keyboard can move, too

const charts = "svg[data-xs]";

// point shows the read-out of point i of a chart.
function point(svg, i) {
  const xs = svg.dataset.xs.split(" "), texts = svg.dataset.texts.split("|");
  i = Math.max(0, Math.min(i, xs.length - 1));
  const cursor = svg.querySelector("[data-cursor]");
  cursor.setAttribute("x1", xs[i]);
  cursor.setAttribute("x2", xs[i]);
  svg.closest(".plot").querySelector("[data-readout]").textContent = texts[i];
  svg.setAttribute("aria-valuenow", i);
  svg.setAttribute("aria-valuetext", texts[i]);
}

// arm makes the charts in a part usable with the keyboard.
function arm(part) {
  for (const svg of part.querySelectorAll(charts)) {
    svg.setAttribute("tabindex", "0");
    svg.setAttribute("role", "slider");
    svg.setAttribute("aria-valuemin", "0");
    const last = svg.dataset.xs.split(" ").length - 1;
    svg.setAttribute("aria-valuemax", last);
    svg.setAttribute("aria-valuenow", last);
    svg.setAttribute("aria-valuetext", svg.dataset.texts.split("|")[last]);
  }
}

document.addEventListener("pointermove", (e) => {
  const svg = e.target.closest?.(charts);
  if (!svg) return;
  const box = svg.getBoundingClientRect(), at = (1000 * (e.clientX - box.left)) / box.width;
  let best = 0;
  svg.dataset.xs.split(" ").forEach((x, i, xs) => { if (Math.abs(x - at) < Math.abs(xs[best] - at)) best = i; });
  point(svg, best);
});
document.addEventListener("keydown", (e) => {
  const svg = e.target.closest?.(charts);
  if (!svg) return;
  const now = Number(svg.getAttribute("aria-valuenow"));
  const to = { ArrowLeft: now - 1, ArrowRight: now + 1, PageDown: now - 10, PageUp: now + 10, Home: 0, End: Infinity }[e.key];
  if (to === undefined) return;
  e.preventDefault();
  point(svg, to);
});
arm(document);

// --- strips: how the cars of a list drove; requested for the rows in sight, two at a time

const stripLife = 300000; // ms; after this time, a live page may request a strip again
const mostStrips = 200;
const strips = new Map(); // path of each strip: its HTML, and the time of the request
const inSight = []; // paths to request
let askers = 0;

async function askStrips() {
  if (askers === 2) return;
  askers++;
  for (let path; (path = inSight.shift()); ) {
    let html = "not read", read = false;
    try {
      const answer = await fetch(root + path);
      if (answer.ok) {
        html = await answer.text();
        read = true;
      }
    } catch {
      // The service is away.
    }
    if (read) strips.set(path, { html, at: Date.now() });
    else strips.delete(path);
    for (const cell of document.querySelectorAll(`[data-hour="${path}"]`)) {
      cell.innerHTML = html;
      localTimes(cell);
    }
  }
  askers--;
}

const sight = new IntersectionObserver((rows) => {
  for (const { isIntersecting, target } of rows) {
    if (!isIntersecting) continue;
    sight.unobserve(target);
    const path = target.dataset.hour, kept = strips.get(path), now = Date.now();
    if (kept && now - kept.at < stripLife) continue;
    if (strips.size >= mostStrips) strips.clear();
    strips.set(path, { html: kept?.html ?? "", at: now });
    inSight.push(path);
    askStrips();
  }
});

// watchStrips shows the strips in a part that were requested before, and requests the others once
// they are in sight.
function watchStrips(part) {
  for (const cell of part.querySelectorAll("[data-hour]")) {
    cell.innerHTML = strips.get(cell.dataset.hour)?.html ?? "";
    sight.observe(cell);
  }
}
watchStrips(document);

// --- local time, shown beside UTC if the reader asks for it

const localButton = document.getElementById("local");

// localTimes adds the local time to each time in a part, or removes it.
function localTimes(part) {
  const on = localStorage.getItem("local") === "on";
  for (const old of part.querySelectorAll(".local")) old.remove();
  if (!on) return;
  for (const time of part.querySelectorAll("time[datetime]")) {
    const span = document.createElement("span");
    span.className = "local";
    span.textContent = new Date(time.dateTime).toLocaleString([], { dateStyle: "short", timeStyle: "medium" }) + " local";
    time.after(span);
  }
}

if (localButton) {
  const show = () => {
    localButton.setAttribute("aria-pressed", String(localStorage.getItem("local") === "on"));
    localTimes(document);
  };
  localButton.hidden = false;
  localButton.addEventListener("click", () => {
    localStorage.setItem("local", localStorage.getItem("local") === "on" ? "off" : "on");
    show();
  });
  show();
}

// --- copy

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return;
  } catch {
    // Without TLS, only the following way of copying is available.
  }
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "unseen";
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

// copied copies a text, and says so on the button for a moment.
async function copied(button, text) {
  const name = (button.dataset.name ??= button.textContent);
  await copy(text);
  button.textContent = "Copied";
  said.textContent = "Copied";
  button.focus();
  setTimeout(() => { button.textContent = name; said.textContent = ""; }, 1500);
}

for (const button of document.querySelectorAll("[data-copy]")) {
  button.hidden = false;
  button.addEventListener("click", () => copied(button, document.getElementById(button.dataset.copy).textContent));
}
// The rows of live tables come and go.
document.addEventListener("click", (e) => {
  const button = e.target.closest?.("[data-link]");
  if (button) copied(button, button.dataset.link);
});
