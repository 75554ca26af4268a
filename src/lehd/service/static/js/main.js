// The page: puts the parts together and keeps them in step.

import { Refusal, getJSON, getText, onKeyNeeded, post, query } from "./api.js";
import { drawCurve } from "./curve.js";
import { Tiles } from "./geo.js";
import { Hand } from "./hand.js";
import { Problem, scatter } from "./problem.js";
import { RouteList } from "./routes.js";
import { Search } from "./search.js";
import { View } from "./view.js";
import { brief, fileName, percent, plural, save } from "./words.js";

const $ = (id) => document.getElementById(id);
const REFERENCES = ["sol", "tour"];

const view = new View($("map"));
const hand = new Hand(view, useTool, pointAt);
const list = new RouteList($("routes"), (number) => view.light(number), (number) => view.light(number));
const search = new Search(hear);

let problem = new Problem();
let settings = { nodes: 10000, seconds: 300, default_seconds: 10, body_mb: 16, tiles: null };
let history = [];
let limit = 10;
let clock = null; // when the running search began, on this page's clock
let spent = 0;
let reference = null; // {cost, routes, words}
let waitingReference = null; // a file that came before there was a job to check it with
let announced = 0;
let routeCosts = null; // of the routes in the order they are shown, once the search has ended

// ---- small things

function say(words) {
  $("live").textContent = words;
}

function complain(error) {
  if (error?.name === "AbortError") return;
  $("alert-text").textContent = error instanceof Error ? error.message : String(error);
  $("alert").hidden = false;
}

const quietly = (action) => async (...given) => {
  $("alert").hidden = true;
  try {
    await action(...given);
  } catch (error) {
    if (!(error instanceof Refusal)) console.error(error);
    complain(error);
  }
};

const numberIn = (id) => ($(id).value.trim() === "" ? null : Number($(id).value));
const demandOfNew = () => numberIn("demand") ?? 1 + Math.floor(9 * Math.random());
const capacity = () => problem.source?.keepsCapacity ? problem.capacity : numberIn("capacity") ?? 50;

// ---- the problem

function setProblem(next) {
  search.forget();
  problem = next;
  history = [];
  clock = null;
  spent = 0;
  reference = null;
  waitingReference = null;
  $("known").value = "";
  location.hash = "";
  if (problem.capacity !== null) $("capacity").value = problem.capacity;
  $("vehicles").value = problem.vehicles ?? "";
  $("problem").open = true;
  view.scene.tiles = problem.geographic && settings.tiles ? (view.tiles ||= new Tiles(settings.tiles, () => view.refresh())) : null;
  view.show(problem);
  refresh();
}

/** The drawing changed: what was found for it no longer holds. */
function edited() {
  search.forget();
  history = [];
  reference = null;
  clock = null;
  spent = 0;
  location.hash = "";
  view.place();
  view.scene.routes = view.scene.shades = [];
  view.scene.reference = null;
  view.changes = [];
  view.refresh();
  refresh();
}

function editable() {
  if (problem.editable) return true;
  complain("The distances of this problem come from a matrix: its stops cannot be moved here.");
  return false;
}

function useTool(tool, sx, sy, first) {
  if (!editable()) return;
  const [x, y] = view.position(sx, sy);
  const near = view.nearest(sx, sy, 16);
  if (tool === "add") {
    if (problem.size >= settings.nodes) return complain(`At most ${brief(settings.nodes)} stops.`);
    const digits = problem.geographic ? 6 : Math.max(0, Math.min(9, 1 + Math.ceil(Math.log10(view.camera.scale))));
    problem.add(Number(x.toFixed(digits)), Number(y.toFixed(digits)), demandOfNew());
    say(`${plural(problem.size, "stop")}`);
  } else if (tool === "erase" && near >= 0) {
    problem.remove(near);
    say(`Removed; ${plural(problem.size, "stop")} left`);
  } else if (tool === "depot" && first && problem.size) {
    if (problem.kind === "TSP") problem.setKind("CVRP", demandOfNew);
    if (near >= 0) problem.setDepot(near, demandOfNew());
    else problem.moveDepot(x, y);
    say("Depot set");
  } else return;
  edited();
}

