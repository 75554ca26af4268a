// Mouse, fingers and keyboard on the map.

const SPRAY = 14; // pixels between stops when dragging

export class Hand {
  /** `act(tool, sx, sy, first)` uses a tool at a point; `over(sx, sy)` tells where the pointer rests, or null. */
  constructor(view, act, over) {
    Object.assign(this, { view, act, over, tool: "pan", fingers: new Map(), last: null });
    const { canvas } = view;
    canvas.addEventListener("pointerdown", (event) => this.down(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, (event) => this.up(event));
    canvas.addEventListener("pointerleave", () => this.over(null));
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("focus", () => this.showCross());
    canvas.addEventListener("blur", () => this.hideCross());
  }

  setTool(tool) {
    this.tool = tool;
    this.view.canvas.dataset.tool = tool;
    if (tool === "pan") this.hideCross();
  }

  at(event) {
    const box = this.view.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  down(event) {
    if (event.button > 1) return;
    this.view.canvas.setPointerCapture(event.pointerId);
    const place = this.at(event);
    this.fingers.set(event.pointerId, place);
    this.hideCross();
    this.moving = this.tool === "pan" || event.button === 1 || this.fingers.size > 1;
    this.last = place;
    if (this.moving) this.view.canvas.classList.add("moving");
    else this.act(this.tool, ...place, true);
  }

  move(event) {
    const place = this.at(event);
    const before = this.fingers.get(event.pointerId);
    if (!before) {
      if (event.pointerType === "mouse") this.over(place);
      return;
    }
    if (this.fingers.size === 2) {
      const [other] = [...this.fingers].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
      const spread = (a) => Math.hypot(a[0] - other[0], a[1] - other[1]) || 1;
      this.view.zoom(spread(place) / spread(before), (place[0] + other[0]) / 2, (place[1] + other[1]) / 2);
      this.view.pan((place[0] - before[0]) / 2, (place[1] - before[1]) / 2);
    } else if (this.moving) {
      this.view.pan(place[0] - before[0], place[1] - before[1]);
    } else if (this.tool !== "depot" && Math.hypot(place[0] - this.last[0], place[1] - this.last[1]) > SPRAY) {
      this.last = place;
      this.act(this.tool, ...place, false);
    }
    this.fingers.set(event.pointerId, place);
  }

  up(event) {
    this.fingers.delete(event.pointerId);
    if (!this.fingers.size) this.view.canvas.classList.remove("moving");
  }

  wheel(event) {
    event.preventDefault();
    this.view.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0016)), ...this.at(event));
  }

  key(event) {
    const { view } = this;
    const step = event.shiftKey ? 60 : 15;
    const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (arrows[event.key]) {
      const [dx, dy] = arrows[event.key].map((way) => way * step);
      if (this.tool === "pan") view.pan(-2 * dx, -2 * dy);
      else this.moveCross(dx, dy);
    } else if (event.key === "+" || event.key === "=") view.zoom(1.3);
    else if (event.key === "-") view.zoom(1 / 1.3);
    else if (event.key === "0") view.fit();
    else if ((event.key === "Enter" || event.key === " ") && this.tool !== "pan") {
      this.showCross();
      this.act(this.tool, ...view.cross, true);
    } else return;
    event.preventDefault();
  }

  showCross() {
    const { view } = this;
    if (this.tool === "pan" || !view.canvas.matches(":focus-visible")) return;
    view.cross ||= [view.camera.width / 2, view.camera.height / 2];
    view.request();
  }

  moveCross(dx, dy) {
    this.showCross();
    const { view } = this;
    view.cross ||= [view.camera.width / 2, view.camera.height / 2];
    view.cross = [
      Math.min(view.camera.width, Math.max(0, view.cross[0] + dx)),
      Math.min(view.camera.height, Math.max(0, view.cross[1] + dy)),
    ];
    view.request();
  }

  hideCross() {
    if (!this.view.cross) return;
    this.view.cross = null;
    this.view.request();
  }
}
