// What the panels show: the problem in words, the state of the search, costs, routes.

import { $, app, capacity } from "./app.js";
import { drawCurve } from "./curve.js";
import { brief, percent, plural } from "./words.js";

const RULES = { euclidean: "straight lines", haversine: "metres on the globe", EXPLICIT: "a matrix" };
const STATES = {
  paused: "Paused.",
  done: "Done.",
  stopped: "Stopped; this is the best so far.",
  failed: "Failed.",
  interrupted: "Interrupted by a restart of the service.",
  lost: "The connection was lost.",
};

/** Everything; `data` is what was just heard of the job. */
export function refresh(data = {}) {
  const { problem, view, search } = app;
  const { routes } = view.scene;
  const solved = routes.length > 0;
  const cvrp = problem.kind === "CVRP";
  const stops = cvrp ? plural(Math.max(0, problem.size - 1), "customer") : plural(problem.size, "stop");
  showProblem(problem, cvrp, stops);
  $("map").setAttribute("aria-label", `Map: ${problem.name}, ${stops}${solved ? `, cost ${brief(lastCost())}` : ""}`);
  showButtons(search, solved);
  $("status").textContent = statusWords(data);
  $("result").hidden = $("save").hidden = !solved;
  $("routes-panel").hidden = !(solved && cvrp);
  if (solved) showResult(routes, cvrp);
  tick();
}

const lastCost = () => app.history.at(-1)?.cost ?? null;

function showProblem(problem, cvrp, stops) {
  document.querySelector(`[name=kind][value=${problem.kind}]`).checked = true;
  for (const row of document.querySelectorAll(".cvrp")) row.hidden = !cvrp;
  $("capacity").disabled = $("vehicles").disabled = Boolean(problem.source);
  $("welcome").hidden = problem.size > 0;
  $("caption").hidden = $("facts").hidden = problem.size === 0;
  $("caption").replaceChildren(Object.assign(document.createElement("b"), { textContent: problem.name }), ` · ${stops}`);
  const words = [stops, `distances: ${RULES[problem.distances] || problem.distances}`];
  if (cvrp) {
    const total = problem.demands.reduce((sum, each) => sum + each, 0);
    const least = Math.max(1, Math.ceil(total / capacity() - 1e-9));
    words.push(`total demand ${brief(total)}`);
    if (capacity() > 0) words.push(`at least ${plural(least, "route")}`);
  }
  $("facts").textContent = words.join(" · ");
}

function showButtons(search, solved) {
  const resting = ["paused", "interrupted"].includes(search.state);
  $("solve").hidden = search.busy || resting;
  $("solve").disabled = app.problem.size < 2;
  $("solve").textContent = solved && !search.busy ? "Solve again" : "Solve";
  $("pause").hidden = !search.busy;
  $("resume").hidden = !resting;
  $("stop").hidden = !(search.busy || search.state === "paused");
}

function statusWords(data) {
  const { state } = app.search;
  if (!state && app.waitingReference) return "Reference loaded: it is compared when you press Solve.";
  if (!state) return app.problem.size < 2 ? "Nothing to solve yet." : "Ready.";
  if (state === "queued") return data.position ? `Waiting: ${plural(data.position, "job")} before this one.` : "Waiting for a worker…";
  if (state !== "running") return STATES[state] ?? state;
  if (data.phase === "construct") return `First solution: ${data.done} of ${data.total} stops.`;
  return app.history.length ? "Improving…" : "Looking for a first solution…";
}

/** A cost with its unit, where it has one. */
export function costWords(cost) {
  if (app.problem.distances !== "haversine") return brief(cost);
  return cost >= 10000 ? `${brief(cost / 1000)} km` : `${brief(cost)} m`;
}

function showResult(routes, cvrp) {
  const { problem, history, view, search } = app;
  const [first, last] = [history[0]?.cost, lastCost()];
  const [number, unit] = costWords(last).split(" ");
  $("cost").textContent = number;
  $("unit").textContent = unit ?? "";
  $("gain").textContent = first ? percent(1 - last / first) : "–";
  $("steps").textContent = brief(Math.max(0, history.length - 1));
  const known = app.reference?.cost ?? null;
  $("gap-box").hidden = !(known > 0);
  if (known > 0) $("gap").textContent = `${last >= known ? "+" : "−"}${percent(Math.abs(last / known - 1))}`;
  $("show-reference").hidden = !view.scene.reference;
  $("known-label").textContent = problem.distances === "haversine" ? "or with metres" : "or with a cost";
  if (cvrp) {
    app.list.show(problem, routes, view.scene.shades, capacity(), app.routeCosts, costWords);
    $("route-count").textContent = `(${routes.length})`;
  }
  const fits = { sol: cvrp, tour: !cvrp, geojson: problem.geographic && ["haversine", "GEO"].includes(problem.distances) };
  for (const button of $("downloads").children) {
    const { format } = button.dataset;
    button.hidden = fits[format] === false;
    button.disabled = !search.id && format !== "png";
  }
}

/** What changes with the time alone. */
export function tick() {
  const { search, clock, limit, history } = app;
  if (clock !== null) app.spent = Math.min(limit, (performance.now() - clock) / 1000);
  const share = search.state === "done" ? 1 : search.id ? Math.min(1, app.spent / limit) : 0;
  $("bar").firstElementChild.style.transform = `scaleX(${share})`;
  $("bar").setAttribute("aria-valuenow", Math.round(100 * share));
  if (!$("result").hidden) drawCurve($("curve"), history, app.spent, app.reference?.cost ?? null, costWords);
}