function pointAt(place) {
  const node = place && problem.size ? view.nearest(...place) : -1;
  const tip = $("tip");
  const routes = view.scene.routes;
  const route = node > 0 || problem.kind === "TSP" ? routes.findIndex((each) => each.includes(node)) : -1;
  if (problem.kind === "CVRP") {
    list.mark(route >= 0 ? route : null);
    view.light(route >= 0 ? route : list.picked);
  }
  tip.hidden = node < 0;
  if (node < 0) return;
  const words = [problem.names[node] || (problem.kind === "CVRP" && node === 0 ? "depot" : `stop ${node + 1}`)];
  if (problem.kind === "CVRP" && node === 0 && words[0] !== "depot") words.push("depot");
  if (problem.kind === "CVRP" && node > 0) words.push(`demand ${brief(problem.demands[node])}`);
  if (problem.kind === "CVRP" && route >= 0) words.push(`route ${route + 1}`);
  tip.textContent = words.join("\n");
  tip.style.left = `${Math.min(place[0] + 14, view.camera.width - 150)}px`;
  tip.style.top = `${Math.max(6, place[1] - 34)}px`;
}

async function readProblem(body, name, type) {
  const parameters = { name };
  let picture;
  let needsCapacity = false;
  try {
    picture = await post(`/inspect${query(parameters)}`, body, type);
  } catch (error) {
    if (!/without a capacity/.test(error.message)) throw error;
    needsCapacity = true;
    parameters.capacity = numberIn("capacity") ?? 50;
    picture = await post(`/inspect${query(parameters)}`, body, type);
  }
  const next = Problem.read(picture, { body, type, parameters, keepsCapacity: true });
  setProblem(next);
  if (needsCapacity) say(`The table has no capacity: ${parameters.capacity} is assumed`);
}

async function openFile(file) {
  if (!file) return;
  if (file.size > settings.body_mb * 1e6) throw new Refusal(413, `${file.name} is too large: at most ${settings.body_mb} MB.`);
  const ending = file.name.split(".").pop().toLowerCase();
  const body = await file.arrayBuffer();
  if (REFERENCES.includes(ending) || (ending === "json" && isSolution(body))) return compareWith(body, ending);
  await readProblem(body, file.name.replace(/[\x00-\x1f\x7f]/g, "").slice(-120), ending === "json" ? "application/json" : "text/plain");
}

function isSolution(body) {
  try {
    const found = JSON.parse(new TextDecoder().decode(body));
    return !found.vehicles && Boolean(found.tour || found.routes);
  } catch {
    return false; // the service will say what is wrong
  }
}

async function openExample(name) {
  if (!name) return;
  await readProblem(await getText(`/static/examples/${name}`), name, "text/plain");
}

function generate(clustered) {
  const count = Math.round(numberIn("count") ?? 0);
  const kind = document.querySelector("[name=kind]:checked").value;
  const most = settings.nodes - (kind === "CVRP" ? 1 : 0);
  if (!(count >= 1 && count <= most)) throw new Refusal(0, `Stops: expected a number from 1 to ${brief(most)}.`);
  const next = new Problem(kind);
  next.name = clustered ? "clustered" : "random";
  if (kind === "CVRP") next.add(500, 500, 0);
  scatter(next, count, clustered, demandOfNew);
  next.vehicles = numberIn("vehicles");
  if (kind === "CVRP" && numberIn("capacity") === null) next.capacity = 50;
  setProblem(next);
}

// ---- searching

async function solve() {
  const seconds = numberIn("seconds");
  if (!(seconds > 0 && seconds <= settings.seconds)) throw new Refusal(0, `Seconds: expected a number up to ${brief(settings.seconds)}.`);
  history = [];
  spent = 0;
  clock = null;
  limit = seconds;
  const request = problem.request(capacity(), numberIn("vehicles"));
  await search.start(request, { time_limit: seconds });
  location.hash = `job=${search.id}`;
  $("problem").open = false; // room for what is found
  say("Solving");
  if (waitingReference) await quietly(() => compareWith(...waitingReference))();
}

