// The page: puts the parts together, runs the search, and listens to buttons and files.

import { Refusal, getJSON, getText, onKeyNeeded, post, query } from "./api.js";
import { $, app, capacity, complain, demandOfNew, numberIn, say, shown } from "./app.js";
import { chooseTool, edited, editable, generate, openExample, openFile, pointAt, setProblem, useTool } from "./edit.js";
import { Hand } from "./hand.js";
import { refresh, tick } from "./panel.js";
import { Problem } from "./problem.js";
import { RouteList } from "./routes.js";
import { Search } from "./search.js";
import { View } from "./view.js";
import { brief, fileName, save } from "./words.js";

const TOOLS = { m: "pan", a: "add", d: "depot", e: "erase" };
const QUIET = 5000; // milliseconds between two costs read to screen readers
let announced = 0;

// ---- searching

async function solve() {
  const { problem, search, settings } = app;
  const seconds = numberIn("seconds");
  if (!(seconds > 0 && seconds <= settings.seconds)) throw new Refusal(0, `Seconds: expected a number up to ${brief(settings.seconds)}.`);
  Object.assign(app, { spent: 0, clock: null, limit: seconds });
  const begun = await search.start(problem.request(capacity(), numberIn("vehicles")), { time_limit: seconds });
  if (!begun) return; // the problem has changed since
  location.hash = `job=${search.id}`;
  $("problem").open = false; // room for what is found
  say("Solving");
  if (app.waitingReference) await shown(compareWith)(...app.waitingReference);
}

function hear(kind, data) {
  const { view, search } = app;
  if (kind === "state" || kind === "end") {
    app.limit = data.time_limit ?? app.limit;
    app.spent = data.seconds ?? app.spent;
    if (data.state !== "running") app.clock = null;
    else app.clock ??= performance.now() - 1000 * app.spent;
  }
  if (kind === "incumbent") {
    app.routeCosts = null;
    app.history = data.first ? data.history : [...app.history, ...data.history];
    view.setRoutes(data.routes || [data.tour]);
    if (performance.now() - announced > QUIET) {
      announced = performance.now();
      say(`Cost ${brief(data.cost)} after ${Math.round(data.seconds)} seconds`);
    }
  }
  if (kind === "end") {
    app.history = data.history;
    app.routeCosts = data.answer?.routes.map((route) => route.cost) ?? null;
    if (data.incumbent) view.setRoutes(data.incumbent.routes || [data.incumbent.tour], false);
    if (data.error) complain(data.error);
    say(`The job is ${data.state}. Cost ${brief(data.incumbent?.cost ?? null)}`);
  }
  if (kind === "lost") {
    search.state = "lost";
    complain(data.error);
  }
  refresh(data);
}

async function compareWith(body, ending) {
  const { search, view } = app;
  if (!search.id) {
    app.waitingReference = [body, ending];
    say("The reference will be shown once the search has begun");
    return refresh();
  }
  app.waitingReference = null;
  const { id } = search;
  const found = await post(`/jobs/${id}/check${query({ format: ending })}`, body, "text/plain");
  if (search.id !== id) return; // the problem has changed since
  app.reference = { cost: found.cost };
  $("known").value = found.cost;
  view.scene.reference = found.routes || [found.tour];
  view.refresh();
  say(`The reference costs ${brief(found.cost)}`);
  refresh();
}

async function download(format) {
  const { problem, view, search, history } = app;
  if (format === "png") {
    const words = `${problem.name}: ${brief(history.at(-1)?.cost ?? null)}`;
    return save(await view.picture(words), fileName(problem.name, "png"));
  }
  const text = await getText(`/jobs/${search.id}/solution${query({ format })}`);
  const type = format.includes("json") ? "application/json" : "text/plain";
  save(new Blob([text], { type }), fileName(problem.name, format));
}

// ---- wiring

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  app.view.palette = null;
  app.view.refresh();
  refresh();
}

function wireTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const system = () => (dark.matches ? "dark" : "light");
  setTheme(localStorage.getItem("lehd-theme") || system());
  dark.addEventListener("change", () => localStorage.getItem("lehd-theme") || setTheme(system()));
  $("theme").addEventListener("click", () => {
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    localStorage.setItem("lehd-theme", next);
    setTheme(next);
  });
}

