// The page at /docs: what /openapi.json says, for people. All of it is text and stays text: nothing is parsed as HTML.

const LONGEST = 200_000; // characters of an answer that are shown
const NOT_SAID = "Successful Response"; // FastAPI's words where nobody wrote any
const NO_NUL = "^[^\\x00]*$"; // nearly every text has it, and nobody types a NUL

const at = (id) => document.getElementById(id);

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

/** A sentence with `code` in it. */
function prose(text) {
  const parts = text.replaceAll("\n", " ").split("`");
  return parts.map((part, place) => (place % 2 ? make("code", { textContent: part }) : part)).filter((part) => part !== "");
}

const paragraph = (text, className = "") => make("p", { className }, prose(text));
const pre = (text) => make("pre", { textContent: text, tabIndex: 0 });
const heading = (text) => make("h3", { textContent: text });

function fold(title, ...children) {
  return make("details", { className: "fold" }, make("summary", { textContent: title }), ...children);
}

function code(text = "") {
  const said = make("code", { textContent: text });
  const button = make("button", { type: "button", className: "copy", textContent: "Copy" });
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(said.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(said);
      button.textContent = "Selected";
    }
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  return make("div", { className: "code" }, said, button);
}

// --- schemas ---------------------------------------------------------------------------------------------------

let description = {}; // what /openapi.json says

const refName = (ref) => ref.split("/").pop();
const readable = (name) => name.split("__").pop(); // pydantic puts the module before a name that two models have

/** What a `$ref` points to, with what is said beside it. */
function resolve(schema) {
  if (!schema?.$ref) return schema ?? {};
  const { $ref, ...beside } = schema;
  const found = $ref.split("/").slice(1).reduce((part, key) => part?.[key], description);
  return { ...resolve(found), ...beside };
}

/** A record's own options say which fields go together; its fields are what to show. */
const optionsOf = (schema) => (schema.properties ? [] : (schema.anyOf ?? schema.oneOf ?? []));
const isNull = (schema) => schema.type === "null";
const isNullable = (schema) => optionsOf(schema).some(isNull) || [schema.type].flat().includes("null");

/** The one thing that a schema is besides null, with what is said of both; or itself, where it may be several things. */
function essence(schema) {
  const whole = resolve(schema);
  const options = optionsOf(whole).filter((option) => !isNull(option));
  if (options.length !== 1) return whole;
  const { anyOf, oneOf, ...beside } = whole;
  return { ...essence(options[0]), ...beside, ref: refOf(options[0]) };
}

const refOf = (schema) => schema.$ref ?? schema.ref;
const isRecord = (schema) => Boolean(schema.properties);

function number(value) {
  if (Number.isSafeInteger(value) || !Number.isInteger(value)) return String(value);
  return value === 2 ** 63 ? "2⁶³ − 1" : value.toExponential(2); // JSON.parse has rounded it
}

function typeOf(schema) {
  const plain = essence(schema);
  const options = optionsOf(plain).filter((option) => !isNull(option));
  const words = options.length ? options.map(typeOf).join(" or ") : simpleType(plain, schema);
  return isNullable(resolve(schema)) && !words.endsWith("or null") ? `${words} or null` : words;
}

function simpleType(plain, schema) {
  const ref = refOf(schema) ?? refOf(plain);
  if (plain.const !== undefined) return JSON.stringify(plain.const);
  if (plain.enum) return plain.enum.map((each) => JSON.stringify(each)).join(" | ");
  if (plain.type === "array") return `list of ${typeOf(plain.items ?? {})}`;
  if (isRecord(plain)) return ref ? readable(refName(ref)) : "object";
  if (plain.type === "object") {
    const values = plain.additionalProperties;
    return values && values !== true ? `object of ${typeOf(values)}` : "object";
  }
  const type = [plain.type].flat().filter((each) => each && each !== "null").join(" or ") || "any JSON";
  return plain.format ? `${type} (${plain.format})` : type;
}

const between = (low, high, unit) => {
  if (low === undefined && high === undefined) return null;
  const tail = unit ? ` ${unit}` : "";
  if (low === undefined || (unit && !low)) return `at most ${number(high)}${tail}`;
  return high === undefined ? `at least ${number(low)}${tail}` : `${number(low)} to ${number(high)}${tail}`;
};

