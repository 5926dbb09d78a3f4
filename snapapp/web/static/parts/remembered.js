// Values that the browser or the tab stores for us. If storing fails, the page keeps a value as long as it is open.

function memory(name) {
  const kept = opened(name);
  const here = new Map();

  /** Stores a value; returns whether it was stored beyond this page. */
  function keep(key, text) {
    try {
      kept.setItem(key, text);
    } catch {
      return false;
    }
    here.delete(key);
    return true;
  }

  return {
    get: (key) => here.get(key) ?? kept?.getItem(key) ?? null,
    keep,
    set: (key, text) => keep(key, text) || here.set(key, text),
    /** Forgets every key that begins so. */
    forgetAll(beginning) {
      for (const key of [...here.keys(), ...Object.keys(kept ?? {})]) if (key.startsWith(beginning)) this.forget(key);
    },
    forget(key) {
      here.delete(key);
      kept?.removeItem(key);
    },
  };
}

/** The browser's storage; null if its settings forbid storage. */
function opened(name) {
  try {
    return window[name];
  } catch {
    return null;
  }
}

export const browser = memory("localStorage");
export const tab = memory("sessionStorage");
