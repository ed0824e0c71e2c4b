// The URLs that open a site in an editor or at its public source. They are computed from the site alone, without the network.

// editors are the URL forms of editors by name; for others the user gives such a form.
const editors = { vscode: 'vscode://file/{file}:{line}', idea: 'idea://open?file={file}&line={line}' };

// editorURL returns '' without an editor, and for files without an absolute path.
export function editorURL(site, editor) {
  const form = editors[editor] || editor, file = site && site.file || '';
  if (!form || !/^([/\\]|[a-z]:[/\\])/i.test(file)) return '';
  // All characters with a meaning in a URL are escaped, except a path's slashes.
  const path = encodeURI(file.replaceAll('\\', '/')).replace(/[?#&]/g, encodeURIComponent);
  return form.replaceAll('{file}', path.replace(form.includes('file/{file}') ? /^\/+/ : /^$/, '')).replaceAll('{line}', String(site.line || 1));
}

// sourceURL returns the URL of the public source of the standard library or of a module, at its version; '' for other code, and if the
// version is unknown.
export function sourceURL(site, go) {
  if (!site || !site.file) return '';
  const line = site.line > 0 ? '#L' + site.line : '', file = site.file.replaceAll('\\', '/');
  if (!site.module) {
    // Standard packages have no dot in the first element of their path.
    const pkg = /^[a-z0-9]+(\/[A-Za-z0-9_]+)*(?=\.)/.exec(site.func || ''), at = pkg && pkg[0] !== 'main' ? file.lastIndexOf(`${pkg[0]}/`) : -1;
    const version = /^1\.\d+(\.\d+|rc\d+)?$/.exec(go || '');
    // With -trimpath a file is "net/http/server.go", else it is below src of an installation.
    if (at < 0 || !version || !(at === 0 || /\/go[^/]*\/src\/$|\/go\/[^/]+\/src\/$|toolchain@[^/]*\/src\/$/.test(file.slice(0, at)))) return '';
    return `https://github.com/golang/go/blob/${version[1] ? 'go' + go : 'release-branch.go' + go}/src/${encodeURI(file.slice(at))}${line}`;
  }
  if (!/^v[0-9][0-9A-Za-z.+-]*$/.test(site.version || '') || !/^[A-Za-z0-9._~/-]+$/.test(site.module)) return '';
  // The module cache writes a capital as ! and the small letter.
  const folder = `${site.module.replace(/[A-Z]/g, c => '!' + c.toLowerCase())}@${site.version}/`, at = file.lastIndexOf(folder);
  const base = /^github\.com\/[^/]+\/[^/]+/.exec(site.module) || (site.module.startsWith('golang.org/x/') ? ['github.com/golang/' + site.module.split('/')[2]] : null);
  if (at < 0 || !base) return `https://pkg.go.dev/${site.module}@${encodeURIComponent(site.version)}`;
  // A module below the root of its repository has tags with its folder. Whether /v2 and later is a folder is unknown.
  const below = site.module.split('/').slice(3).filter(part => !/^v\d+$/.test(part)).join('/'), hash = /-([0-9a-f]{12})$/.exec(site.version.replace('+incompatible', ''));
  const tag = hash ? hash[1] : (below ? below + '/' : '') + site.version.replace('+incompatible', '');
  return `https://${base[0]}/blob/${encodeURI(tag)}/${below ? below + '/' : ''}${encodeURI(file.slice(at + folder.length))}${line}`;
}