const hasDefault = ({ default: value }) => value !== undefined && value !== null && !(Array.isArray(value) && !value.length);

/** The type of a value, and what else it must be. */
function facts(schema) {
  const plain = essence(schema);
  const said = [
    typeOf(schema),
    between(plain.minimum, plain.maximum, ""),
    plain.exclusiveMinimum !== undefined ? `more than ${number(plain.exclusiveMinimum)}` : null,
    plain.exclusiveMaximum !== undefined ? `less than ${number(plain.exclusiveMaximum)}` : null,
    between(plain.minLength, plain.maxLength, "characters"),
    between(plain.minItems, plain.maxItems, "items"),
    hasDefault(plain) ? `else ${JSON.stringify(plain.default)}` : null,
  ];
  const parts = [said.filter(Boolean).join(", ")];
  const pattern = plain.pattern ?? plain.items?.pattern;
  if (pattern && pattern !== NO_NUL) parts.push(", like ", make("code", { textContent: pattern }));
  return make("span", { className: "facts" }, ...parts);
}

/** The records within a schema, each with its name and its `$ref`. */
function recordsIn(schema) {
  const plain = essence(schema);
  const ref = refOf(schema) ?? refOf(plain) ?? null;
  const options = optionsOf(plain).filter((option) => !isNull(option));
  if (options.length) return options.flatMap(recordsIn);
  if (plain.type === "array") return recordsIn(plain.items ?? {});
  if (isRecord(plain)) return [{ ref, plain }];
  const values = plain.additionalProperties;
  return values && typeof values === "object" ? recordsIn(values) : [];
}

/** The fields of a record and, folded, of those within it. `above` are the records we are in: they may hold themselves. */
function fields(record, isRequest, above) {
  const required = new Set(record.required ?? []);
  const list = Object.entries(record.properties).map(([name, schema]) => {
    const must = required.has(name) === isRequest ? make("span", { className: "must", textContent: isRequest ? " required" : " optional" }) : null;
    const said = essence(schema).description;
    const example = essence(schema).examples?.[0];
    return make(
      "li",
      {},
      make("span", { className: "field", textContent: name }), " ", facts(schema), must,
      said ? paragraph(said, "says") : null,
      example !== undefined ? make("p", { className: "facts" }, "for example ", make("code", { textContent: JSON.stringify(example) })) : null,
      recordsIn(schema).map((within) => nested(within, isRequest, above)),
    );
  });
  return make("ul", { className: "fields" }, list);
}

function nested({ ref, plain }, isRequest, above) {
  const name = ref ? readable(refName(ref)) : "its fields";
  if (ref && above.includes(ref)) return make("p", { className: "facts", textContent: `${name}: as above` });
  return fold(name, fields(plain, isRequest, [...above, ref]));
}

function schemaOf(schema, isRequest) {
  return recordsIn(schema).map(({ ref, plain }) => {
    const shown = fold(`Fields of ${ref ? readable(refName(ref)) : "it"}`, fields(plain, isRequest, [ref]));
    shown.open = isRequest;
    return shown;
  });
}

// --- examples --------------------------------------------------------------------------------------------------

const OF_FORMAT = {
  "date-time": "2030-01-31T08:00:00-03:00",
  date: "2030-01-31",
  uuid: "00000000-0000-4000-8000-000000000000",
  uri: "https://example.org/",
};

/** What somebody wrote as an example, else something of the right shape. A request holds what it must, and what has an
 *  example; an answer everything. */
function exampleOf(schema, isRequest, above = []) {
  const whole = resolve(schema);
  const ref = refOf(schema);
  if (ref && above.includes(ref)) return null;
  const plain = essence(whole);
  const within = [...above, ref ?? refOf(plain)].filter(Boolean);
  if (plain.const !== undefined) return plain.const;
  if (plain.example !== undefined) return plain.example;
  if (plain.examples?.length) return plain.examples[0];
  if (hasDefault(plain)) return plain.default;
  if (isNullable(whole) && !isRequest) return null;
  if (plain.enum) return plain.enum[0];
  const options = optionsOf(plain).filter((option) => !isNull(option));
  if (options.length) return exampleOf(options[0], isRequest, within);
  if (isRecord(plain)) return recordExample(plain, isRequest, within);
  switch ([plain.type].flat()[0]) {
    case "array":
      return plain.items && !isRequest ? [exampleOf(plain.items, isRequest, within)] : [];
    case "object":
      return {};
    case "string":
      return OF_FORMAT[plain.format] ?? "text";
    case "integer":
    case "number":
      return Math.max(plain.minimum ?? 0, 0);
    case "boolean":
      return false;
  }
  return null;
}

