// The form of an operation on the page at /docs: its parameters, the credentials, and the answer.

import { code } from "/static/parts/code.js";
import { make } from "/static/parts/page.js";
import { asText, description, essence, exampleOf, facts, fold, heading, isNull, mediaExample, optionsOf, paragraph, pre, readable, refName, refOf, resolve, schemaOf, typeOf } from "/static/docs/schema.js";
import { tab } from "/static/parts/remembered.js";

const LONGEST = 200_000; // characters that are shown of an answer

// --- who asks --------------------------------------------------------------------------------------------------

const KEYS = { "X-Internal-Token": "token" }; // /ops keeps the token in the tab under the same name
const VARIABLES = { "X-Internal-Token": "SNAPAPP_INTERNAL_TOKEN" }; // the shell's variables for secrets

export const isHeader = (scheme) => scheme?.type === "apiKey" && scheme.in === "header";
const keyOf = (header) => KEYS[header] ?? header;
const kept = (header) => tab.get(keyOf(header));

const securityOf = (operation) => operation.security ?? description.security ?? [];
export const isOptional = (operation) => securityOf(operation).some((option) => !Object.keys(option).length);

/** The headers by which an operation identifies the client, without the cookie, which the browser sends. */
export function headersOf(operation) {
  const schemes = new Set(securityOf(operation).flatMap(Object.keys));
  return [...schemes].map((name) => description.components?.securitySchemes?.[name]).filter(isHeader).map((scheme) => scheme.name);
}

/** An input for a header's value, which this tab keeps for all operations that use the header. */
export function keeper({ name, description: about }) {
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
    tab.set(keyOf(name), input.value.trim());
    input.value = "";
    show();
  });
  forget.addEventListener("click", () => {
    tab.forget(keyOf(name));
    show();
    input.focus();
  });
  show();
  return form;
}

// --- what is asked ---------------------------------------------------------------------------------------------

/** A parameter and its input. An optional parameter is sent if its box is ticked. */
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

/** The request that the form describes, without credentials. */
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

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`; // quoted for a shell

function curl(request, isStream, headers) {
  const parts = [`curl ${isStream ? "-N " : ""}${request.method === "GET" ? "" : `-X ${request.method} `}${quoted(location.origin + request.url)}`];
  for (const header of headers) parts.push(`-H "${header}: $${VARIABLES[header] ?? header.replaceAll("-", "_").toUpperCase()}"`);
  for (const [name, value] of Object.entries(request.headers)) parts.push(`-H ${quoted(`${name}: ${value}`)}`);
  if (request.body !== undefined) parts.push(`--data-raw ${quoted(request.body)}`);
  return parts.join(" \\\n  ");
}

// --- trying it -------------------------------------------------------------------------------------------------

/** Sends the request, and shows the answer while it arrives. */
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
    text = text.slice(-LONGEST); // a stream does not end
    said.textContent = text;
    said.scrollTop = said.scrollHeight;
  }
  if (isJson) said.textContent = cut(indented(text));
}

const cut = (text) => (text.length > LONGEST ? `${text.slice(0, LONGEST)}\n… and ${text.length - LONGEST} characters more` : text);

/** Indents JSON. Its numbers stay as they were sent: read as numbers, ids above 2^53 would be rounded. */
function indented(text) {
  try {
    return JSON.stringify(JSON.parse(text, (_, value, { source }) => (typeof value === "number" ? JSON.rawJSON(source) : value)), null, 2);
  } catch {
    return text; // it is not JSON, or the browser is of before 2025
  }
}

// --- its form -------------------------------------------------------------------------------------------------

export function tryIt({ path, method, operation, id, box }) {
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
  box.addEventListener("toggle", () => box.open || going?.abort()); // ends a stream, which would hold a connection
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
