// Keeps a page up to date and copies secrets. Everything else works without.
"use strict";

const said = document.getElementById("said");

// --- live

const from = document.body.dataset.liveFrom;
const sign = document.getElementById("live");

function say(state, text) {
  if (sign && sign.textContent !== text) {
    sign.textContent = text;
    sign.className = "live " + state;
  }
}

// open remembers what the reader has opened, by its heading.
function opened(element) {
  return new Set([...element.querySelectorAll("details[open] > summary")].map((s) => s.textContent));
}

function fill(element, html) {
  // Whoever stands in this part with the keyboard, or marks its text, must not lose
  // the place: it is filled once they have left.
  const picked = getSelection();
  if (element.contains(document.activeElement) || (!picked.isCollapsed && picked.containsNode(element, true))) return false;
  const open = opened(element);
  element.innerHTML = html;
  for (const s of element.querySelectorAll("details > summary")) {
    if (open.has(s.textContent)) s.parentElement.open = true;
  }
  return true;
}

if (from) {
  const waiting = new Map();
  const source = new EventSource(from);
  source.onopen = () => say("on", "Live");
  source.onerror = () => say("off", source.readyState === EventSource.CLOSED ? "Not live: load the page again" : "Not live: trying again");
  source.onmessage = (e) => {
    for (const [name, html] of Object.entries(JSON.parse(e.data))) waiting.set(name, html);
    for (const [name, html] of waiting) {
      const element = document.querySelector(`[data-live="${name}"]`);
      if (!element || fill(element, html)) waiting.delete(name);
    }
  };
  source.addEventListener("end", () => {
    source.close();
    location.reload(); // the session has ended: the login takes its place
  });
}

// --- copy

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return;
  } catch {
    // Without TLS there is no clipboard but this one.
  }
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "unseen";
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

for (const button of document.querySelectorAll("[data-copy]")) {
  button.hidden = false;
  const name = button.textContent;
  button.addEventListener("click", async () => {
    await copy(document.getElementById(button.dataset.copy).textContent);
    button.textContent = "Copied";
    said.textContent = "Copied";
    button.focus();
    setTimeout(() => { button.textContent = name; said.textContent = ""; }, 1500);
  });
}