function recordExample(record, isRequest, above) {
  const required = new Set(record.required ?? []);
  const wanted = ([name, schema]) => !isRequest || required.has(name) || resolve(schema).examples;
  const chosen = Object.entries(record.properties).filter(wanted);
  return Object.fromEntries(chosen.map(([name, schema]) => [name, exampleOf(schema, isRequest, above)]));
}

function mediaExample(media, isRequest) {
  if (media.example !== undefined) return media.example;
  const [first] = Object.values(media.examples ?? {});
  return first ? resolve(first).value : exampleOf(media.schema ?? {}, isRequest);
}

const asText = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));

// --- who asks --------------------------------------------------------------------------------------------------

const KEYS = { "X-Internal-Token": "token" }; // the page of the queue keeps it under this name
const VARIABLES = { "X-Internal-Token": "SNAPAPP_INTERNAL_TOKEN" }; // in a shell

const isHeader = (scheme) => scheme?.type === "apiKey" && scheme.in === "header";
const keyOf = (header) => KEYS[header] ?? header;
const kept = (header) => sessionStorage.getItem(keyOf(header));

const securityOf = (operation) => operation.security ?? description.security ?? [];
const isOptional = (operation) => securityOf(operation).some((option) => !Object.keys(option).length);

/** The headers in which an operation looks for who asks. A cookie is the browser's to send. */
function headersOf(operation) {
  const schemes = new Set(securityOf(operation).flatMap(Object.keys));
  return [...schemes].map((name) => description.components?.securitySchemes?.[name]).filter(isHeader).map((scheme) => scheme.name);
}

/** A field for a header's value, which is kept in this tab for the operations that ask for it. */
function keeper({ name, description: about }) {
  const input = make("input", { id: `header-${name}`, type: "password", autocomplete: "off", spellcheck: false, required: true });
  const forget = make("button", { type: "button", textContent: "Forget" });
  const said = make("p", { className: "quiet", role: "status" });
  const form = make(
    "form",
    { className: "token", ariaLabel: name },
    make("label", { htmlFor: input.id, textContent: name }),
    make("div", { className: "line" }, input, make("button", { type: "submit", textContent: "Keep" }), forget),
    about ? paragraph(about, "quiet") : null,
    said,
  );
  const show = () => {
    forget.hidden = kept(name) === null;
    said.textContent = forget.hidden ? "" : "It is kept in this tab until you close it.";
    for (const form of document.querySelectorAll(".operation form")) form.dispatchEvent(new Event("input"));
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem(keyOf(name), input.value.trim());
    input.value = "";
    show();
  });
  forget.addEventListener("click", () => {
    sessionStorage.removeItem(keyOf(name));
    show();
    input.focus();
  });
  show();
  return form;
}

// --- what is asked ---------------------------------------------------------------------------------------------

/** A parameter and the input that holds its value. One that may be left out is sent when its box is ticked. */
function parameterOf(found, form) {
  const parameter = resolve(found);
  const schema = essence(parameter.schema ?? {});
  const input = inputOf(parameter, schema);
  const tick = parameter.required ? null : make("input", { type: "checkbox" });
  const id = `${form.id}-${parameter.in}-${parameter.name}`;
  input.id = id;
  input.required = Boolean(parameter.required);
  input.autocomplete = "off";
  input.spellcheck = false;
  input.addEventListener("input", () => tick && (tick.checked = true));
  tick?.setAttribute("aria-label", `send ${parameter.name}`);
  const said = parameter.description ?? schema.description;
  const line = make(
    "div",
    { className: "parameter" },
    make(
      "div",
      {},
      make("label", { htmlFor: id, className: "field", textContent: parameter.name }),
      make("span", { className: "facts" }, ` in ${parameter.in}, `), facts(parameter.schema ?? {}),
      parameter.required ? make("span", { className: "must", textContent: " required" }) : null,
      said ? paragraph(said, "says") : null,
    ),
    make("div", { className: "given" }, input, tick && make("label", { className: "sent" }, tick, "send")),
  );
  const values = () => {
    if (tick && !tick.checked) return [];
    return schema.type === "array" ? input.value.split(",").map((each) => each.trim()).filter(Boolean) : [input.value];
  };
  return { ...parameter, line, values };
}

