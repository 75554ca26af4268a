// The API's description, from openapi.json. Nothing is fetched from elsewhere, and nothing becomes HTML.

const dark = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
document.documentElement.dataset.theme = localStorage.getItem("lehd-theme") || dark;

function make(tag, words = "", name = "", ...children) {
  const element = Object.assign(document.createElement(tag), { className: name });
  if (words) element.textContent = words;
  element.append(...children);
  return element;
}

/** A schema in a few words. */
function kind(schema) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map(kind).filter((each) => each !== "null").join(" or ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.type === "array") return `[${kind(schema.items) || "any"}]`;
  return schema.type || "any";
}

function table(rows) {
  const body = make("table");
  for (const row of rows) body.append(make("tr", "", "", ...row.map((cell) => make("td", cell))));
  return body;
}

function route(method, path, about) {
  const inside = make("div", "", "inside");
  if (about.parameters?.length) {
    inside.append(make("h3", "Parameters"));
    inside.append(table(about.parameters.map((each) => [each.name, kind(each.schema), each.description || each.schema?.description || ""])));
  }
  const content = about.requestBody?.content;
  if (content) {
    inside.append(make("h3", "Body"));
    for (const [type, each] of Object.entries(content)) {
      inside.append(make("p", `${type}: ${kind(each.schema)}`, "note"));
      if (each.example) inside.append(make("pre", typeof each.example === "string" ? each.example : JSON.stringify(each.example, null, 1)));
    }
  }
  inside.append(make("h3", "Answers"));
  inside.append(table(Object.entries(about.responses).map(([status, each]) => [status, kind(Object.values(each.content || {})[0]?.schema), each.description])));
  const head = make("summary", "", "", make("span", method.toUpperCase(), `method ${method}`), make("span", path, "path"), make("span", about.description || "", "short"));
  return make("details", "", "", head, inside);
}

function shape(name, schema) {
  const head = make("summary", "", "", make("span", name, "path"), make("span", schema.description || "", "short"));
  const required = new Set(schema.required || []);
  const rows = Object.entries(schema.properties || {}).map(([key, each]) => [key + (required.has(key) ? " *" : ""), kind(each), each.description || ""]);
  return make("details", "", "", head, make("div", "", "inside", table(rows)));
}

const api = await (await fetch("/openapi.json")).json();
document.getElementById("about").textContent = api.info.description;
for (const [path, methods] of Object.entries(api.paths)) {
  for (const [method, about] of Object.entries(methods)) document.getElementById("routes").append(route(method, path, about));
}
for (const [name, schema] of Object.entries(api.components.schemas)) {
  if (!/HTTPValidationError|ValidationError/.test(name)) document.getElementById("shapes").append(shape(name, schema));
}
