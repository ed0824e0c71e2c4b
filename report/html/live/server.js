// Requests to the server of this page. It answers with plain data, which never becomes markup.

import { pageData } from './model.js';

// fetchAnswer returns one answer. It omits empty parameters; an error has the server's text.
export async function fetchAnswer(what, parameters, signal) {
  const p = new URLSearchParams(pageData.recording ? { recording: pageData.recording } : {});
  for (const [k, v] of Object.entries(parameters || {})) if (v !== '' && v !== null && v !== undefined && v !== false) p.set(k, v === true ? '1' : v);
  let answer;
  try {
    answer = await fetch(`api/${what}?${p}`, { signal });
  } catch (err) {
    if (err.name === 'AbortError') throw err;
    throw new Error('the server does not answer: was it ended?');
  }
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.error || `the server answers ${answer.status}`);
  return body;
}

// requestRecording asks the server for a new recording, or for that of another service, and shows its progress.
export async function requestRecording(service) {
  const answer = await fetch('api/again?' + new URLSearchParams(service ? { service } : {}), { method: 'POST' });
  if (!answer.ok) throw new Error((await answer.json()).error);
  if (service) history.replaceState(null, '', location.pathname); // the address names requests of the one before
  location.reload();
}

// parseTime parses a duration in Go's syntax (1.5s, 20ms, 1m3s, 7us) or a plain number of ms; null if it is neither.
export function parseTime(text) {
  const t = text.trim();
  if (t === '') return 0;
  if (/^\d+(\.\d*)?$/.test(t)) return Math.round(Number(t) * 1e6);
  const units = { ns: 1, us: 1e3, 'µs': 1e3, 'μs': 1e3, ms: 1e6, s: 1e9, m: 60e9, h: 3600e9 };
  let ns = 0, rest = t;
  while (rest) {
    const m = /^(\d+(?:\.\d*)?|\.\d+)\s*(ns|us|µs|μs|ms|s|m|h)\s*/.exec(rest);
    if (!m) return null;
    ns += Number(m[1]) * units[m[2]];
    rest = rest.slice(m[0].length);
  }
  return Math.round(ns);
}

// latest returns a function of which only the last call counts: a call aborts the one before.
export function latest(f) {
  let running = null;
  return async (...args) => {
    if (running) running.abort();
    const mine = running = new AbortController();
    try {
      return await f(mine.signal, ...args);
    } catch (err) {
      if (mine.signal.aborted) return null;
      throw err;
    } finally {
      if (running === mine) running = null;
    }
  };
}

// debounce returns a function that calls f once, ms after the last of many calls.
export function debounce(f, ms) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(f, ms);
  };
}
