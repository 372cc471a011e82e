// Draws the stretches of road that the service knows, and keeps them up to date. It requests data
// from this service only; there are no map tiles.
"use strict";

const said = document.getElementById("said");

const states = ["unknown", "normal", "slow", "jam"]; // the last is drawn on top
const stateNames = { unknown: "Too few cars now", normal: "Normal", slow: "Slow", jam: "Jam" };
const headings = ["North", "North-east", "East", "South-east", "South", "South-west", "West", "North-west"];

// Layer holds the paths of one style. A browser takes far longer to draw one long path than many
// short ones.
class Layer {
  paths = [];
  #n = 0;
  next() {
    if (this.#n++ % 50 === 0) this.paths.push(new Path2D());
    return this.paths.at(-1);
  }
}

const refreshEvery = 5000; // ms
const earth = 40030228; // the earth's circumference in metres
const aside = 8; // distance of a line from the middle of its road, in metres
const nearest = 0.3, farthest = 20000; // zoom limits in metres per pixel

for (const frame of document.querySelectorAll("[data-stretches]")) show(frame);

function show(frame) {
  const canvas = frame.querySelector("canvas");
  const pen = canvas.getContext("2d");
  const part = (name) => frame.querySelector(`[data-map="${name}"]`);
  const fact = (name) => frame.querySelector(`[data-fact="${name}"]`);

  let stretches = []; // {name, p, x1, y1, x2, y2}; the map's width is 1
  let byName = new Map();
  let way = [];
  let asOf = 0; // time of the data, in ms
  let truncated = false;
  let box = null; // the box that stretches covers; null: all of the earth
  let picked = "", kept = null; // name of the selected stretch, and its last known data
  let origin = null; // longitude in the middle; the date line is then at the edge
  // The view: the position in the middle, and the width of the earth in pixels.
  let view = null;
  let following = true; // until the reader moves the map
  let colours = {};

  // --- map projection (Mercator)

  const toX = (longitude) => (origin + ((longitude - origin + 540) % 360) - 180) / 360;
  const toY = (latitude) => {
    const sin = Math.sin((Math.max(-85, Math.min(85, latitude)) * Math.PI) / 180);
    return 0.5 - Math.log((1 + sin) / (1 - sin)) / (4 * Math.PI);
  };
  const toLatitude = (y) => (Math.atan(Math.sinh(Math.PI * (1 - 2 * y))) * 180) / Math.PI;
  const toLongitude = (x) => ((((x * 360 + 180) % 360) + 360) % 360) - 180;
  const metresAPixel = () => (earth * Math.cos((toLatitude(view.y) * Math.PI) / 180)) / view.scale;

  // --- drawing

  let wide = canvas.clientWidth, high = canvas.clientHeight; // canvas size in pixels

  // lines returns functions for the positions of stretches on the screen. A line is drawn to the
  // right of its road, at a distance of at least its own width, so that it does not cover the line
  // of the other direction.
  function lines() {
    const metre = 1 / metresAPixel(), { scale } = view;
    const left = wide / 2 - view.x * scale, top = high / 2 - view.y * scale;
    const thin = Math.max(1.3, Math.min(4, 14 * metre));
    const thick = { unknown: thin * 0.75, normal: thin, slow: thin * 1.9, jam: thin * 2.8 };
    const place = (s) => {
      const x1 = s.x1 * scale + left, y1 = s.y1 * scale + top, x2 = s.x2 * scale + left, y2 = s.y2 * scale + top;
      const long = Math.hypot(x2 - x1, y2 - y1) || 1;
      const more = Math.max(0, thick[s.p.state] / 2 + 0.75 - aside * metre) / long;
      const right = (y1 - y2) * more, down = (x2 - x1) * more;
      return { x1: x1 + right, y1: y1 + down, x2: x2 + right, y2: y2 + down, long };
    };
    return { place, thick, long: 100 * metre };
  }

  let due = false;
  function draw() {
    if (due) return;
    due = true;
    requestAnimationFrame(() => { due = false; paint(); });
  }

  function paint() {
    const dots = devicePixelRatio || 1;
    const [w, h] = [Math.round(wide * dots), Math.round(high * dots)];
    if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
    pen.setTransform(dots, 0, 0, dots, 0, 0);
    pen.clearRect(0, 0, wide, high);
    if (!view) return;
    const { place, thick, long } = lines();
    pen.lineJoin = "round";
    const stroke = (path, colour, width, cap = "round", dash = []) => {
      pen.strokeStyle = colour;
      pen.lineWidth = width;
      pen.lineCap = cap;
      pen.setLineDash(dash);
      pen.stroke(path);
    };
    const trace = (path, l) => {
      path.moveTo(l.x1, l.y1);
      path.lineTo(l.x2, l.y2);
    };

    const driven = way.map((name) => byName.get(name)).filter(Boolean);
    const band = new Path2D();
    for (const s of driven) trace(band, place(s));
    stroke(band, colours.way, thick.jam + 10);

    const layers = { unknown: new Layer(), normal: new Layer(), slow: new Layer(), jam: new Layer(), arrows: new Layer() };
    const margin = long + 20;
    for (const s of stretches) {
      const l = place(s);
      if (l.x1 < -margin || l.y1 < -margin || l.x1 > wide + margin || l.y1 > high + margin) continue; // not visible
      trace(layers[s.p.state].next(), l);
      if (long < (s.p.state === "unknown" ? 80 : 40)) continue; // too short for an arrow
      const size = (thick[s.p.state] / 2 + 3.5) / l.long;
      const ux = (l.x2 - l.x1) * size, uy = (l.y2 - l.y1) * size;
      const arrow = layers.arrows.next();
      arrow.moveTo(l.x2 - ux + uy, l.y2 - uy - ux);
      arrow.lineTo(l.x2, l.y2);
      arrow.lineTo(l.x2 - ux - uy, l.y2 - uy + ux);
    }
    const lay = (layer, ...how) => {
      for (const path of layer.paths) stroke(path, ...how);
    };
    const near = long > 7; // dashes are visible
    const cap = long > 5 ? "round" : "butt";
    lay(layers.arrows, colours.unknown, 1.5);
    lay(layers.unknown, colours.unknown, thick.unknown, cap, near ? [0.1, thick.unknown * 2.5] : []);
    lay(layers.normal, colours.normal, thick.normal, cap);
    lay(layers.slow, colours.slow, thick.slow, near ? "butt" : cap, near ? [thick.slow * 1.2, thick.slow * 0.7] : []);
    lay(layers.jam, colours.jam, thick.jam, cap);
    lay(layers.jam, colours.ground, thick.jam / 4, cap);

    if (kept) {
      const path = new Path2D(), width = Math.max(thick[kept.p.state], 4);
      trace(path, place(kept));
      stroke(path, colours.text, width + 9);
      stroke(path, colours.ground, width + 5);
      stroke(path, colours[kept.p.state], width);
    }
    if (driven.length) { // the car's last position
      const l = place(driven[0]), ring = new Path2D();
      ring.arc((l.x1 + l.x2) / 2, (l.y1 + l.y2) / 2, 7, 0, 2 * Math.PI);
      pen.fillStyle = colours.ground;
      pen.fill(ring);
      stroke(ring, colours.text, 3.5);
    }
    rule();
  }

  // rule draws the scale bar.
  function rule() {
    const bar = frame.querySelector(".rule span");
    const most = 150 * metresAPixel();
    const power = 10 ** Math.floor(Math.log10(most));
    const metres = [5, 2, 1].map((n) => n * power).find((n) => n <= most);
    bar.style.width = Math.round(metres / metresAPixel()) + "px";
    bar.textContent = metres < 1000 ? metres + " m" : (metres / 1000).toLocaleString("en") + " km";
  }

  function readColours() {
    const style = getComputedStyle(frame);
    const of = (name) => style.getPropertyValue(name).trim();
    colours = { ground: of("--ground"), text: of("--text"), unknown: of("--soft"), normal: of("--accent"), slow: of("--slow"), jam: of("--jam"), way: of("--way") };
    draw();
  }

  // --- moving the map

  function zoom(by, x = wide / 2, y = high / 2) {
    if (!view) return;
    const was = view.scale;
    const now = metresAPixel() / by;
    if (now < nearest) by *= now / nearest;
    if (now > farthest) by *= now / farthest;
    view.scale *= by;
    view.x += (x - wide / 2) * (1 / was - 1 / view.scale);
    view.y += (y - high / 2) * (1 / was - 1 / view.scale);
    moved();
  }

  function pan(right, down) {
    if (!view) return;
    view.x += right / view.scale;
    view.y += down / view.scale;
    moved();
  }

  let asking = 0;
  function moved() {
    view.y = Math.max(0, Math.min(1, view.y));
    following = false;
    draw();
    if (!truncated && !box) return;
    clearTimeout(asking); // other stretches may be visible now
    asking = setTimeout(load, 400);
  }

  function fit() {
    const driven = way.map((name) => byName.get(name)).filter(Boolean);
    const all = driven.length ? driven : stretches;
    if (!all.length || !wide) return;
    let [west, east, north, south] = [Infinity, -Infinity, Infinity, -Infinity];
    for (const s of all) {
      west = Math.min(west, s.x1, s.x2);
      east = Math.max(east, s.x1, s.x2);
      north = Math.min(north, s.y1, s.y2);
      south = Math.max(south, s.y1, s.y2);
    }
    const middle = (north + south) / 2;
    const least = 1200 / (earth * Math.cos((toLatitude(middle) * Math.PI) / 180));
    const scale = Math.min((wide - 48) / Math.max(east - west, least), (high - 48) / Math.max(south - north, least));
    view = { x: (west + east) / 2, y: middle, scale };
    draw();
  }

  const pointers = new Map();
  let dragged = 0;
  canvas.addEventListener("pointerdown", (e) => {
    canvas.setPointerCapture(e.pointerId);
    if (!pointers.size) dragged = 0;
    pointers.set(e.pointerId, e);
  });
  canvas.addEventListener("pointermove", (e) => {
    const was = pointers.get(e.pointerId);
    if (!was) {
      canvas.classList.toggle("over", !!at(e.offsetX, e.offsetY));
      return;
    }
    const [right, down] = [e.offsetX - was.offsetX, e.offsetY - was.offsetY];
    const other = [...pointers.values()].find((p) => p.pointerId !== e.pointerId);
    pointers.set(e.pointerId, e);
    dragged += Math.abs(right) + Math.abs(down);
    if (dragged < 4) return;
    if (other) {
      const apart = (p) => Math.hypot(p.offsetX - other.offsetX, p.offsetY - other.offsetY) || 1;
      pan(-right / 2, -down / 2);
      zoom(apart(e) / apart(was), (e.offsetX + other.offsetX) / 2, (e.offsetY + other.offsetY) / 2);
    } else {
      pan(-right, -down);
    }
  });
  for (const end of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(end, (e) => {
      if (pointers.delete(e.pointerId) && end === "pointerup" && dragged < 4 && !pointers.size) pick((at(e.offsetX, e.offsetY) || { name: "" }).name);
    });
  }
  canvas.addEventListener("wheel", (e) => {
    e.preventDefault();
    const lines = e.deltaMode === WheelEvent.DOM_DELTA_PIXEL ? 1 : 30;
    zoom(Math.exp(-Math.max(-300, Math.min(300, e.deltaY * lines)) / 400), e.offsetX, e.offsetY);
  }, { passive: false });
  canvas.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const step = { ArrowLeft: [-80, 0], ArrowRight: [80, 0], ArrowUp: [0, -80], ArrowDown: [0, 80] }[e.key];
    if (step) pan(...step);
    else if (e.key === "+" || e.key === "=") zoom(1.5);
    else if (e.key === "-") zoom(1 / 1.5);
    else if (e.key === "0") showAll();
    else return;
    e.preventDefault();
  });
  function showAll() {
    following = true;
    if (box) load(); // stretches does not cover all of the earth
    else fit();
  }
  const does = { in: () => zoom(1.5), out: () => zoom(1 / 1.5), all: showAll };
  for (const button of frame.querySelectorAll("[data-do]")) button.addEventListener("click", does[button.dataset.do]);

  // --- selecting

  // at returns the stretch at a position on the screen.
  function at(x, y) {
    if (!view) return null;
    const { place } = lines();
    let found = null, least = 12;
    for (const s of stretches) {
      const l = place(s);
      const dx = l.x2 - l.x1, dy = l.y2 - l.y1;
      const t = Math.max(0, Math.min(1, ((x - l.x1) * dx + (y - l.y1) * dy) / (dx * dx + dy * dy || 1)));
      const far = Math.hypot(l.x1 + t * dx - x, l.y1 + t * dy - y);
      if (far < least) [found, least] = [s, far];
    }
    return found;
  }

  function pick(name) {
    picked = name;
    kept = byName.get(name) || null;
    showSelected();
    said.textContent = kept ? `Selected: ${fact("state").textContent}, ${fact("heading").textContent}, ${fact("share").textContent}` : "";
    draw();
  }

  // showSelected shows the data of the selected stretch in the panel, and marks its row in the
  // table.
  function showSelected() {
    for (const button of document.querySelectorAll("[data-stretch]")) {
      const now = String(button.dataset.stretch === picked);
      if (button.getAttribute("aria-pressed") !== now) button.setAttribute("aria-pressed", now);
    }
    kept = byName.get(picked) || kept;
    part("facts").hidden = !kept;
    part("none").hidden = !!kept;
    if (!kept) return;
    const p = kept.p;
    const since = p.since && new Date(p.since);
    const texts = {
      state: stateNames[p.state],
      heading: headings[Math.round(p.heading / 45) % 8],
      speed: p.speed_kmh === null ? "Not known" : `${number(p.speed_kmh)} km/h`,
      free: `${number(p.free_flow_kmh)} km/h`,
      share: p.share === null ? "Not known" : `${number(100 * p.share)} %`,
      cars: p.cars ? p.cars.toLocaleString("en") : "Fewer than three",
      since: since ? since.toISOString().slice(11, 16) + " UTC, " + ago((asOf - since) / 1000) : "Not known",
      young: p.young ? "Young: the free flow is an estimate" : "Free flow was observed",
    };
    for (const [name, text] of Object.entries(texts)) {
      const element = fact(name);
      if (element.textContent !== text) element.textContent = text;
    }
    fact("state").className = "state " + (p.state === "unknown" ? "none" : p.state);
  }

  // number and ago format a number and an age in the same way as the server (package inwords).
  function number(x) {
    return x.toLocaleString("en", { maximumFractionDigits: x < 99.95 ? 1 : 0 });
  }

  function ago(seconds) {
    for (const [name, unit] of [["days", 86400], ["h", 3600], ["min", 60]]) {
      if (seconds >= 2 * unit) return `${Math.floor(seconds / unit)} ${name} ago`;
    }
    return seconds < 1 ? "now" : `${Math.floor(seconds)} s ago`;
  }

  document.addEventListener("click", async (e) => {
    // A click anywhere in a row selects its stretch, unless it selects text or another button.
    const button = e.target.closest("[data-stretch]") || (!e.target.closest("button") && getSelection().isCollapsed
      && e.target.closest(".worst tbody tr")?.querySelector("[data-stretch]"));
    if (!button) return;
    const name = button.dataset.stretch;
    following = false;
    if (!byName.has(name)) await load(true); // the worst stretches are in the answer for all of the earth
    pick(name);
    if (!kept || !view) return;
    [view.x, view.y] = [(kept.x1 + kept.x2) / 2, (kept.y1 + kept.y2) / 2];
    view.scale *= Math.max(1, metresAPixel() / 6);
    moved();
  });
  // Another script fills the rows.
  for (const rows of document.querySelectorAll("[data-live=worst], [data-live=jams]")) new MutationObserver(showSelected).observe(rows, { childList: true });

  // --- updating

  let timer = 0, pending = null;

  // load requests the stretches of all of the earth. If there are too many, it requests only the
  // visible ones.
  async function load(everywhere = false) {
    clearTimeout(timer);
    if (document.hidden) return;
    if (pending) pending.abort();
    const mine = (pending = new AbortController());
    const asked = (truncated || box) && view && !following && everywhere !== true ? sight() : null;
    const began = performance.now();
    try {
      const answer = await fetch(document.body.dataset.root + frame.dataset.stretches + (asked ? "?bbox=" + asked.join(",") : ""), { signal: mine.signal });
      if (answer.status === 401) {
        location.reload(); // the page is then the login or another page
        return;
      }
      if (!answer.ok) throw new Error("not now");
      take(await answer.json(), asked);
    } catch (e) {
      if (mine.signal.aborted) return;
      part("count").textContent = "Not up to date: trying again";
    }
    if (pending === mine) pending = null;
    clearTimeout(timer);
    timer = setTimeout(load, Math.max(refreshEvery, 10 * (performance.now() - began)));
  }

  // sight returns a box around the visible area, twice as wide and twice as high as that area.
  function sight() {
    const across = wide / view.scale, down = high / view.scale;
    const west = across < 0.5 ? toLongitude(view.x - across) : -180, east = across < 0.5 ? toLongitude(view.x + across) : 180;
    return [west, toLatitude(Math.min(1, view.y + down)), east, toLatitude(Math.max(0, view.y - down))].map((degrees) => degrees.toFixed(5));
  }

  function take(collection, asked) {
    if (origin === null && collection.features.length) origin = collection.features[0].geometry.coordinates[0][0];
    stretches = collection.features.map((f) => {
      const [from, to] = f.geometry.coordinates;
      return { name: f.properties.stretch, p: f.properties, x1: toX(from[0]), y1: toY(from[1]), x2: toX(to[0]), y2: toY(to[1]) };
    });
    byName = new Map(stretches.map((s) => [s.name, s]));
    way = collection.way || [];
    asOf = Date.parse(collection.at);
    truncated = collection.truncated;
    box = asked;
    const n = stretches.length.toLocaleString("en");
    part("count").textContent = (truncated ? `The worst ${n} of ${collection.known.toLocaleString("en")} stretches` : `${n} ${n === "1" ? "stretch" : "stretches"}`) + (asked ? " around here" : "");
    if (following) fit();
    showSelected();
    draw();
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) clearTimeout(timer);
    else load();
  });
  new ResizeObserver(() => {
    [wide, high] = [canvas.clientWidth, canvas.clientHeight];
    if (following) fit();
    draw();
  }).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", readColours);
  readColours();
  load();
}