function inputOf(parameter, schema) {
  const given = parameter.example ?? schema.examples?.[0] ?? schema.default ?? "";
  const choices = schema.enum ?? (schema.type === "boolean" ? [true, false] : null);
  if (choices) {
    const options = choices.map((each) => make("option", { value: String(each), textContent: String(each) }));
    const select = make("select", {}, options);
    if (given !== "") select.value = String(given);
    return select;
  }
  const isWhole = schema.type === "integer";
  const hint = schema.type === "array" ? "several: with commas between them" : "";
  return make("input", { type: "text", value: String(given), inputMode: isWhole ? "numeric" : "text", placeholder: hint });
}

function bodyOf(operation, form) {
  const body = resolve(operation.requestBody);
  const [type, media] = Object.entries(body.content ?? {})[0] ?? [];
  if (!type) return { parts: [], shape: [], type: null, text: () => undefined };
  const id = `${form.id}-body`;
  const area = make("textarea", { id, spellcheck: false });
  const fill = (value) => {
    area.value = asText(value);
    area.rows = Math.min(16, Math.max(3, area.value.split("\n").length + 1));
  };
  fill(mediaExample(media, true));
  const options = optionsOf(resolve(media.schema)).filter((option) => !isNull(option));
  const choices = options.length > 1 ? options.map((option) => choice(option, fill, area)) : [];
  const title = make("h3", {}, make("label", { htmlFor: id, textContent: "Body" }));
  const about = make("p", { className: "facts", textContent: `${type}${body.required ? "" : "; may be left out"}` });
  const parts = [title, about, choices.length ? make("div", { className: "choices" }, choices) : null, area];
  return { parts, shape: schemaOf(media.schema ?? {}, true), type, text: () => area.value.trim() || undefined };
}

function choice(option, fill, area) {
  const button = make("button", { type: "button", textContent: readable(refName(refOf(option) ?? typeOf(option))) });
  button.addEventListener("click", () => {
    fill(exampleOf(option, true));
    area.dispatchEvent(new Event("input", { bubbles: true }));
  });
  return button;
}

/** The request that the form describes, but for who asks. */
function requestOf(path, method, parameters, body) {
  const query = [];
  const headers = {};
  for (const parameter of parameters) {
    for (const value of parameter.values()) {
      const name = parameter.name;
      if (parameter.in === "path") path = path.replace(`{${name}}`, () => encodeURIComponent(value));
      if (parameter.in === "query") query.push(`${encodeURIComponent(name)}=${encodeURIComponent(value)}`);
      if (parameter.in === "header") headers[name] = value;
    }
  }
  const text = body.text();
  if (text !== undefined) headers["Content-Type"] = body.type;
  return { method, url: query.length ? `${path}?${query.join("&")}` : path, headers, body: text };
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`; // for a shell

function curl(request, isStream, headers) {
  const parts = [`curl ${isStream ? "-N " : ""}${request.method === "GET" ? "" : `-X ${request.method} `}${quoted(location.origin + request.url)}`];
  for (const header of headers) parts.push(`-H "${header}: $${VARIABLES[header] ?? header.replaceAll("-", "_").toUpperCase()}"`);
  for (const [name, value] of Object.entries(request.headers)) parts.push(`-H ${quoted(`${name}: ${value}`)}`);
  if (request.body !== undefined) parts.push(`--data-raw ${quoted(request.body)}`);
  return parts.join(" \\\n  ");
}

// --- trying it -------------------------------------------------------------------------------------------------

/** Sends the request, and shows what comes back as it comes. */
async function send(request, box, asking, signal) {
  const status = make("span", { className: "status", textContent: "…" });
  const took = make("span", { className: "quiet", role: "status", textContent: "asking" });
  const said = pre("");
  box.replaceChildren(make("div", { className: "line" }, status, took), said);
  box.hidden = false;
  const headers = { ...request.headers };
  for (const header of asking.filter(kept)) headers[header] = kept(header);
  const began = performance.now();
  const lasted = () => `${Math.round(performance.now() - began)} ms`;
  try {
    const answer = await fetch(request.url, { ...request, headers, signal, cache: "no-store" });
    status.dataset.class = String(answer.status)[0];
    status.textContent = `${answer.status} ${answer.statusText}`.trim();
    took.textContent = `${lasted()}, still coming`;
    said.before(...hints(answer, asking), shownHeaders(answer));
    await receive(answer, said);
    took.textContent = lasted();
  } catch (error) {
    if (!status.dataset.class) status.textContent = "no answer";
    took.textContent = signal.aborted ? `stopped after ${lasted()}` : `${error.message}, after ${lasted()}`;
  }
  said.hidden = said.textContent === "";
}

function hints(answer, asking) {
  if (answer.status !== 401) return [];
  const fields = asking.map((header) => [" ", make("a", { href: `#header-${header}`, textContent: header })]);
  return [make("p", { className: "quiet" }, "It asks for another value of", fields, ".")];
}

