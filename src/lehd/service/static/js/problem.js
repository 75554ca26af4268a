// A problem on the page: drawn here, or read by the service. Node 0 is the depot of vehicle routes.

export class Problem {
  constructor(kind = "TSP") {
    this.kind = kind;
    this.name = "drawing";
    this.geographic = false;
    this.editable = true;
    this.x = []; // longitudes where geographic
    this.y = [];
    this.demands = [];
    this.names = [];
    this.capacity = null;
    this.vehicles = null;
    this.distances = "euclidean";
    this.source = null; // the file it came from, as long as nothing was changed: {body, type, parameters}
  }

  get size() {
    return this.x.length;
  }

  /** What the service says about a file. */
  static read(picture, source) {
    const problem = new Problem(picture.problem);
    problem.name = picture.name;
    problem.geographic = picture.geographic;
    problem.editable = picture.placed;
    problem.distances = picture.distances;
    for (const [x, y] of picture.positions) {
      problem.x.push(x);
      problem.y.push(y);
    }
    problem.names = picture.names;
    problem.demands = picture.demands || picture.positions.map(() => 0);
    problem.capacity = picture.capacity ?? null;
    problem.vehicles = picture.vehicles ?? null;
    problem.source = source;
    return problem;
  }

  /** From now on it is a drawing: distances are straight lines, or metres on the globe. */
  changed() {
    this.source = null;
    this.distances = this.geographic ? "haversine" : "euclidean";
  }

  add(x, y, demand) {
    const first = this.kind === "CVRP" && this.size === 0;
    this.x.push(x);
    this.y.push(y);
    this.demands.push(first ? 0 : demand);
    this.names.push("");
    this.changed();
  }

  remove(node) {
    for (const list of [this.x, this.y, this.demands, this.names]) list.splice(node, 1);
    if (node === 0 && this.size) this.demands[0] = 0;
    this.changed();
  }

  /** Make a node the depot; the old one becomes a customer. */
  setDepot(node, demand) {
    if (node === 0) return;
    for (const list of [this.x, this.y, this.demands, this.names]) [list[0], list[node]] = [list[node], list[0]];
    this.demands[0] = 0;
    this.demands[node] = demand;
    this.changed();
  }

  moveDepot(x, y) {
    [this.x[0], this.y[0]] = [x, y];
    this.changed();
  }

  setKind(kind, demand) {
    if (kind === this.kind) return;
    this.kind = kind;
    if (kind === "CVRP") this.demands = this.demands.map((old, node) => (node === 0 ? 0 : old || demand()));
    this.changed();
  }

  /** What is sent to the service: the file as it was, or a table. */
  request(capacity, vehicles) {
    if (this.source) return this.source;
    const routes = this.kind === "CVRP";
    const head = [...(this.geographic ? ["lon", "lat"] : ["x", "y"]), ...(routes ? ["demand"] : []), "name"];
    const quoted = (text) => `"${String(text).replaceAll('"', '""').replace(/[\r\n]+/g, " ")}"`;
    const lines = [head.join(",")];
    for (let node = 0; node < this.size; node++) {
      const cells = [this.x[node], this.y[node]];
      if (routes) cells.push(this.demands[node]);
      cells.push(quoted(this.names[node] || node + 1));
      lines.push(cells.join(","));
    }
    const parameters = { name: `${this.name.replace(/\.(csv|tsv|tsp|vrp|json)$/i, "") || "drawing"}.csv` };
    if (routes) Object.assign(parameters, { capacity, vehicles });
    return { body: `${lines.join("\n")}\n`, type: "text/csv", parameters };
  }

  /** Length of an edge as drawn here, for the list of routes; the service's own costs are what counts. */
  distance(a, b) {
    if (!this.geographic) return Math.hypot(this.x[a] - this.x[b], this.y[a] - this.y[b]);
    const rad = Math.PI / 180;
    const dy = ((this.y[b] - this.y[a]) * rad) / 2;
    const dx = ((this.x[b] - this.x[a]) * rad) / 2;
    const chord = Math.sin(dy) ** 2 + Math.cos(this.y[a] * rad) * Math.cos(this.y[b] * rad) * Math.sin(dx) ** 2;
    return 2 * 6371008.8 * Math.asin(Math.sqrt(chord));
  }
}

/** Fill a problem with stops at random in a square of side 1000. */
export function scatter(problem, count, clustered, demand) {
  const centres = Array.from({ length: Math.max(2, Math.round(Math.sqrt(count) / 2)) }, () => [
    100 + 800 * Math.random(),
    100 + 800 * Math.random(),
    20 + 70 * Math.random(),
  ]);
  const normal = () => Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
  for (let i = 0; i < count; i++) {
    let [x, y] = [1000 * Math.random(), 1000 * Math.random()];
    if (clustered && Math.random() < 0.92) {
      const [cx, cy, width] = centres[Math.floor(Math.random() * centres.length)];
      [x, y] = [cx + width * normal(), cy + width * normal()];
    }
    problem.add(Math.round(Math.min(1000, Math.max(0, x)) * 10) / 10, Math.round(Math.min(1000, Math.max(0, y)) * 10) / 10, demand());
  }
}
