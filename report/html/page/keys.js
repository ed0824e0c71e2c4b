// The page's keys, their list, and the jumps to its parts.

import { h, untip, typing } from './dom.js';
import { step } from './requests.js';

const keys = [['n / p', 'next, previous slow request'], ['s', 'sandwich of the chosen box (flame graph)'], ['← →', 'segment before, after (in a waterfall); box beside (flame graph)'], ['+ − 0', 'zoom in, out, all'], ['[ ]', 'move left, right'], ['Enter', 'zoom to what is chosen'], ['Esc', 'release it'], ['g', 'groups'], ['w', 'waterfall'], ['f', 'findings'], ['t', 'theme'], ['?', 'this list']];

export const help = h('dialog', { id: 'help', 'aria-label': 'Keys' }, h('h2', null, 'Keys'), h('dl', null, keys.map(([k, text]) => [h('dt', null, k.split(' ').map(x => [x === '/' ? ' / ' : h('kbd', null, x), ' '])), h('dd', null, text)])), h('form', { method: 'dialog' }, h('button', null, 'Close'), ' ', h('button', { type: 'button', id: 'towords', onclick: openGlossary }, 'Glossary')));

function openGlossary() {
  const el = document.getElementById('glossary');
  help.close();
  el.open = true;
  el.scrollIntoView();
  el.querySelector('summary').focus({ preventScroll: true });
}

// goTo scrolls to a part of the page and focuses it.
export function goTo(id) {
  const el = document.getElementById(id);
  if (!el) return;
  el.scrollIntoView();
  (el.querySelector('.waterfall') || el.querySelector('.finding') || el.querySelector('a') || el.querySelector('button') || el).focus({ preventScroll: true });
}

export function onKey(ev) {
  if (typing(ev)) return;
  const act = {
    n: () => { step(1); goTo('requests'); }, p: () => { step(-1); goTo('requests'); },
    g: () => goTo('groups'), w: () => goTo('requests'), f: () => goTo('findings'), t: () => document.getElementById('theme').click(), '?': () => help.showModal(),
    Escape: untip,
  }[ev.key];
  if (!act) return;
  ev.preventDefault();
  act();
}