function hear(kind, data) {
  if (kind === "state" || kind === "end") {
    limit = data.time_limit ?? limit;
    spent = data.seconds ?? spent;
    if (data.state === "running" && clock === null) clock = performance.now() - 1000 * spent;
    if (data.state !== "running") clock = null;
  }
  if (kind === "progress") spent = data.seconds;
  if (kind === "incumbent") {
    routeCosts = null;
    history = [...history, ...data.history];
    view.setRoutes(data.routes || [data.tour]);
    if (performance.now() - announced > 5000) {
      announced = performance.now();
      say(`Cost ${brief(data.cost)} after ${Math.round(data.seconds)} seconds`);
    }
  }
  if (kind === "end") {
    history = data.history;
    routeCosts = data.answer?.routes.map((route) => route.cost) ?? null;
    if (data.incumbent) view.setRoutes(data.incumbent.routes || [data.incumbent.tour], false);
    if (data.error) complain(data.error);
    if (data.state !== "paused") say(`The job is ${data.state}. Cost ${brief(data.incumbent?.cost ?? null)}`);
  }
  if (kind === "lost") {
    search.state = "lost";
    complain(data.error);
  }
  refresh(kind === "progress" ? data : null, data);
}

async function compareWith(body, ending) {
  if (!search.id) {
    waitingReference = [body, ending];
    say("The reference will be shown once the search has begun");
    $("status").textContent = "Reference loaded: it is compared when you press Solve.";
    return;
  }
  waitingReference = null;
  const found = await post(`/jobs/${search.id}/check${query({ format: ending })}`, body, "text/plain");
  reference = { cost: found.cost };
  $("known").value = found.cost;
  view.scene.reference = found.routes || [found.tour];
  view.refresh();
  say(`The reference costs ${brief(found.cost)}`);
  refresh();
}

async function download(format) {
  const name = problem.name;
  if (format === "png") {
    const words = `${name}: ${brief(history.at(-1)?.cost ?? null)}`;
    return save(await view.picture(words), fileName(name, "png"));
  }
  const text = await getText(`/jobs/${search.id}/solution${query({ format })}`);
  save(new Blob([text], { type: format.includes("json") ? "application/json" : "text/plain" }), fileName(name, format));
}

// ---- what is shown

function refresh(progress = null, data = null) {
  const routes = view.scene.routes;
  const { state } = search;
  const solved = routes.length > 0;
  const cvrp = problem.kind === "CVRP";
  document.querySelector(`[name=kind][value=${problem.kind}]`).checked = true;
  for (const row of document.querySelectorAll(".cvrp")) row.hidden = !cvrp;
  $("capacity").disabled = $("vehicles").disabled = Boolean(problem.source);
  $("welcome").hidden = problem.size > 0;
  $("caption").hidden = problem.size === 0;
  const stops = cvrp ? plural(Math.max(0, problem.size - 1), "customer") : plural(problem.size, "stop");
  $("caption").replaceChildren(Object.assign(document.createElement("b"), { textContent: problem.name }), ` · ${stops}`);
  $("facts").hidden = problem.size === 0;
  $("facts").textContent = facts(stops);
  $("map").setAttribute("aria-label", `Map: ${problem.name}, ${stops}${solved ? `, cost ${brief(history.at(-1)?.cost ?? null)}` : ""}`);

  $("solve").hidden = search.busy || state === "paused" || state === "interrupted";
  $("solve").disabled = problem.size < 2;
  $("pause").hidden = !search.busy;
  $("resume").hidden = !(state === "paused" || state === "interrupted");
  $("stop").hidden = !(search.busy || state === "paused");
  $("solve").textContent = solved && !search.busy ? "Solve again" : "Solve";
  $("status").textContent = statusWords(progress, data);

  $("result").hidden = $("save").hidden = !solved;
  $("routes-panel").hidden = !(solved && cvrp);
  if (solved) showResult(routes, cvrp);
  tick();
}