function shownHeaders(answer) {
  const lines = [...answer.headers].map(([name, value]) => `${name}: ${value}`);
  const shown = fold("Headers", pre(lines.join("\n")));
  shown.open = true;
  return shown;
}

async function receive(answer, said) {
  if (!answer.body) return;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  const isJson = /[/+]json/.test(answer.headers.get("Content-Type") ?? "");
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    text += value;
    if (isJson) continue;
    text = text.slice(-LONGEST); // a stream has no end
    said.textContent = text;
    said.scrollTop = said.scrollHeight;
  }
  if (isJson) said.textContent = cut(indented(text));
}

const cut = (text) => (text.length > LONGEST ? `${text.slice(0, LONGEST)}\n… and ${text.length - LONGEST} characters more` : text);

/** JSON on many lines. Its numbers stay as they are written: JSON.parse would round ids above 2^53. */
function indented(text) {
  try {
    JSON.parse(text);
  } catch {
    return text;
  }
  const out = [];
  let depth = 0;
  const line = () => `\n${"  ".repeat(depth)}`;
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[{[]\s*[}\]]|[{}[\],:]|[^\s{}[\],:"]+/g) ?? [];
  for (const token of tokens) {
    if (token === "{" || token === "[") {
      depth += 1;
      out.push(token, line());
    } else if (token === "}" || token === "]") {
      depth -= 1;
      out.push(line(), token);
    } else if (token === ",") out.push(token, line());
    else out.push(token === ":" ? ": " : token.replace(/^([{[])\s*([}\]])$/, "$1$2"));
  }
  return out.join("");
}

// --- one operation ---------------------------------------------------------------------------------------------

function tryIt({ path, method, operation, id, box }) {
  const form = make("form", { id: `try-${id}` });
  const shared = description.paths[path].parameters ?? [];
  const parameters = [...shared, ...(operation.parameters ?? [])].map((each) => parameterOf(each, form));
  const body = bodyOf(operation, form);
  const isStream = Object.values(operation.responses).some((answer) => resolve(answer).content?.["text/event-stream"]);
  const asking = headersOf(operation);
  const request = () => requestOf(path, method, parameters, body);
  const example = code();
  const show = () => (example.querySelector("code").textContent = curl(request(), isStream, isOptional(operation) ? asking.filter(kept) : asking));
  const go = make("button", { type: "submit", className: "primary", textContent: "Try it" });
  const stop = make("button", { type: "button", textContent: "Stop", hidden: true });
  const answer = make("section", { className: "answer", hidden: true, ariaLabel: "The answer" });
  let going = null;

  stop.addEventListener("click", () => going?.abort());
  box.addEventListener("toggle", () => box.open || going?.abort()); // a forgotten stream keeps a connection
  form.addEventListener("input", show);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    going?.abort();
    const mine = (going = new AbortController());
    stop.hidden = false;
    await send(request(), answer, asking, mine.signal);
    if (going === mine) stop.hidden = true;
  });
  form.append(
    ...(parameters.length ? [heading("Parameters"), ...parameters.map((each) => each.line)] : []),
    ...body.parts.filter(Boolean),
    make("div", { className: "send" }, go, stop, method === "GET" ? null : make("p", { className: "quiet", textContent: "This is done for real." })),
    answer,
    heading("In a shell"),
    example,
    ...(body.shape.length ? [heading("What the body holds"), ...body.shape] : []),
  );
  show();
  return form;
}

