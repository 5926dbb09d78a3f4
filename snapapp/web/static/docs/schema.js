// Shows JSON schemas on the page at /docs, and makes examples of them.

import { make } from "/static/parts/page.js";

const NO_NUL = "^[^\\x00]*$"; // left out: nearly every text has this pattern

/** Elements for a text that may contain `code`. */
function prose(text) {
  const parts = text.replaceAll("\n", " ").split("`");
  return parts.map((part, place) => (place % 2 ? make("code", { textContent: part }) : part)).filter((part) => part !== "");
}

export const paragraph = (text, className = "") => make("p", { className }, prose(text));
export const pre = (text) => make("pre", { textContent: text, tabIndex: 0 });
export const heading = (text) => make("h3", { textContent: text });

export function fold(title, ...children) {
  return make("details", { className: "fold" }, make("summary", { textContent: title }), ...children);
}

// --- schemas ---------------------------------------------------------------------------------------------------

export let description = {}; // the content of /openapi.json

export function learnDescription(said) {
  description = said;
}

export const refName = (ref) => ref.split("/").pop();
export const readable = (name) => name.split("__").pop(); // pydantic puts the module before names that two models share

/** The schema that a `$ref` points to, with the properties beside the `$ref`. */
export function resolve(schema) {
  if (!schema?.$ref) return schema ?? {};
  const { $ref, ...beside } = schema;
  const found = $ref.split("/").slice(1).reduce((part, key) => part?.[key], description);
  return { ...resolve(found), ...beside };
}

/** The options of a schema. A record has none, because its `anyOf` only says which fields go together. */
export const optionsOf = (schema) => (schema.properties ? [] : (schema.anyOf ?? schema.oneOf ?? []));
export const isNull = (schema) => schema.type === "null";
const isNullable = (schema) => optionsOf(schema).some(isNull) || [schema.type].flat().includes("null");

/** The schema without null: the one other option of its `anyOf`, or the schema itself if there are several. */
export function essence(schema) {
  const whole = resolve(schema);
  const options = optionsOf(whole).filter((option) => !isNull(option));
  if (options.length !== 1) return whole;
  const { anyOf, oneOf, ...beside } = whole;
  return { ...essence(options[0]), ...beside, ref: refOf(options[0]) };
}

export const refOf = (schema) => schema.$ref ?? schema.ref;
const isRecord = (schema) => Boolean(schema.properties);

function number(value) {
  if (Number.isSafeInteger(value) || !Number.isInteger(value)) return String(value);
  return value === 2 ** 63 ? "2⁶³ − 1" : value.toExponential(2); // JSON.parse rounds large numbers
}

export function typeOf(schema) {
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

/** The type of a value, and its limits. */
export function facts(schema) {
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

/** The records that a schema contains, each with its name and its `$ref`. */
export function recordsIn(schema) {
  const plain = essence(schema);
  const ref = refOf(schema) ?? refOf(plain) ?? null;
  const options = optionsOf(plain).filter((option) => !isNull(option));
  if (options.length) return options.flatMap(recordsIn);
  if (plain.type === "array") return recordsIn(plain.items ?? {});
  if (isRecord(plain)) return [{ ref, plain }];
  const values = plain.additionalProperties;
  return values && typeof values === "object" ? recordsIn(values) : [];
}

/** The fields of a record and, folded, of records in it. `above` are the outer records, because a record may contain
 *  itself. */
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

export function schemaOf(schema, isRequest) {
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

/** The example in the schema, or a value of the right type. In a request it has the required fields and those with an
 *  example; in an answer all fields. */
export function exampleOf(schema, isRequest, above = []) {
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

export function mediaExample(media, isRequest) {
  if (media.example !== undefined) return media.example;
  const [first] = Object.values(media.examples ?? {});
  return first ? resolve(first).value : exampleOf(media.schema ?? {}, isRequest);
}

export const asText = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));
