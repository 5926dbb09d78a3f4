// The page stays in the browser for when there is no line. The policy lets this one script be registered, and no other.

const WORKER = "/service-worker.js";

export function keepShell() {
  if (!navigator.serviceWorker) return; // a browser without, or an address without https
  const policy = window.trustedTypes?.createPolicy("service-worker", { createScriptURL: () => WORKER });
  const register = () => navigator.serviceWorker.register(policy ? policy.createScriptURL("") : WORKER).catch(() => {});
  if (document.readyState === "complete") register();
  else addEventListener("load", register, { once: true });
}
