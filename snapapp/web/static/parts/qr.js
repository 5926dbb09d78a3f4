// QR codes by ISO/IEC 18004, as far as links need them: bytes, error correction M, versions 1 to 9. Not a library,
// because this is short, and every phone would load the parts of a library that are not needed.

import { svg } from "/static/parts/page.js";

const BLOCKS = [null, [10, 1], [16, 1], [26, 1], [18, 2], [24, 2], [16, 4], [18, 4], [22, 4], [22, 5]]; // by version: bytes of correction in each, how many
const ALIGNED = [null, [], [6, 18], [6, 22], [6, 26], [6, 30], [6, 34], [6, 22, 38], [6, 24, 42], [6, 26, 46]];
const MASKS = [
  (x, y) => (x + y) % 2,
  (x, y) => y % 2,
  (x) => x % 3,
  (x, y) => (x + y) % 3,
  (x, y) => (Math.floor(x / 3) + Math.floor(y / 2)) % 2,
  (x, y) => ((x * y) % 2) + ((x * y) % 3),
  (x, y) => (((x * y) % 2) + ((x * y) % 3)) % 2,
  (x, y) => (((x + y) % 2) + ((x * y) % 3)) % 2,
];

/** The code as rows of dark (1) and light (0) modules; null if the text is too long. */
export function modulesOf(text) {
  const bytes = new TextEncoder().encode(text);
  const version = BLOCKS.findIndex((_, each) => each && bytes.length + 2 <= dataBytes(each));
  if (version < 0) return null;
  const bits = interleaved(padded(bytes, dataBytes(version)), version).flatMap((byte) => bitsOf(byte, 8));
  const drawn = MASKS.map((_, mask) => draw(version, bits, mask));
  return drawn.reduce((best, each) => (penalty(each) < penalty(best) ? each : best));
}

const bitsOf = (value, count) => Array.from({ length: count }, (_, place) => (value >> (count - 1 - place)) & 1);

// --- bytes ------------------------------------------------------------------------------------------------------

function allBytes(version) {
  const aligned = ALIGNED[version].length;
  const patterns = aligned ? 25 * aligned ** 2 - 10 * aligned - 55 : 0;
  return ((16 * version + 128) * version + 64 - patterns - (version > 6 ? 36 : 0)) >> 3;
}

const dataBytes = (version) => allBytes(version) - BLOCKS[version][0] * BLOCKS[version][1];

/** The data: mode, length, the bytes, four zero bits, then 236 and 17 in turn as padding. */
function padded(bytes, length) {
  const bits = [0, 1, 0, 0, ...bitsOf(bytes.length, 8), ...[...bytes].flatMap((byte) => bitsOf(byte, 8)), 0, 0, 0, 0];
  const filled = Array.from({ length: bits.length / 8 }, (_, place) => parseInt(bits.slice(8 * place, 8 * place + 8).join(""), 2));
  while (filled.length < length) filled.push((length - filled.length) % 2 === (length - bits.length / 8) % 2 ? 236 : 17);
  return filled;
}

function interleaved(data, version) {
  const [correction, count] = BLOCKS[version];
  const short = Math.floor(data.length / count);
  const long = data.length % count; // so many blocks, the last ones, are a byte longer
  const blocks = [];
  for (let block = 0, at = 0; block < count; block += 1) blocks.push(data.slice(at, (at += short + (block >= count - long))));
  const corrections = blocks.map((block) => remainder(block, correction));
  return [...inTurn(blocks, short + 1), ...inTurn(corrections, correction)];
}

const inTurn = (blocks, length) =>
  Array.from({ length }, (_, place) => blocks.filter((block) => place < block.length).map((block) => block[place])).flat();

// --- Reed-Solomon over GF(256), by x^8 + x^4 + x^3 + x^2 + 1 --------------------------------------------------------

const EXP = [1];
for (let power = 1; power < 255; power += 1) EXP.push((EXP[power - 1] << 1) ^ (EXP[power - 1] > 127 ? 285 : 0));
const times = (one, other) => (one && other ? EXP[(EXP.indexOf(one) + EXP.indexOf(other)) % 255] : 0);

function remainder(block, length) {
  let divisor = [1];
  for (let power = 0; power < length; power += 1) {
    divisor = [...divisor, 0].map((each, place) => each ^ times(divisor[place - 1] ?? 0, EXP[power]));
  }
  const left = [...block, ...Array(length).fill(0)];
  for (let place = 0; place < block.length; place += 1) {
    const factor = left[place];
    divisor.forEach((each, on) => (left[place + on] ^= times(each, factor)));
  }
  return left.slice(block.length);
}

// --- the picture --------------------------------------------------------------------------------------------------

