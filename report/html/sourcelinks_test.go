package html_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// TestSourceLinks checks the URLs of a site's public source and of an editor.
func TestSourceLinks(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("the page's module is run by node, which is not installed")
	}
	type place struct {
		Site     report.Site `json:"site"`
		Go       string      `json:"go"`
		Editor   string      `json:"editor"`
		src, led string
	}
	standardSite := func(file string) report.Site {
		return report.Site{Func: "net/http.(*conn).serve", File: file, Line: 2103}
	}
	moduleSite := func(module, version, file string) report.Site {
		return report.Site{Func: module + ".F", File: file, Line: 7, Module: module, Version: version}
	}
	cases := []place{
		{standardSite("/usr/local/go/src/net/http/server.go"), "1.26.8", "", "https://github.com/golang/go/blob/go1.26.8/src/net/http/server.go#L2103", ""},
		{standardSite("net/http/server.go"), "1.26", "vscode", "https://github.com/golang/go/blob/release-branch.go1.26/src/net/http/server.go#L2103", ""},
		{standardSite("/root/go/pkg/mod/golang.org/toolchain@v0.0.1-go1.26.1.linux-amd64/src/net/http/server.go"), "1.26.1", "", "https://github.com/golang/go/blob/go1.26.1/src/net/http/server.go#L2103", ""},
		{standardSite("/usr/local/go/src/net/http/server.go"), "1.23 or 1.24", "", "", ""},
		{standardSite("/home/a/shop/net/http/server.go"), "1.26.8", "", "", ""}, // the service's own, of the same name
		{report.Site{Func: "main.f", File: "/home/a/main/main.go", Line: 3}, "1.26.8", "vscode", "", "vscode://file/home/a/main/main.go:3"},
		{report.Site{Func: "main.f", File: "/home/a b/x#y?.go", Line: 3}, "", "idea", "", "idea://open?file=/home/a%20b/x%23y%3F.go&line=3"},
		{report.Site{Func: "main.f", File: `C:\src\main.go`, Line: 3}, "", "vscode", "", "vscode://file/C:/src/main.go:3"},
		{report.Site{Func: "main.f", File: "/src/main.go", Line: 3}, "", "zed://file{file}:{line}", "", "zed://file/src/main.go:3"},
		{moduleSite("github.com/lib/pq", "v1.10.9", "/root/go/pkg/mod/github.com/lib/pq@v1.10.9/conn.go"), "", "", "https://github.com/lib/pq/blob/v1.10.9/conn.go#L7", ""},
		{moduleSite("github.com/BurntSushi/toml", "v1.3.2", "/m/github.com/!burnt!sushi/toml@v1.3.2/lex.go"), "", "", "https://github.com/BurntSushi/toml/blob/v1.3.2/lex.go#L7", ""},
		{moduleSite("github.com/redis/go-redis/v9", "v9.5.1", "github.com/redis/go-redis/v9@v9.5.1/internal/pool/pool.go"), "", "", "https://github.com/redis/go-redis/blob/v9.5.1/internal/pool/pool.go#L7", ""},
		{moduleSite("go.etcd.io/etcd/server/v3", "v3.5.9", "go.etcd.io/etcd/server/v3@v3.5.9/x.go"), "", "", "https://pkg.go.dev/go.etcd.io/etcd/server/v3@v3.5.9", ""},
		{moduleSite("github.com/a/b/sub", "v0.2.0", "github.com/a/b/sub@v0.2.0/x.go"), "", "", "https://github.com/a/b/blob/sub/v0.2.0/sub/x.go#L7", ""},
		{moduleSite("golang.org/x/net", "v0.0.0-20240101120000-0123456789ab", "golang.org/x/net@v0.0.0-20240101120000-0123456789ab/http2/server.go"), "", "", "https://github.com/golang/net/blob/0123456789ab/http2/server.go#L7", ""},
		{moduleSite("github.com/a/b", "v2.0.0+incompatible", "github.com/a/b@v2.0.0+incompatible/x.go"), "", "", "https://github.com/a/b/blob/v2.0.0/x.go#L7", ""},
		{moduleSite("github.com/a/b", "(devel)", "/src/b/x.go"), "", "", "", ""},
		{moduleSite("github.com/a/b\"><script>", "v1.0.0", "x.go"), "", "", "", ""},
	}
	dir := t.TempDir()
	for name, data := range map[string][]byte{
		"sourcelinks.js": mustRead(t, "page/sourcelinks.js"), "package.json": []byte(`{"type":"module"}`),
		"main.js": []byte(`import { sourceURL, editorURL } from './sourcelinks.js';
import { readFileSync } from 'node:fs';
process.stdout.write(JSON.stringify(JSON.parse(readFileSync(0, 'utf8')).map(c => [sourceURL(c.site, c.go), editorURL(c.site, c.editor)])));`),
	} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), data, 0o644))
	}
	cmd := exec.Command(node, filepath.Join(dir, "main.js"))
	cmd.Stdin = bytes.NewReader(must.Have(json.Marshal(cases))(t))
	var got [][2]string
	must.Do(t, json.Unmarshal(must.Have(cmd.Output())(t), &got))
	for i, c := range cases {
		check.True(t, got[i] == [2]string{c.src, c.led}, "%+v of Go %q leads to %q, want %q and %q", c.Site, c.Go, got[i], c.src, c.led)
	}
}
