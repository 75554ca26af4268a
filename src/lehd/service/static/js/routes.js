// The list of routes: a button each, with its colour, stops, length and load.

import { colours, routeColour } from "./paint.js";
import { brief } from "./words.js";

export class RouteList {
  constructor(list, onLight, onPick) {
    this.list = list;
    this.onLight = onLight;
    this.onPick = onPick;
    this.picked = null;
    this.rows = [];
  }

  /** `costs` are the service's, once it has told them; before that, lengths are measured on the map. */
  show(problem, routes, shades, capacity, costs, costWords) {
    const dark = colours().dark;
    while (this.rows.length > routes.length) this.rows.pop().item.remove();
    routes.forEach((route, number) => {
      const row = (this.rows[number] ||= this.row(number));
      const load = route.reduce((sum, node) => sum + problem.demands[node], 0);
      const way = [0, ...route, 0];
      let length = 0;
      for (let i = 1; i < way.length; i++) length += problem.distance(way[i - 1], way[i]);
      const share = capacity ? Math.min(1, load / capacity) : 0;
      const colour = routeColour(shades[number] ?? number, dark);
      row.swatch.style.background = colour;
      row.what.textContent = `Route ${number + 1} · ${route.length} ${route.length === 1 ? "stop" : "stops"}`;
      row.length.textContent = costWords(costs?.[number] ?? (problem.editable ? length : null));
      row.fill.style.width = `${100 * share}%`;
      row.fill.style.background = colour;
      row.load.textContent = `${brief(load)} / ${brief(capacity)}`;
      row.button.setAttribute("aria-label", `Route ${number + 1}: ${route.length} stops, load ${brief(load)} of ${brief(capacity)}`);
    });
    if (this.picked !== null && this.picked >= routes.length) this.pick(null);
  }

  row(number) {
    const make = (tag, name) => Object.assign(document.createElement(tag), { className: name });
    const item = document.createElement("li");
    const button = Object.assign(make("button", ""), { type: "button" });
    button.setAttribute("aria-pressed", "false");
    const swatch = make("span", "swatch");
    const what = make("span", "what");
    const length = make("span", "length");
    const bar = make("span", "load");
    const track = document.createElement("span");
    const fill = document.createElement("i");
    const load = document.createElement("span");
    track.append(fill);
    bar.append(track, load);
    button.append(swatch, what, length, bar);
    button.addEventListener("pointerenter", () => this.onLight(number));
    button.addEventListener("pointerleave", () => this.onLight(this.picked));
    button.addEventListener("focus", () => this.onLight(number));
    button.addEventListener("blur", () => this.onLight(this.picked));
    button.addEventListener("click", () => this.pick(this.picked === number ? null : number));
    item.append(button);
    this.list.append(item);
    return { item, button, swatch, what, length, fill, load };
  }

  pick(number) {
    this.picked = number;
    this.rows.forEach((row, each) => row.button.setAttribute("aria-pressed", String(each === number)));
    this.onPick(number);
  }

  /** What the pointer is over on the map. */
  mark(number) {
    this.rows.forEach((row, each) => row.button.classList.toggle("on", each === number));
  }
}