function facts(stops) {
  const rule = { euclidean: "straight lines", haversine: "metres on the globe", EXPLICIT: "a matrix" }[problem.distances];
  const words = [stops, `distances: ${rule || problem.distances}`];
  if (problem.kind === "CVRP") {
    const total = problem.demands.reduce((sum, each) => sum + each, 0);
    const load = capacity();
    words.push(`total demand ${brief(total)}`);
    if (load > 0) words.push(`at least ${plural(Math.max(1, Math.ceil(total / load - 1e-9)), "route")}`);
  }
  return words.join(" · ");
}

function statusWords(progress, data) {
  const { state } = search;
  if (!state) return problem.size < 2 ? "Nothing to solve yet." : "Ready.";
  if (state === "queued") return data?.position ? `Waiting: ${plural(data.position, "job")} before this one.` : "Waiting for a worker…";
  if (state === "running") {
    if (progress) return `First solution: ${progress.done} of ${progress.total} stops.`;
    return history.length ? "Improving…" : "Looking for a first solution…";
  }
  const words = { paused: "Paused.", done: "Done.", stopped: "Stopped; this is the best so far.", failed: "Failed.", interrupted: "Interrupted by a restart of the service.", lost: "The connection was lost." };
  return words[state] ?? state;
}

/** A cost with its unit, where it has one. */
function costWords(cost) {
  if (problem.distances !== "haversine") return brief(cost);
  return cost >= 10000 ? `${brief(cost / 1000)} km` : `${brief(cost)} m`;
}

function showResult(routes, cvrp) {
  const [first, last] = [history[0]?.cost, history.at(-1)?.cost];
  const [number, unit] = costWords(last).split(" ");
  $("cost").textContent = number;
  $("unit").textContent = unit ?? "";
  $("gain").textContent = first ? percent(1 - last / first) : "–";
  $("steps").textContent = brief(Math.max(0, history.length - 1));
  const known = reference?.cost ?? null;
  $("gap-box").hidden = !(known > 0);
  if (known > 0) $("gap").textContent = `${last >= known ? "+" : "−"}${percent(Math.abs(last / known - 1))}`;
  $("show-reference").hidden = !view.scene.reference;
  if (cvrp) {
    list.show(problem, routes, view.scene.shades, capacity(), routeCosts, costWords);
    $("route-count").textContent = `(${routes.length})`;
  }
  for (const button of $("downloads").children) {
    const fits = { sol: cvrp, tour: !cvrp, geojson: problem.geographic && ["haversine", "GEO"].includes(problem.distances) };
    button.hidden = fits[button.dataset.format] === false;
    button.disabled = !search.id && button.dataset.format !== "png";
  }
}

/** What changes with the time alone. */
function tick() {
  if (clock !== null) spent = Math.min(limit, (performance.now() - clock) / 1000);
  const share = search.state === "done" ? 1 : search.id ? Math.min(1, spent / limit) : 0;
  $("bar").firstElementChild.style.transform = `scaleX(${share})`;
  $("bar").setAttribute("aria-valuenow", Math.round(100 * share));
  if (!$("result").hidden) drawCurve($("curve"), history, spent, reference?.cost ?? null, costWords);
}

// ---- wiring

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  view.palette = null;
  view.refresh();
  refresh();
}

function chooseTool(tool) {
  hand.setTool(tool);
  for (const button of document.querySelectorAll("[data-tool]")) if (button.tagName === "BUTTON") button.setAttribute("aria-pressed", String(button.dataset.tool === tool));
}

