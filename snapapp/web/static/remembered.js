// What the browser remembers for us, and what the tab does. Where it refuses, or has no room, the page knows it for as long
// as it is open.

function memory(name) {
  const kept = opened(name);
  const here = new Map();

  /** Whether it outlasts the page. */
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
    forget(key) {
      here.delete(key);
      kept?.removeItem(key);
    },
  };
}

/** Null: somebody has forbidden it in the browser's settings. */
function opened(name) {
  try {
    return window[name];
  } catch {
    return null;
  }
}

export const browser = memory("localStorage");
export const tab = memory("sessionStorage");