function wireButtons() {
  const onClick = (id, action) => $(id).addEventListener("click", shown(action));
  for (const button of document.querySelectorAll("button[data-tool]")) button.addEventListener("click", () => chooseTool(button.dataset.tool));
  for (const button of document.querySelectorAll("[data-example]")) button.addEventListener("click", shown(() => openExample(button.dataset.example)));
  for (const button of $("downloads").children) button.addEventListener("click", shown(() => download(button.dataset.format)));
  onClick("clear", () => setProblem(new Problem(app.problem.kind)));
  onClick("open", () => $("file").click());
  onClick("reference", () => $("reference-file").click());
  onClick("random", () => generate(false));
  onClick("clustered", () => generate(true));
  onClick("solve", solve);
  onClick("pause", () => app.search.pause());
  onClick("resume", () => app.search.resume());
  onClick("stop", () => app.search.stop());
  onClick("zoom-in", () => app.view.zoom(1.4));
  onClick("zoom-out", () => app.view.zoom(1 / 1.4));
  onClick("fit", () => app.view.fit());
  onClick("alert-close", () => {});
  document.addEventListener("keydown", (event) => {
    const tool = TOOLS[event.key.toLowerCase()];
    const typing = /INPUT|SELECT|TEXTAREA/.test(event.target.tagName);
    if (tool && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) chooseTool(tool);
    if (event.key === "Escape") $("alert").hidden = true;
  });
}

function wireInputs() {
  for (const radio of document.querySelectorAll("[name=kind]")) {
    radio.addEventListener("change", () => {
      if (!editable()) return refresh();
      app.problem.setKind(radio.value, demandOfNew);
      edited();
    });
  }
  $("examples").addEventListener("change", shown(async (event) => {
    const name = event.target.value;
    event.target.value = "";
    await openExample(name);
  }));
  $("capacity").addEventListener("input", () => refresh());
  $("known").addEventListener("input", () => {
    const cost = numberIn("known");
    app.reference = cost > 0 ? { cost } : null;
    refresh();
  });
  $("reference-shown").addEventListener("change", (event) => {
    app.view.scene.referenceShown = event.target.checked;
    app.view.refresh();
  });
}

function wireFiles() {
  for (const id of ["file", "reference-file"]) {
    $(id).addEventListener("change", shown(async (event) => {
      await openFile(event.target.files[0], compareWith);
      event.target.value = "";
    }));
  }
  let dragging = 0;
  const show = () => ($("drop").hidden = dragging <= 0);
  document.addEventListener("dragenter", () => {
    dragging++;
    show();
  });
  document.addEventListener("dragleave", () => {
    dragging--;
    show();
  });
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", shown(async (event) => {
    event.preventDefault();
    dragging = 0;
    show();
    await openFile(event.dataTransfer.files[0], compareWith);
  }));
}

onKeyNeeded(() => new Promise((done) => {
  const dialog = $("key-dialog");
  dialog.addEventListener("close", () => done(dialog.returnValue === "ok" ? $("key").value.trim() : ""), { once: true });
  dialog.returnValue = "";
  dialog.showModal();
}));

/** The service's settings, and the job in the address bar if there is one. */
async function begin() {
  const settings = (app.settings = await getJSON("/config"));
  $("seconds").value = settings.default_seconds;
  $("seconds").max = settings.seconds;
  $("count").max = settings.nodes;
  $("credit").textContent = settings.tiles_credit;
  const known = /^#job=([A-Za-z0-9_-]{20})$/.exec(location.hash);
  if (!known) return;
  const { record, picture, source } = await app.search.open(known[1]);
  setProblem(Problem.read(picture, source));
  location.hash = `job=${record.id}`;
  app.search.follow(record);
}

app.problem = new Problem();
app.view = new View($("map"));
app.search = new Search(hear);
app.list = new RouteList($("routes"), (number) => app.view.light(number), (number) => app.view.light(number));
app.hand = new Hand(app.view, useTool, pointAt);
app.view.show(app.problem);
chooseTool("add");
wireTheme();
wireButtons();
wireInputs();
wireFiles();
setInterval(() => app.search.busy && tick(), 250);
shown(begin)();
window.lehd = app; // for the curious, and for measuring
