// The canvas: camera, smooth moving, and what is under the pointer.
//
// Painting ten thousand stops takes longer than a frame. So the scene is painted onto a larger hidden canvas, which is
// moved and scaled while the map moves, and painted again when it comes to rest or its edge would show.

import { drawDegrees, mercator, unmercator } from "./geo.js";
import { closed, colours, matchShades, paint, paintChanges } from "./paint.js";

const MARGIN = 0.3; // of the canvas, on each side of the hidden one
const REST = 110; // milliseconds without movement before it is painted again
const FLASH = 1100; // milliseconds that new segments are shown

class Camera {
  constructor() {
    Object.assign(this, { x: 500, y: 500, scale: 0.5, width: 1, height: 1, left: 0, top: 0 });
  }

  screen(x, y) {
    return [(x - this.x) * this.scale + this.width / 2 + this.left, this.height / 2 - (y - this.y) * this.scale + this.top];
  }

  world(sx, sy) {
    return [(sx - this.left - this.width / 2) / this.scale + this.x, (this.height / 2 - sy + this.top) / this.scale + this.y];
  }

  copy(changes) {
    return Object.assign(new Camera(), this, changes);
  }
}

export class View {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.hidden = document.createElement("canvas");
    this.camera = new Camera();
    this.painted = null; // the camera of the hidden canvas
    this.stale = true;
    this.scene = { problem: null, wx: [], wy: [], routes: [], shades: [], reference: null, referenceShown: true, lit: null, radius: 4, tiles: null };
    this.changes = [];
    this.changedAt = -1e9;
    this.cross = null; // where the keyboard points, in pixels
    this.moved = 0;
    this.frames = 0;
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    new ResizeObserver(() => this.resize()).observe(canvas);
    this.resize();
  }

  resize() {
    const box = this.canvas.getBoundingClientRect();
    if (!box.width || !box.height) return;
    const ratio = Math.min(2, devicePixelRatio || 1);
    Object.assign(this.canvas, { width: Math.round(box.width * ratio), height: Math.round(box.height * ratio) });
    const first = this.camera.width === 1;
    Object.assign(this.camera, { width: box.width, height: box.height });
    this.ratio = ratio;
    if (this.scene.problem && (first || !this.touched)) this.fit();
    this.refresh();
  }

  /** Show a problem, from all sides if it is a new one. */
  show(problem, fit = true) {
    const scene = this.scene;
    scene.problem = problem;
    this.place();
    scene.routes = scene.shades = [];
    scene.reference = null;
    scene.lit = null;
    this.changes = [];
    if (fit) this.fit();
    this.refresh();
  }

  /** Positions as they are drawn. */
  place() {
    const { problem } = this.scene;
    this.scene.wx = problem.x;
    this.scene.wy = problem.geographic ? problem.y.map(mercator) : problem.y;
    this.scene.radius = problem.size > 5000 ? 1 : problem.size > 2000 ? 1.5 : problem.size > 500 ? 2.6 : problem.size > 150 ? 3.6 : 4.8;
    this.grid = null;
  }

  position(sx, sy) {
    const [x, y] = this.camera.world(sx, sy);
    return this.scene.problem.geographic ? [x, unmercator(y)] : [x, y];
  }

  fit() {
    this.touched = false;
    const { wx, wy, problem } = this.scene;
    const camera = this.camera;
    if (!wx.length) {
      Object.assign(camera, problem?.geographic ? { x: 10, y: 55, scale: 8 } : { x: 500, y: 500, scale: 0.9 * Math.min(camera.width, camera.height) / 1000 });
    } else {
      let [x0, x1, y0, y1] = [Infinity, -Infinity, Infinity, -Infinity];
      for (let i = 0; i < wx.length; i++) {
        x0 = Math.min(x0, wx[i]);
        x1 = Math.max(x1, wx[i]);
        y0 = Math.min(y0, wy[i]);
        y1 = Math.max(y1, wy[i]);
      }
      const span = Math.max(x1 - x0, y1 - y0) || 1;
      const room = 0.88 * Math.min((camera.width - 20) / Math.max(x1 - x0, span / 50), (camera.height - 90) / Math.max(y1 - y0, span / 50));
      Object.assign(camera, { x: (x0 + x1) / 2, y: (y0 + y1) / 2, scale: Math.max(1e-12, room) });
    }
    this.refresh();
  }

  /** New routes; edges that were not there before light up. */
  setRoutes(routes, flash = true) {
    const { problem } = this.scene;
    const key = (a, b) => (a < b ? a * 1e6 + b : b * 1e6 + a);
    const edges = (all) => {
      const found = new Set();
      for (const route of closed(problem, all)) for (let i = 1; i < route.length; i++) found.add(key(route[i - 1], route[i]));
      return found;
    };
    if (flash && this.scene.routes.length) {
      const before = edges(this.scene.routes);
      this.changes = [];
      for (const each of edges(routes)) if (!before.has(each)) this.changes.push([Math.floor(each / 1e6), each % 1e6]);
      this.changedAt = performance.now();
    }
    const shades = matchShades(this.scene.routes, this.scene.shades, routes);
    // While the search goes on, routes stay where they are in the list; at its end they have the numbers of the files.
    const order = routes.map((_, number) => number);
    if (flash) order.sort((a, b) => shades[a] - shades[b]);
    this.scene.routes = order.map((number) => routes[number]);
    this.scene.shades = order.map((number) => shades[number]);
    this.refresh();
  }

  light(route) {
    if (this.scene.lit === route) return;
    this.scene.lit = route;
    this.refresh();
  }

  refresh() {
    this.stale = true;
    this.request();
  }

  request() {
    if (!this.waiting) this.waiting = requestAnimationFrame(() => this.frame());
  }

  pan(dx, dy) {
    this.camera.x -= dx / this.camera.scale;
    this.camera.y += dy / this.camera.scale;
    this.touch();
  }

  zoom(factor, sx = this.camera.width / 2, sy = this.camera.height / 2) {
    const [x, y] = this.camera.world(sx, sy);
    this.camera.scale *= factor;
    const [nx, ny] = this.camera.world(sx, sy);
    this.camera.x += x - nx;
    this.camera.y += y - ny;
    this.touch();
  }

  touch() {
    this.touched = true;
    this.moved = performance.now();
    this.request();
  }

  frame() {
    this.waiting = 0;
    this.frames++;
    const { camera, context, ratio } = this;
    if (!this.scene.problem || camera.width === 1) return;
    const now = performance.now();
    const resting = now - this.moved > REST;
    if (this.stale || !this.painted || this.outside() || (resting && this.differs())) this.repaint();
    const palette = (this.palette ||= colours());
    const { painted } = this;
    const scale = camera.scale / painted.scale;
    const [left, top] = camera.screen(...painted.world(0, 0));
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = palette.map;
    if (scale < 1 || this.outside()) context.fillRect(0, 0, camera.width, camera.height);
    context.drawImage(this.hidden, left, top, (this.hidden.width / ratio) * scale, (this.hidden.height / ratio) * scale);
    if (this.scene.problem.geographic && !this.scene.tiles) {
      drawDegrees(context, camera, camera.width, camera.height, palette.soft);
    }
    const age = now - this.changedAt;
    if (age < FLASH && this.changes.length) {
      paintChanges(context, camera, this.scene, this.changes, this.still.matches ? 0.8 : 1 - age / FLASH, palette);
      if (this.still.matches) setTimeout(() => this.request(), FLASH - age + 20);
      else this.request();
    }
    if (this.cross) this.paintCross(palette);
    if (!resting && this.differs()) setTimeout(() => this.request(), REST + 10);
  }

  differs() {
    const { painted, camera } = this;
    return painted.x !== camera.x || painted.y !== camera.y || painted.scale !== camera.scale;
  }

  /** Whether the hidden canvas no longer covers the visible one, or is too coarse. */
  outside() {
    const { painted, camera } = this;
    if (!painted) return true;
    const scale = camera.scale / painted.scale;
    if (scale > 2.2 || scale < 0.45) return true;
    const [left, top] = camera.screen(...painted.world(0, 0));
    const [right, bottom] = [left + (this.hidden.width / this.ratio) * scale, top + (this.hidden.height / this.ratio) * scale];
    return scale >= 1 && (left > 0.5 || top > 0.5 || right < camera.width - 0.5 || bottom < camera.height - 0.5);
  }

  repaint() {
    this.stale = false;
    this.palette = colours();
    const { camera, ratio } = this;
    const [mx, my] = [Math.round(camera.width * MARGIN), Math.round(camera.height * MARGIN)];
    const [width, height] = [camera.width + 2 * mx, camera.height + 2 * my];
    const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (this.hidden.width !== w || this.hidden.height !== h) Object.assign(this.hidden, { width: w, height: h });
    this.painted = camera.copy({ left: mx, top: my });
    paint(this.hidden.getContext("2d", { alpha: false }), this.painted, width, height, this.scene, this.palette, ratio);
  }

  paintCross(palette) {
    const { context } = this;
    const [x, y] = this.cross;
    context.strokeStyle = palette.flash;
    context.lineWidth = 2;
    context.beginPath();
    context.moveTo(x - 12, y);
    context.lineTo(x + 12, y);
    context.moveTo(x, y - 12);
    context.lineTo(x, y + 12);
    context.stroke();
  }

  /** The stop within so many pixels of a point, or -1. */
  nearest(sx, sy, within = 12) {
    const { wx, wy } = this.scene;
    const [x, y] = this.camera.world(sx, sy);
    const reach = within / this.camera.scale;
    let [best, least] = [-1, reach * reach];
    for (let i = 0; i < wx.length; i++) {
      const away = (wx[i] - x) ** 2 + (wy[i] - y) ** 2;
      if (away < least) [best, least] = [i, away];
    }
    return best;
  }

  /** A picture of what is seen, in double size, with a line of words. */
  async picture(words) {
    const { camera } = this;
    const canvas = document.createElement("canvas");
    Object.assign(canvas, { width: camera.width * 2, height: camera.height * 2 });
    const context = canvas.getContext("2d", { alpha: false });
    paint(context, camera, camera.width, camera.height, { ...this.scene, lit: null }, colours(), 2);
    context.fillStyle = colours().ink;
    context.font = "600 15px system-ui, sans-serif";
    context.fillText(words, 14, camera.height - 14);
    return new Promise((done) => canvas.toBlob(done, "image/png"));
  }
}
