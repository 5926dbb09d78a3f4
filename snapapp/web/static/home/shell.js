// Registers the service worker, which keeps the page for offline use. The policy for Trusted Types allows only this
// script.

const WORKER = "/service-worker.js";

export function keepShell() {
  if (!navigator.serviceWorker) return; // the browser has none, or the page came without https
  const policy = window.trustedTypes?.createPolicy("service-worker", { createScriptURL: () => WORKER });
  const register = () => navigator.serviceWorker.register(policy ? policy.createScriptURL("") : WORKER).catch(() => {});
  if (document.readyState === "complete") register();
  else addEventListener("load", register, { once: true });
}
