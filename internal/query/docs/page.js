// The page at /: copy buttons, tabs, colours in samples, and the form that asks
// the service. Nothing is stored, and nothing but the service is called.
"use strict";

const $ = (id) => document.getElementById(id);

// The page may be served below a path, so everything is relative to it.
const base = new URL(".", location.href).href.replace(/\/$/, "");

// A token that was pasted into the page's own address is removed from it.
if (location.search) history.replaceState(null, "", location.pathname + location.hash);

function element(tag, properties, ...children) {
  const e = Object.assign(document.createElement(tag), properties);
  e.append(...children);
  return e;
}

// --- samples

const words = {
  go: "break|case|chan|const|continue|default|defer|else|for|func|go|goto|if|import|interface|map|package|range|return|select|struct|switch|type|var|nil|string|int",
  python: "and|as|def|elif|else|except|for|from|if|import|in|is|lambda|None|not|or|raise|return|try|while|with|print",
  javascript: "async|await|const|else|for|function|if|let|new|null|of|return|throw|typeof|import|from",
  curl: "curl",
  json: "null|true|false",
};

function colour(code, language) {
  const comment = language === "python" || language === "curl" ? "#[^\\n]*" : "\\/\\/[^\\n]*";
  const token = new RegExp(`("(?:\\\\.|[^"\\\\\\n])*"|'(?:\\\\.|[^'\\\\\\n])*'|\`[^\`]*\`)|(${language === "curl" ? "(?!)" : comment})|\\b(${words[language]})\\b`, "g");
  const text = code.textContent;
  let end = 0;
  const parts = [];
  for (const m of text.matchAll(token)) {
    parts.push(text.slice(end, m.index), element("span", { className: m[1] ? "s" : m[2] ? "c" : "k" }, m[0]));
    end = m.index + m[0].length;
  }
  code.replaceChildren(...parts, text.slice(end));
}

function say(text) {
  $("live").textContent = text;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return;
  } catch {
    // Without TLS there is no navigator.clipboard.
  }
  const area = element("textarea", { value: text, className: "live" });
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

function addCopy(block) {
  const code = block.querySelector("code");
  const button = element("button", { type: "button", className: "copy" }, "Copy");
  button.setAttribute("aria-label", "Copy: " + block.querySelector("pre").getAttribute("aria-label"));
  button.addEventListener("click", async () => {
    await copy(code.textContent.trimEnd());
    button.textContent = "Copied";
    say("Copied");
    setTimeout(() => { button.textContent = "Copy"; say(""); }, 1500);
  });
  block.querySelector(".bar").append(button);
}

for (const e of document.querySelectorAll(".base")) e.textContent = base;
for (const block of document.querySelectorAll(".code[data-language]")) {
  const code = block.querySelector("code");
  code.textContent = code.textContent.trimEnd().replaceAll("http://127.0.0.1:8080", base);
  colour(code, block.dataset.language);
  addCopy(block);
}

// A language is chosen for all samples at once.
const groups = [...document.querySelectorAll(".samples")].map((samples, g) => {
  const panels = [...samples.querySelectorAll(".code")];
  const tabs = panels.map((panel, i) => {
    panel.id = `sample-${g}-${i}`;
    panel.setAttribute("role", "tabpanel");
    const tab = element("button", { type: "button", id: `tab-${g}-${i}` }, panel.dataset.title);
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-controls", panel.id);
    panel.setAttribute("aria-labelledby", tab.id);
    tab.addEventListener("click", () => pick(i));
    tab.addEventListener("keydown", (event) => {
      const to = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: panels.length - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      const next = (to + panels.length) % panels.length;
      pick(next);
      tabs[next].focus();
    });
    return tab;
  });
  const list = element("div", { className: "tabs" }, ...tabs);
  list.setAttribute("role", "tablist");
  list.setAttribute("aria-label", "Language of the sample");
  samples.prepend(list);
  samples.classList.add("tabbed");
  return { tabs, panels };
});

function pick(chosen) {
  for (const { tabs, panels } of groups) {
    tabs.forEach((tab, i) => {
      tab.setAttribute("aria-selected", String(i === chosen));
      tab.tabIndex = i === chosen ? 0 : -1;
      panels[i].hidden = i !== chosen;
    });
  }
}
pick(0);

// --- the contents list

const links = new Map([...document.querySelectorAll(".contents a")].map((a) => [a.hash.slice(1), a]));
const inView = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    for (const a of links.values()) a.removeAttribute("aria-current");
    links.get(entry.target.id)?.setAttribute("aria-current", "true");
  }
}, { rootMargin: "-20% 0px -70% 0px" });
for (const id of links.keys()) inView.observe($(id));