function answers(operation) {
  const all = Object.entries(operation.responses).map(([status, answer]) => [status, resolve(answer)]);
  const good = all.filter(([status]) => status < "4");
  const bad = all.filter(([status]) => status >= "4");
  const ofGood = good.map(([status, answer]) => statusLine(status, answer, contents(answer)));
  const ofBad = bad.map(([status, answer]) => statusLine(status, answer, []));
  return [
    heading("Answers"),
    make("ul", { className: "statuses" }, ofGood, ofBad),
    refusals(bad),
  ];
}

function statusLine(status, answer, more) {
  const mark = make("span", { className: "status", textContent: status });
  mark.dataset.class = status[0];
  const said = answer.description && answer.description !== NOT_SAID ? [paragraph(answer.description)] : [];
  return make("li", {}, mark, make("div", {}, said, more));
}

function contents(answer) {
  return Object.entries(answer.content ?? {}).flatMap(([type, media]) => {
    const schema = media.schema ?? {};
    const example = mediaExample(media, false);
    const of = typeOf(schema);
    return [
      make("p", { className: "facts", textContent: of === "string" || of === "any JSON" ? type : `${type}, ${of}` }),
      ...schemaOf(schema, false),
      isHollow(example) ? null : fold("An example", pre(asText(example))),
    ];
  });
}

const isHollow = (example) => example === null || example === "text" || JSON.stringify(example) === "{}";

/** Refusals look alike: each shape is shown once, with the statuses that have it. */
function refusals(bad) {
  const shapes = new Map();
  for (const [status, answer] of bad) {
    const media = Object.values(answer.content ?? {})[0];
    const key = JSON.stringify(media?.schema ?? null);
    if (media) shapes.set(key, { media, statuses: [...(shapes.get(key)?.statuses ?? []), status] });
  }
  return [...shapes.values()].map(({ media, statuses }) =>
    fold(`What ${statuses.join(", ")} ${statuses.length > 1 ? "look" : "looks"} like`, pre(asText(mediaExample(media, false))), schemaOf(media.schema, false)),
  );
}

function inside(known) {
  const { operation, id } = known;
  const asked = headersOf(operation).join(", ");
  return make(
    "div",
    { className: "inside" },
    operation.description ? paragraph(operation.description) : null,
    make("p", { className: "about" }, make("a", { href: `#${id}`, textContent: `#${id}` }), asked ? ` · asks for ${asked}${isOptional(operation) ? ", or nothing" : ""}` : null, operation.deprecated ? " · deprecated" : null),
    tryIt(known),
    answers(operation),
  );
}

// --- the page --------------------------------------------------------------------------------------------------

const METHODS = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];
const operations = new Map(); // by id

function learn() {
  for (const [path, methods] of Object.entries(description.paths)) {
    for (const method of METHODS) {
      const operation = methods[method];
      if (!operation) continue;
      const id = operation.operationId ?? `${method}${path.replace(/\W+/g, "-")}`;
      const known = { id, path, method: method.toUpperCase(), operation, tag: operation.tags?.[0] ?? "other" };
      operations.set(id, { ...known, words: wordsOf(known), ...draw(known) });
    }
  }
}

function wordsOf({ id, path, method, operation, tag }) {
  const names = [...(operation.parameters ?? []).map(resolve), operation].flatMap((each) => [each.name, each.summary, each.description]);
  const bodies = Object.values(resolve(operation.requestBody).content ?? {});
  const inBody = bodies.flatMap((media) => recordsIn(media.schema ?? {})).flatMap(({ plain }) => Object.keys(plain.properties));
  return [id, path, method, tag, ...names, ...inBody].filter(Boolean).join(" ").toLowerCase();
}

function draw({ id, path, method, operation }) {
  const mark = make("span", { className: "method", textContent: method });
  mark.dataset.method = method;
  const title = operation.summary ?? id;
  const summary = make("summary", {}, mark, make("span", { className: "path", textContent: path }), make("span", { className: "title", textContent: title }));
  const link = make("a", { href: `#${id}`, textContent: title, title: `${method} ${path}` });
  const box = make("details", { id, className: "operation" }, summary);
  box.addEventListener("toggle", () => {
    if (!box.open) return;
    fill(id);
    if (location.hash !== `#${id}`) history.replaceState(null, "", `#${id}`);
    markCurrent();
  });
  return { box, item: make("li", {}, link), link };
}