function draw(version, bits, mask) {
  const size = 17 + 4 * version;
  const rows = Array.from({ length: size }, () => Array(size).fill(null));
  const set = (x, y, dark) => x in rows && y in rows && (rows[y][x] = Number(dark));
  for (const [x, y] of [[3, 3], [size - 4, 3], [3, size - 4]]) square(set, x, y, 4, [0, 1, 3]);
  for (let each = 8; each < size - 8; each += 1) {
    set(each, 6, each % 2 === 0);
    set(6, each, each % 2 === 0);
  }
  const last = ALIGNED[version].at(-1);
  for (const x of ALIGNED[version]) for (const y of ALIGNED[version]) if (!((x === 6 && y === 6) || (x === 6 && y === last) || (x === last && y === 6))) square(set, x, y, 2, [0, 2]);
  drawFormat(set, size, mask);
  if (version > 6) drawVersion(set, size, version);
  fill(rows, size, bits, mask);
  return rows;
}

/** Draws rings around a place; `dark` names the dark ones. */
function square(set, x, y, reach, dark) {
  for (let dx = -reach; dx <= reach; dx += 1) for (let dy = -reach; dy <= reach; dy += 1) set(x + dx, y + dy, dark.includes(Math.max(Math.abs(dx), Math.abs(dy))));
}

/** A value followed by its error correction: the remainder of a division by the polynomial. */
function guarded(value, polynomial, length) {
  let left = value << length;
  for (let bit = 31 - Math.clz32(left); bit >= length && left; bit = 31 - Math.clz32(left)) left ^= polynomial << (bit - length);
  return (value << length) | left;
}

function drawFormat(set, size, mask) {
  const format = guarded(mask, 0x537, 10) ^ 0x5412; // error correction M is coded as 00, before the mask's number
  for (let bit = 0; bit < 15; bit += 1) {
    const dark = (format >> bit) & 1;
    set(8, bit < 6 ? bit : bit < 8 ? bit + 1 : size - 15 + bit, dark);
    set(bit < 8 ? size - 1 - bit : bit < 9 ? 7 : 14 - bit, 8, dark);
  }
  set(8, size - 8, 1);
}

function drawVersion(set, size, version) {
  const told = guarded(version, 0x1f25, 12);
  for (let bit = 0; bit < 18; bit += 1) {
    const [near, far] = [Math.floor(bit / 3), size - 11 + (bit % 3)];
    set(near, far, (told >> bit) & 1);
    set(far, near, (told >> bit) & 1);
  }
}

/** Places the data in pairs of columns from the right, upwards and downwards in turn, skipping the timing column. */
function fill(rows, size, bits, mask) {
  let next = 0;
  for (let right = size - 1, up = true; right > 0; right -= right === 8 ? 3 : 2, up = !up) {
    const left = right;
    for (let step = 0; step < size; step += 1) {
      const y = up ? size - 1 - step : step;
      for (const x of [left, left - 1]) {
        if (rows[y][x] !== null) continue;
        rows[y][x] = (bits[next] ?? 0) ^ (MASKS[mask](x, y) === 0);
        next += 1;
      }
    }
  }
}

/** The penalty of a mask, for what is hard to read: long runs, blocks, false corners, too much of one colour. */
function penalty(rows) {
  const lines = [...rows, ...rows.map((_, x) => rows.map((row) => row[x]))].map((line) => line.join(""));
  let sum = 0;
  for (const line of lines) {
    for (const [run] of line.matchAll(/0{5,}|1{5,}/g)) sum += run.length - 2;
    for (const corner of ["10111010000", "00001011101"]) for (let at = line.indexOf(corner); at >= 0; at = line.indexOf(corner, at + 1)) sum += 40;
  }
  for (let y = 1; y < rows.length; y += 1) for (let x = 1; x < rows.length; x += 1) if (new Set([rows[y][x], rows[y - 1][x], rows[y][x - 1], rows[y - 1][x - 1]]).size === 1) sum += 3;
  const dark = rows.flat().filter(Boolean).length / rows.length ** 2;
  return sum + 10 * Math.floor(Math.abs(dark - 0.5) * 20);
}

// --- on a page --------------------------------------------------------------------------------------------------

const AROUND = 4; // white modules around the code, which cameras need

/** The code as an SVG, dark on white even in dark mode, because cameras need that. Null if the text is too long. */
export function pictureOf(text, label) {
  const rows = modulesOf(text);
  if (!rows) return null;
  const size = rows.length + 2 * AROUND;
  const picture = svg("svg", { viewBox: `0 0 ${size} ${size}`, role: "img", "aria-label": label, "shape-rendering": "crispEdges", class: "qr" });
  picture.append(svg("path", { d: rows.flatMap((row, y) => row.map((each, x) => (each ? `M${x + AROUND} ${y + AROUND}h1v1h-1z` : ""))).join("") }));
  return picture;
}