// A link to a status opens its details.
function openTarget() {
  const target = document.getElementById(location.hash.slice(1));
  if (target instanceof HTMLDetailsElement) target.open = true;
}
addEventListener("hashchange", openTarget);
openTarget();

// --- the form

const names = {
  vehicle_runing_state: { 1: "Normal driving", 2: "Slow driving", 3: "Traffic jam" },
  throttle_system: { 1: "Throttle normal", 0: "Throttle anomaly" },
};
// The classes of the answers, which give colour and shape as in the console.
const tones = {
  vehicle_runing_state: { 1: "normal", 2: "slow", 3: "jam" },
  throttle_system: { 1: "normal", 0: "anomaly" },
};
const reasons = {
  unknown: "the vehicle is unknown, or not granted to this token",
  stale: "the newest readings are too old",
  not_driving: "the car is not driving",
};

function age(headers) {
  const seconds = Math.max(0, (Date.parse(headers.get("Date")) - Date.parse(headers.get("Last-Modified"))) / 1000);
  if (Number.isNaN(seconds)) return "";
  if (seconds < 120) return `as of ${seconds} s ago`;
  if (seconds < 7200) return `as of ${Math.floor(seconds / 60)} min ago`;
  return `as of ${Math.floor(seconds / 3600)} h ago`;
}

// sandboxHint returns a hint if the token and the vehicle do not fit together: only one of
// them belongs to the sandbox, or the vid equals a reserved one except for upper and lower case.
function sandboxHint(vid) {
  const sandbox = $("token").value.trim().startsWith("cstest_");
  const reserved = [...$("vids").options].map((o) => o.value).find((v) => v.toLowerCase() === vid.toLowerCase());
  if (sandbox && !reserved) return ". A sandbox token (cstest_…) sees only vehicles of the sandbox, such as SandboxJam";
  if (sandbox && vid !== reserved) return `. Did you mean ${reserved}?`;
  if (!sandbox && reserved) return ". Only a sandbox token (cstest_…) sees this vehicle of the sandbox";
  return "";
}

// verdict returns an answer as text: a headline, details, and the class for both.
function verdict(response, answer, field) {
  if (answer?.code !== 200 || !answer.data) {
    return [`${response.status}: refused`, answer?.msg ?? "This is not an answer of carstate.", "refused"];
  }
  const value = answer.data[field];
  if (Number(answer.data.status) !== 1) {
    const reason = response.headers.get("Carstate-Reason");
    const hint = reason === "unknown" ? sandboxHint(answer.data.vid) : "";
    return ["No answer", `${reason}: ${reasons[reason] ?? "the service does not say more"}${hint}`, "none"];
  }
  return [`${names[field][value] ?? "Another value"} (${value})`, age(response.headers), tones[field][value] ?? "none"];
}

function show([headline, detail, tone]) {
  $("verdict").className = tone;
  $("verdict").replaceChildren(element("strong", {}, headline), element("span", {}, detail));
}

let asked = 0;

async function ask(button) {
  const mine = ++asked; // only the last question is shown
  const { path, field } = button.dataset;
  const query = new URLSearchParams({ access_token: $("token").value.trim(), vid: $("vid").value.trim() });
  $("result").hidden = false;
  $("request").textContent = `GET ${path}?access_token=…&vid=${encodeURIComponent($("vid").value.trim())}`;
  $("body").textContent = $("head").textContent = "";
  show(["Asking…", "", "none"]);
  button.setAttribute("aria-busy", "true");
  try {
    const response = await fetch(`${base}${path}?${query}`, {
      cache: "no-store", credentials: "omit", redirect: "error", referrerPolicy: "no-referrer",
    });
    const text = await response.text();
    if (mine !== asked) return;
    let answer;
    try {
      answer = JSON.parse(text);
    } catch {
      answer = undefined;
    }
    show(verdict(response, answer, field));
    $("body").textContent = answer === undefined ? text : JSON.stringify(answer, null, 2);
    colour($("body"), "json");
    $("result").scrollIntoView({ block: "nearest" });
    $("head").textContent = [`HTTP ${response.status}`, ...[...response.headers].map(([k, v]) => `${k}: ${v}`)].join("\n");
  } catch {
    // The error is not shown: it may hold the address, and with it the token.
    if (mine === asked) show(["No connection", "The service did not answer. Is it still running?", "refused"]);
  } finally {
    button.removeAttribute("aria-busy");
  }
}

$("try-form").addEventListener("submit", (event) => {
  event.preventDefault();
  ask(event.submitter ?? $("try-form").querySelector(".primary"));
});

$("token-show").addEventListener("click", () => {
  const masked = $("token").classList.toggle("masked");
  $("token-show").setAttribute("aria-pressed", String(!masked));
});

// A browser may cache a page that the reader leaves, to return to it quickly. The cached
// page must not hold the token.
addEventListener("pagehide", () => { $("token").value = ""; });