function wire() {
  const onClick = (id, action) => $(id).addEventListener("click", quietly(action));
  for (const button of document.querySelectorAll(".tools button")) button.addEventListener("click", () => chooseTool(button.dataset.tool));
  for (const button of document.querySelectorAll("[data-example]")) button.addEventListener("click", quietly(() => openExample(button.dataset.example)));
  for (const button of $("downloads").children) button.addEventListener("click", quietly(() => download(button.dataset.format)));
  for (const radio of document.querySelectorAll("[name=kind]")) {
    radio.addEventListener("change", () => {
      if (!editable()) return refresh();
      problem.setKind(radio.value, demandOfNew);
      edited();
    });
  }
  $("examples").addEventListener("change", quietly(async (event) => {
    const name = event.target.value;
    event.target.value = "";
    await openExample(name);
  }));
  onClick("open", () => $("file").click());
  onClick("reference", () => $("reference-file").click());
  for (const [id, action] of [["file", openFile], ["reference-file", openFile]]) {
    $(id).addEventListener("change", quietly(async (event) => {
      const [file] = event.target.files;
      await action(file);
      event.target.value = "";
    }));
  }
  onClick("random", () => generate(false));
  onClick("clustered", () => generate(true));
  onClick("clear", () => {
    setProblem(new Problem(problem.kind));
    chooseTool("add");
  });
  onClick("solve", solve);
  onClick("pause", () => search.pause());
  onClick("resume", () => search.resume());
  onClick("stop", () => search.stop());
  onClick("zoom-in", () => view.zoom(1.4));
  onClick("zoom-out", () => view.zoom(1 / 1.4));
  onClick("fit", () => view.fit());
  onClick("alert-close", () => {});
  $("capacity").addEventListener("input", () => refresh());
  $("known").addEventListener("input", () => {
    const cost = numberIn("known");
    reference = cost > 0 ? { cost } : null;
    refresh();
  });
  $("reference-shown").addEventListener("change", (event) => {
    view.scene.referenceShown = event.target.checked;
    view.refresh();
  });
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const stored = localStorage.getItem("lehd-theme");
  setTheme(stored || (dark.matches ? "dark" : "light"));
  dark.addEventListener("change", () => localStorage.getItem("lehd-theme") || setTheme(dark.matches ? "dark" : "light"));
  $("theme").addEventListener("click", () => {
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    localStorage.setItem("lehd-theme", next);
    setTheme(next);
  });
  document.addEventListener("keydown", (event) => {
    const tool = { m: "pan", a: "add", d: "depot", e: "erase" }[event.key.toLowerCase()];
    if (tool && !event.ctrlKey && !event.metaKey && !event.altKey && !/INPUT|SELECT|TEXTAREA/.test(event.target.tagName)) chooseTool(tool);
    if (event.key === "Escape") $("alert").hidden = true;
  });
  let dragging = 0;
  const drop = (shown) => ($("drop").hidden = !shown);
  document.addEventListener("dragenter", () => drop(++dragging > 0));
  document.addEventListener("dragleave", () => drop(--dragging > 0));
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", quietly(async (event) => {
    event.preventDefault();
    dragging = 0;
    drop(false);
    await openFile(event.dataTransfer.files[0]);
  }));
  setInterval(() => search.busy && tick(), 250);
}

onKeyNeeded(() => new Promise((done) => {
  const dialog = $("key-dialog");
  dialog.addEventListener("close", () => done(dialog.returnValue === "ok" ? $("key").value.trim() : ""), { once: true });
  dialog.returnValue = "";
  dialog.showModal();
}));

async function begin() {
  settings = await getJSON("/config");
  $("seconds").value = settings.default_seconds;
  $("seconds").max = settings.seconds;
  $("count").max = settings.nodes;
  $("credit").hidden = !(settings.tiles && settings.tiles_credit);
  $("credit").textContent = settings.tiles_credit;
  const known = /^#job=([A-Za-z0-9_-]{20})$/.exec(location.hash);
  if (!known) return;
  const { record, picture, source } = await search.open(known[1]);
  setProblem(Problem.read(picture, source));
  location.hash = `job=${record.id}`;
  search.follow(record);
}

wire();
view.show(problem);
refresh();
quietly(begin)();
window.lehd = { view, search }; // for the curious, and for measuring
