// The problem: drawn, generated, or read from a file.

import { Refusal, getText, post, query } from "./api.js";
import { $, app, complain, demandOfNew, numberIn, say, startAfresh } from "./app.js";
import { Tiles } from "./geo.js";
import { refresh } from "./panel.js";
import { Problem, scatter } from "./problem.js";
import { brief, plural } from "./words.js";

export function setProblem(problem) {
  const { view, settings } = app;
  app.search.forget();
  app.problem = problem;
  app.waitingReference = null;
  startAfresh();
  if (problem.capacity !== null) $("capacity").value = problem.capacity;
  $("vehicles").value = problem.vehicles ?? "";
  $("problem").open = true;
  const tiled = problem.geographic && settings.tiles;
  view.scene.tiles = tiled ? (view.tiles ||= new Tiles(settings.tiles, () => view.refresh())) : null;
  $("credit").hidden = !(tiled && settings.tiles_credit);
  chooseTool(problem.size ? "pan" : "add"); // an empty map waits for stops
  view.show(problem);
  refresh();
}

export function chooseTool(tool) {
  app.hand.setTool(tool);
  for (const button of document.querySelectorAll("button[data-tool]")) button.setAttribute("aria-pressed", String(button.dataset.tool === tool));
}

/** The drawing changed: what was found for it no longer holds. */
export function edited() {
  app.search.forget();
  startAfresh();
  app.view.show(app.problem, false);
  refresh();
}

export function editable() {
  if (app.problem.editable) return true;
  complain("The distances of this problem come from a matrix: its stops cannot be moved here.");
  return false;
}

export function useTool(tool, sx, sy, first) {
  const { problem, view, settings } = app;
  if (!editable()) return;
  const [x, y] = view.position(sx, sy);
  const near = view.nearest(sx, sy, 16);
  if (tool === "add") {
    if (problem.size >= settings.nodes) return complain(`At most ${brief(settings.nodes)} stops.`);
    const digits = problem.geographic ? 6 : Math.max(0, Math.min(9, 1 + Math.ceil(Math.log10(view.camera.scale))));
    problem.add(Number(x.toFixed(digits)), Number(y.toFixed(digits)), demandOfNew());
    say(plural(problem.size, "stop"));
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

/** What is under the pointer, in words beside it and lit on the map and in the list. */
export function pointAt(place) {
  const { problem, view, list } = app;
  const node = place && problem.size ? view.nearest(...place) : -1;
  const cvrp = problem.kind === "CVRP";
  const route = cvrp && node > 0 ? view.scene.routes.findIndex((each) => each.includes(node)) : -1;
  if (cvrp) {
    list.mark(route >= 0 ? route : null);
    view.light(route >= 0 ? route : list.picked);
  }
  const tip = $("tip");
  tip.hidden = node < 0;
  if (node < 0) return;
  const words = [problem.names[node] || (cvrp && node === 0 ? "depot" : `stop ${node + 1}`)];
  if (cvrp && node === 0 && words[0] !== "depot") words.push("depot");
  if (cvrp && node > 0) words.push(`demand ${brief(problem.demands[node])}`);
  if (route >= 0) words.push(`route ${route + 1}`);
  tip.textContent = words.join("\n");
  tip.style.left = `${Math.min(place[0] + 14, view.camera.width - 150)}px`;
  tip.style.top = `${Math.max(6, place[1] - 34)}px`;
}

/** Have the service read a problem. A table of demands without a capacity takes the page's. */
export async function readProblem(body, name, type) {
  const parameters = { name };
  const inspect = () => post(`/inspect${query(parameters)}`, body, type);
  let picture;
  try {
    picture = await inspect();
  } catch (error) {
    if (!/without a capacity/.test(error.message)) throw error;
    parameters.capacity = numberIn("capacity") ?? 50;
    picture = await inspect();
    say(`The table has no capacity: ${parameters.capacity} is assumed`);
  }
  setProblem(Problem.read(picture, { body, type, parameters }));
}

/** A file: a problem, or a solution to compare with, which `compare` takes. */
export async function openFile(file, compare) {
  if (!file) return;
  const most = app.settings.body_mb;
  if (file.size > most * 1e6) throw new Refusal(413, `${file.name} is too large: at most ${most} MB.`);
  const ending = file.name.split(".").pop().toLowerCase();
  const body = await file.arrayBuffer();
  if (["sol", "tour"].includes(ending) || (ending === "json" && isSolution(body))) return compare(body, ending);
  const name = file.name.replace(/[\x00-\x1f\x7f]/g, "").slice(-120);
  await readProblem(body, name, ending === "json" ? "application/json" : "text/plain");
}

function isSolution(body) {
  try {
    const found = JSON.parse(new TextDecoder().decode(body));
    return !found.vehicles && Boolean(found.tour || found.routes);
  } catch {
    return false; // the service will say what is wrong
  }
}

export async function openExample(name) {
  if (name) await readProblem(await getText(`/static/examples/${name}`), name, "text/plain");
}

export function generate(clustered) {
  const count = Math.round(numberIn("count") ?? 0);
  const kind = document.querySelector("[name=kind]:checked").value;
  const most = app.settings.nodes - (kind === "CVRP" ? 1 : 0);
  if (!(count >= 1 && count <= most)) throw new Refusal(0, `Stops: expected a number from 1 to ${brief(most)}.`);
  const problem = new Problem(kind);
  problem.name = clustered ? "clustered" : "random";
  if (kind === "CVRP") problem.add(500, 500, 0);
  scatter(problem, count, clustered, demandOfNew);
  problem.vehicles = numberIn("vehicles");
  setProblem(problem);
}
