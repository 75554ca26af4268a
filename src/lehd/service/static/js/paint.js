// Painting a problem and its routes onto a canvas, all at once.

import { drawGraticule } from "./geo.js";

const HUES = ["#1f77b4", "#e8871e", "#2a9d4a", "#d04437", "#8a63b8", "#a2674f", "#d45fa8", "#17a2b8", "#93a11a", "#5163b5"];
const DARK_HUES = ["#5aa9e6", "#ffb259", "#5fd07f", "#ff7b70", "#b895e8", "#c99079", "#f08bcb", "#4fd0e3", "#c6d44b", "#8fa0f2"];

export const routeColour = (number, dark) => (dark ? DARK_HUES : HUES)[number % HUES.length];

export function colours() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(`--${name}`).trim();
  const dark = document.documentElement.dataset.theme === "dark";
  const names = ["map", "grid", "tour", "flash", "dot", "reference", "soft", "ink", "panel"];
  return { dark, ...Object.fromEntries(names.map((name) => [name, read(name)])) };
}

/** Which colour each route has: a tour has the page's own. */
export function coloursOf(scene, palette) {
  if (scene.problem.kind === "TSP") return [palette.tour];
  return scene.routes.map((_, number) => routeColour(scene.shades[number] ?? number, palette.dark));
}

/** Everything: background, reference, routes, stops. `scene` has problem, wx, wy, routes, reference, lit, tiles. */
export function paint(context, camera, width, height, scene, palette, ratio = 1) {
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.fillStyle = palette.map;
  context.fillRect(0, 0, width, height);
  background(context, camera, width, height, scene, palette);
  const { wx, wy } = scene;
  const count = wx.length;
  const sx = new Float32Array(count);
  const sy = new Float32Array(count);
  for (let i = 0; i < count; i++) {
    sx[i] = (wx[i] - camera.x) * camera.scale + camera.width / 2 + camera.left;
    sy[i] = camera.height / 2 - (wy[i] - camera.y) * camera.scale + camera.top;
  }
  const place = { sx, sy };
  context.lineJoin = "bevel";
  if (scene.reference && scene.referenceShown) {
    context.setLineDash([5, 4]);
    for (const route of closed(scene.problem, scene.reference)) line(context, place, route, palette.reference, 1.4, 0.9);
    context.setLineDash([]);
  }
  const shades = coloursOf(scene, palette);
  const thick = count > 3000 ? 1.2 : count > 600 ? 1.7 : 2.3;
  closed(scene.problem, scene.routes).forEach((route, number) => {
    const off = scene.lit !== null && scene.lit !== number;
    line(context, place, route, shades[number], scene.lit === number ? thick + 1.4 : thick, off ? 0.16 : 0.95);
  });
  stops(context, place, width, height, scene, palette, shades);
}

function background(context, camera, width, height, scene, palette) {
  if (scene.problem.geographic) {
    if (scene.tiles) scene.tiles.draw(context, camera, width, height);
    else drawGraticule(context, camera, width, height, palette.grid);
    return;
  }
  // A plain grid whose step is a round number, some 40 to 100 pixels.
  let step = 10 ** Math.floor(Math.log10(80 / camera.scale));
  while (step * camera.scale < 38) step *= step.toString().startsWith("2") ? 2.5 : 2;
  const [x0, y1] = camera.world(0, 0);
  const [x1, y0] = camera.world(width, height);
  if (!Number.isFinite(step) || (x1 - x0) / step > 200) return;
  context.strokeStyle = palette.grid;
  context.lineWidth = 1;
  context.beginPath();
  for (let x = Math.ceil(x0 / step) * step; x <= x1; x += step) {
    const at = Math.round(camera.screen(x, 0)[0]) + 0.5;
    context.moveTo(at, 0);
    context.lineTo(at, height);
  }
  for (let y = Math.ceil(y0 / step) * step; y <= y1; y += step) {
    const at = Math.round(camera.screen(0, y)[1]) + 0.5;
    context.moveTo(0, at);
    context.lineTo(width, at);
  }
  context.stroke();
}

/** Routes with their way from and to the depot; a tour with its way back. */
export function closed(problem, routes) {
  return routes.map((route) => (problem.kind === "CVRP" ? [0, ...route, 0] : route.length ? [...route, route[0]] : []));
}

