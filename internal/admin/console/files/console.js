// Keeps a page up to date and copies secrets. Everything else works without.
"use strict";

const said = document.getElementById("said");

// --- session

// The paths of a session begin with its root. This origin keeps the root, so that a link
// without it leads to the session; a page of another port reads neither of the two.
const root = document.body.dataset.root;
try {
  const kept = localStorage.getItem("root");
  if (root) localStorage.setItem("root", root);
  else if (location.pathname.startsWith("/s/")) localStorage.removeItem("root"); // that session has ended
  else if (kept) location.replace(kept + location.pathname.replace(/\/$/, "") + location.search);
} catch {
  // Without storage there is the login.
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
  let source = null;

  const listen = () => {
    source = new EventSource(from);
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
      location.reload(); // the login, or another page, takes its place
    });
  };

  // A browser has six connections for a host without TLS: pages in the background
  // must not hold them all, or no further page opens.
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
