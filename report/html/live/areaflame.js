// The stacks of a selected area as a flame graph: states at the top, below them the functions, callers first.

import { h, s, replace, picture, tip, untip, cut } from './dom.js';
import { duration, percent, clean, shortFunc, siteText, count } from './format.js';
import { named } from './flame.js';
import { siteButton } from './site.js';
import { kindOf, stateWords } from './area.js';

const areaRowHeight = 22;

// linkStacks gives each node its parent, its depth, and the class of its state's colour.
function linkStacks(node, parent, depth, cls) {
  Object.assign(node, { parent, depth, cls: node.state ? 'c-' + kindOf(node.state, node.reason) : cls, children: node.children || [] });
  for (const c of node.children) linkStacks(c, node, depth + 1, node.cls);
  return node;
}

function stackName(node) { return node.site ? shortFunc(clean(node.site.func)) : node.state ? stateWords(node.state, node.reason) : 'all'; }

function deepestStack(node) { return Math.max(node.depth, ...node.children.map(deepestStack)); }

// areaFlame shows an answer of /api/areastacks.
export function areaFlame(stacks) {
  const root = linkStacks({ ns: stacks.ns, children: stacks.states }, null, 0, 'root');
  const box = h('div', { class: 'chart flame', tabindex: 0, role: 'group', 'aria-label': 'Flame graph of the selected area. Arrow keys choose a box, Enter makes it fill the width, Escape shows all.' }), line = h('p', { class: 'tabs chosenbox', 'aria-live': 'polite' });
  let top = root, chosen = root, width = 0;

  function put(svg, node, x, w) {
    if (w < 0.5) return;
    const y = node.depth * areaRowHeight, text = named(stackName(node), '', duration(node.ns), w - 12);
    const el = s('g', { class: 'box' + (node === chosen ? ' selected' : ''), 'data-ns': node.ns, role: 'img', 'aria-label': `${stackName(node)}: ${duration(node.ns)}` },
      s('rect', { class: node.cls, x: x + 0.5, y: y + 1, width: Math.max(0.3, w - 1), height: areaRowHeight - 2, rx: 2 }), w > 36 ? s('text', { class: 'boxname on-' + node.cls, x: x + 6, y: y + areaRowHeight / 2 + 4 }, text) : null);
    el.addEventListener('pointermove', ev => tip(ev, h('strong', null, stackName(node)), node.site ? [h('br'), siteText(node.site)] : null, h('br'), `${duration(node.ns)}, ${percent(node.ns / (root.ns || 1))}`));
    el.addEventListener('pointerleave', untip);
    el.addEventListener('click', () => fill(node === top && node.parent ? node.parent : node));
    svg.append(el);
    for (const c of node.children) {
      put(svg, c, x, w * c.ns / (node.ns || 1));
      x += w * c.ns / (node.ns || 1);
    }
  }

  function draw() {
    if (!width) return;
    const height = (deepestStack(top) + 1) * areaRowHeight + 2, svg = s('svg', { width, height, viewBox: `0 0 ${width} ${height}` });
    for (let n = top.parent; n; n = n.parent) {
      const el = s('g', { class: 'box faded' }, s('rect', { class: n.cls, x: 0.5, y: n.depth * areaRowHeight + 1, width: width - 1, height: areaRowHeight - 2, rx: 2 }), s('text', { class: 'boxname on-' + n.cls, x: 6, y: n.depth * areaRowHeight + areaRowHeight / 2 + 4 }, cut(stackName(n), width - 12, 12))), ancestor = n;
      el.addEventListener('click', () => fill(ancestor));
      svg.append(el);
    }
    put(svg, top, 0, width);
    replace(box, svg);
    replace(line, chosen === root ? null : [h('strong', null, chosen.site ? siteButton(chosen.site, stackName(chosen)) : stackName(chosen)), h('span', null, ` ${duration(chosen.ns)}, ${percent(chosen.ns / (root.ns || 1))}`)]);
  }

  function fill(node) {
    top = chosen = node;
    draw();
  }

  box.addEventListener('keydown', ev => {
    if (ev.ctrlKey || ev.metaKey || ev.altKey) return;
    const siblings = chosen.parent ? chosen.parent.children : [chosen], at = siblings.indexOf(chosen);
    const to = { ArrowDown: chosen.children[0], ArrowUp: chosen.parent, ArrowRight: siblings[at + 1], ArrowLeft: siblings[at - 1] };
    if (ev.key in to) {
      if (to[ev.key]) chosen = to[ev.key];
      draw();
    } else if (ev.key === 'Enter') fill(chosen);
    else if (ev.key === 'Escape' && top !== root) fill(root);
    else return;
    ev.preventDefault();
    ev.stopPropagation();
  });
  picture(box, w => { width = w; draw(); });
  return h('figure', { class: 'areaflame' }, h('figcaption', { class: 'dim' }, stacks.samples ? `Running time is divided by ${count(stacks.samples, 'CPU sample')}; all other time is exact.` : 'There are no CPU samples here: a run counts for the stack of the event that ended it.'), line, box);
}