/** Most operations are never looked at, so each is written out when it is first opened. */
function fill(id) {
  const known = operations.get(id);
  if (known.box.childElementCount === 1) known.box.append(inside(known));
}

const groups = []; // {section, title, list, ids}

function arrange() {
  const said = new Map((description.tags ?? []).map((tag) => [tag.name, tag.description ?? ""]));
  const used = [...operations.values()].map((each) => each.tag);
  for (const tag of new Set([...said.keys(), ...used])) {
    const members = [...operations.values()].filter((each) => each.tag === tag);
    if (!members.length) continue;
    const title = make("h2", { textContent: tag });
    const list = make("ul", {}, members.map((each) => each.item));
    const about = said.get(tag) ? paragraph(said.get(tag), "quiet") : null;
    const section = make("section", { className: "group" }, make("h2", { textContent: tag }), about, members.map((each) => each.box));
    groups.push({ section, title, list, members });
  }
  at("docs-operations").replaceChildren(...groups.map((group) => group.section));
  at("docs-contents").replaceChildren(...groups.flatMap((group) => [group.title, group.list]));
}

function search() {
  const wanted = at("docs-search").value.toLowerCase().split(/\s+/).filter(Boolean);
  let found = 0;
  for (const { section, title, list, members } of groups) {
    let here = 0;
    for (const known of members) {
      const fits = wanted.every((word) => known.words.includes(word));
      known.box.hidden = known.item.hidden = !fits;
      here += fits;
    }
    section.hidden = title.hidden = list.hidden = here === 0;
    found += here;
  }
  at("docs-none").hidden = found > 0;
  at("docs-found").textContent = wanted.length ? `${found} of ${operations.size}` : `${operations.size} operations`;
}

function markCurrent() {
  for (const { id, link } of operations.values()) {
    if (location.hash !== `#${id}`) {
      link.removeAttribute("aria-current");
      continue;
    }
    link.setAttribute("aria-current", "true");
    const list = at("docs-contents"); // scrolled by hand: scrollIntoView would move the page too
    list.scrollTop = link.offsetTop - list.offsetTop - list.clientHeight / 2;
  }
}

function showHash() {
  const known = operations.get(location.hash.slice(1));
  if (!known) return;
  if (known.box.hidden) {
    at("docs-search").value = "";
    search();
  }
  fill(known.id);
  known.box.open = true;
  markCurrent();
  known.box.scrollIntoView();
  known.box.firstElementChild.focus({ preventScroll: true });
}

at("docs-search").addEventListener("input", search);
at("docs-search").addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    at("docs-search").value = "";
    search();
  }
  if (event.key === "Enter") {
    event.preventDefault(); // else it closes what it has opened: the focus is on its summary by then
    const first = [...operations.values()].find((known) => !known.box.hidden);
    if (!first) return;
    history.replaceState(null, "", `#${first.id}`);
    showHash();
  }
});

addEventListener("keydown", (event) => {
  const isWriting = event.target.closest?.("input, textarea, select");
  if (event.key !== "/" || isWriting || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  at("docs-search").focus();
});

// --- all of it -------------------------------------------------------------------------------------------------

async function open() {
  try {
    const answer = await fetch("/openapi.json", { signal: AbortSignal.timeout(20_000) });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    description = await answer.json();
  } catch (error) {
    at("docs-notice").textContent = `/openapi.json cannot be read: ${error.message}. Reload the page to try again.`;
    at("docs-notice").hidden = false;
    return;
  }
  const { title, version, summary = "" } = description.info;
  at("docs-lead").textContent = `${summary} This is version ${version}.`.trim();
  document.title = `${title} ${version} · API`;
  const schemes = Object.values(description.components?.securitySchemes ?? {});
  at("docs-headers").replaceChildren(...schemes.filter(isHeader).map(keeper));
  learn();
  arrange();
  search();
  showHash();
  addEventListener("hashchange", showHash);
}

void open();
