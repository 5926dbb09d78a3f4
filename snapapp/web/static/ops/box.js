// The view of the machine: memory, disks and processes, which need no database; and of the PostgreSQL server: tables,
// connections, and sessions that hold vacuum back.

import { make } from "/static/parts/page.js";
import { ask, bytes, loadPanels, number, panel, span, table, tile } from "/static/ops/parts.js";

const EVERY = 5000; // ms between two looks
const NEARLY = 0.85; // share of the connections from which on the number is highlighted

const SIZES = `SELECT pg_size_pretty(pg_database_size(current_database()));
SELECT count(*), current_setting('max_connections') FROM pg_stat_activity WHERE datid IS NOT NULL;`;
const SWEPT = `SELECT relname, n_live_tup, n_dead_tup, pg_size_pretty(pg_total_relation_size(relid)), last_autovacuum
  FROM pg_stat_user_tables ORDER BY pg_total_relation_size(relid) DESC;`;
const CONNECTED = `SELECT application_name, state, count(*), min(xact_start)
  FROM pg_stat_activity WHERE datid IS NOT NULL GROUP BY 1, 2 ORDER BY 3 DESC;
SELECT pid, application_name, state, xact_start, wait_event, left(query, 100)
  FROM pg_stat_activity WHERE datid IS NOT NULL ORDER BY xact_start;`;
const HOLDERS = `SELECT pid, application_name, state, age(backend_xmin), xact_start, left(query, 100)
  FROM pg_stat_activity WHERE backend_xmin IS NOT NULL OR backend_xid IS NOT NULL ORDER BY 4 DESC NULLS LAST;
SELECT gid, prepared FROM pg_prepared_xacts;
SELECT slot_name, active, age(xmin) FROM pg_replication_slots;`;

export function boxView() {
  const machine = make("div", { className: "tiles" });
  const disks = table([["Disk", "wide"], ["Of what"], ["Free", "num"], ["Of", "num"], ["Floor", "num"]], "No disk can be seen.");
  const processes = table([["Process"], ["Pid", "num"], ["Memory", "num"]], "None can be seen.");
  const server = make("div", { className: "tiles" });
  const tables = table(
    [["Table"], ["Rows", "num"], ["Dead", "num"], ["Swept at", "num"], ["Size", "num"], ["Vacuumed", "num"], ["Analyzed", "num"]],
    "There is no table of ours.",
  );
  const sessions = table([["Who", "wide"], ["State"], ["Connections", "num"], ["Oldest transaction", "num"]], "Nobody is connected.");
  const horizon = table([["Who", "wide"], ["Transactions since", "num"], ["For", "num"], ["Doing", "wide"]], "Nobody holds it back.");
  const host = panel("The machine", { note: "told without the database; in a shell: free -m, uptime, df -m" }, machine, disks.element);
  const own = panel("This process and its children", { note: "in a shell: ps -eo ppid,pid,rss,args" }, processes.element);
  const postgres = panel("PostgreSQL", { sql: SIZES }, server);
  const sweeping = panel("Tables", { sql: SWEPT, note: "as the server's statistics have them" }, tables.element);
  const connected = panel("Connections", { sql: CONNECTED }, sessions.element);
  const held = panel("Who holds back vacuum", { sql: HOLDERS, note: "the xmin horizon; what is there for a moment is no harm" }, horizon.element);

  async function showMachine() {
    const its = await ask("/internal/box");
    machine.replaceChildren(
      tile("Memory free", its.memory ? megabytes(its.memory.freeMb) : "?", null, its.memory ? `of ${megabytes(its.memory.totalMb)}` : "it cannot be told here"),
      tile("Swapped out", its.memory ? megabytes(its.memory.swappedMb) : "?", null),
      tile("Load", its.load ? its.load[0].toFixed(2) : "?", null, `${number(its.cores)} ${its.cores === 1 ? "core" : "cores"}`, its.load && its.load[0] > 2 * its.cores ? "bad" : ""),
      tile("Host", its.host, null),
    );
    disks.fill(its.disks.map((disk) => [
      make("code", { textContent: disk.folder }), disk.what, disk.freeMb === null ? wrongIf(true, "no answer") : wrongIf(disk.floorMb !== null && disk.freeMb < disk.floorMb, megabytes(disk.freeMb)),
      disk.totalMb === null ? "" : megabytes(disk.totalMb), disk.floorMb === null ? "" : megabytes(disk.floorMb),
    ]));
    processes.fill(its.processes.map((one) => [`${one.isChild ? "child " : ""}${one.name}`, String(one.pid), megabytes(one.memoryMb)]));
  }

  async function showServer() {
    const its = await ask("/internal/box/server");
    server.replaceChildren(
      tile("Database", bytes(its.databaseBytes), null, its.diskFreeBytes === null ? "its disk cannot be seen from here" : `${bytes(its.diskFreeBytes)} free beside it`),
      tile("Connections", number(its.connections), null, `of ${number(its.maxConnections)}`, its.connections > NEARLY * its.maxConnections ? "bad" : ""),
      tile("Dead rows", number(its.tables.reduce((total, one) => total + one.dead, 0)), null, "not swept yet"),
      tile("Up", span(its.upFor * 1000), null, `PostgreSQL ${its.version}`),
    );
    tables.fill(its.tables.map((one) => [
      make("code", { textContent: one.name }), number(one.live), wrongIf(one.dead > 3 * one.sweptAt && one.dead > 1000, number(one.dead)),
      number(Math.round(one.sweptAt)), bytes(one.bytes), since(one.vacuumed), since(one.analyzed),
    ]));
    sessions.fill(its.sessions.map((one) => [one.application, one.state, number(one.sessions), one.oldestTransaction === null ? "" : span(one.oldestTransaction * 1000)]));
    horizon.fill(its.horizon.map((one) => [one.who, number(one.transactions), one.seconds === null ? "" : span(one.seconds * 1000), one.doing]));
  }

  return {
    title: "Box",
    every: EVERY,
    element: make("div", {}, make("h1", { textContent: "Box" }), host, own, postgres, sweeping, make("div", { className: "two even" }, connected, held)),
    refresh: () => loadPanels([[host, showMachine], [postgres, showServer]]),
  };
}

const since = (seconds) => (seconds === null ? "never" : `${span(seconds * 1000)} ago`);
const wrongIf = (isWrong, text) => (isWrong ? make("b", { className: "bad", textContent: text }) : text);
const megabytes = (count) => bytes(count * 2 ** 20);