/** For each new route the colour of the old one that it shares most stops with, so that colours stay where they are. */
export function matchShades(before, shades, routes) {
  const owner = new Map();
  before.forEach((route, number) => route.forEach((node) => owner.set(node, number)));
  const pairs = [];
  routes.forEach((route, number) => {
    const shared = new Map();
    for (const node of route) if (owner.has(node)) shared.set(owner.get(node), (shared.get(owner.get(node)) ?? 0) + 1);
    for (const [old, count] of shared) pairs.push([count, number, shades[old] ?? old]);
  });
  pairs.sort((a, b) => b[0] - a[0]);
  const found = new Array(routes.length);
  const used = new Set();
  for (const [, number, shade] of pairs) {
    if (found[number] !== undefined || used.has(shade)) continue;
    found[number] = shade;
    used.add(shade);
  }
  let free = 0;
  for (let number = 0; number < found.length; number++) {
    if (found[number] !== undefined) continue;
    while (used.has(free)) free++;
    found[number] = free;
    used.add(free);
  }
  return found;
}

function line(context, { sx, sy }, nodes, colour, width, alpha) {
  if (nodes.length < 2) return;
  context.globalAlpha = alpha;
  context.strokeStyle = colour;
  context.lineWidth = width;
  // One long path costs more than several short ones.
  for (let from = 0; from < nodes.length - 1; from += 500) {
    context.beginPath();
    context.moveTo(sx[nodes[from]], sy[nodes[from]]);
    const end = Math.min(nodes.length - 1, from + 500);
    for (let i = from + 1; i <= end; i++) context.lineTo(sx[nodes[i]], sy[nodes[i]]);
    context.stroke();
  }
  context.globalAlpha = 1;
}

function stops(context, { sx, sy }, width, height, scene, palette, shades) {
  const count = sx.length;
  const routed = scene.problem.kind === "CVRP" && scene.routes.length > 0;
  const small = count > 2000;
  const radius = scene.radius;
  const inside = (i) => sx[i] > -9 && sy[i] > -9 && sx[i] < width + 9 && sy[i] < height + 9;
  const draw = (nodes, colour, alpha) => {
    context.globalAlpha = alpha;
    context.fillStyle = colour;
    context.beginPath();
    for (const i of nodes) {
      if (!inside(i)) continue;
      if (small) context.rect(sx[i] - radius, sy[i] - radius, 2 * radius, 2 * radius);
      else {
        context.moveTo(sx[i] + radius, sy[i]);
        context.arc(sx[i], sy[i], radius, 0, 7);
      }
    }
    context.fill();
    if (!small && radius > 3) {
      context.strokeStyle = palette.map;
      context.lineWidth = 1.2;
      context.stroke();
    }
    context.globalAlpha = 1;
  };
  if (routed) {
    scene.routes.forEach((route, number) =>
      draw(route, shades[number], scene.lit !== null && scene.lit !== number ? 0.3 : 1),
    );
  } else {
    const first = scene.problem.kind === "CVRP" ? 1 : 0;
    draw(Array.from({ length: Math.max(0, count - first) }, (_, i) => i + first), palette.dot, 1);
  }
  if (scene.problem.kind === "CVRP" && count) depot(context, sx[0], sy[0], palette);
}

function depot(context, x, y, palette) {
  context.fillStyle = palette.ink;
  context.strokeStyle = palette.map;
  context.lineWidth = 2;
  context.beginPath();
  context.moveTo(x - 9, y + 8);
  context.lineTo(x - 9, y - 2);
  context.lineTo(x, y - 10);
  context.lineTo(x + 9, y - 2);
  context.lineTo(x + 9, y + 8);
  context.closePath();
  context.fill();
  context.stroke();
  context.fillStyle = palette.map;
  context.fillRect(x - 2.5, y + 1, 5, 7);
}

/** Segments that are new, on top of everything. */
export function paintChanges(context, camera, scene, changes, strength, palette) {
  context.globalAlpha = strength;
  context.strokeStyle = palette.flash;
  context.lineWidth = 4;
  context.lineCap = "round";
  context.beginPath();
  for (const [a, b] of changes) {
    context.moveTo(...camera.screen(scene.wx[a], scene.wy[a]));
    context.lineTo(...camera.screen(scene.wx[b], scene.wy[b]));
  }
  context.stroke();
  context.lineCap = "butt";
  context.globalAlpha = 1;
}
