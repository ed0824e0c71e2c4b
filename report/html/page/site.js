// A site as a button, and the actions on it.

import { h, replace, copyText } from './dom.js';
import { place, siteText, clean, lead } from './format.js';
import { pageData, goVersion } from './model.js';
import { editorURL, sourceURL } from './sourcelinks.js';

const menu = h('div', { id: 'placemenu', popover: 'auto', role: 'dialog', 'aria-label': 'A place of the code' });

function openMenu(button, site) {
  if (!menu.parentNode) document.body.append(menu);
  const at = site.file ? `${site.file}:${site.line}` : site.func, editor = editorURL(site, pageData.editor), source = sourceURL(site, goVersion());
  const link = (url, text) => h('a', { class: 'button', href: url, rel: 'noopener noreferrer', target: '_blank' }, text);
  replace(menu, h('p', null, h('strong', null, clean(site.func || ''))), h('p', { class: 'dim' }, h('code', { class: 'wrap' }, clean(at))),
    h('p', { class: 'tabs' }, h('button', { type: 'button', autofocus: true, 'data-place': 'copy', onclick: ev => copyText(ev.currentTarget, at, 'File and line') }, 'Copy path:line'),
      editor ? link(editor, 'Open in editor') : null, source ? link(source, site.module ? `Source at ${clean(site.version)}` : 'Source of the standard library') : null));
  menu.showPopover();
  const b = button.getBoundingClientRect();
  menu.style.left = Math.max(8, Math.min(b.left, document.documentElement.clientWidth - menu.offsetWidth - 8)) + 'px';
  menu.style.top = (b.bottom + menu.offsetHeight + 8 > innerHeight ? Math.max(8, b.top - menu.offsetHeight - 6) : b.bottom + 6) + 'px';
}

// siteButton returns a button for a site; text, if given, replaces function, file and line.
export function siteButton(site, text) {
  return h('button', { type: 'button', class: 'plain site', 'aria-haspopup': 'dialog', title: siteText(site), onclick: ev => { ev.stopPropagation(); openMenu(ev.currentTarget, site); } }, text || place(site));
}

export function siteNode(site) {
  if (!site) return null;
  const at = siteButton(site);
  return site.called_from ? [at, h('span', { class: 'dim' }, ' ' + lead(site.called_from)), siteButton(site.called_from)] : at;
}
