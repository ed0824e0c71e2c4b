package repotest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/must"
)

// A refused phrase is a row of the first table in docs/internals/style.md.
type refused struct {
	phrase *regexp.Regexp
	quick  *regexp.Regexp // the phrase in lower case, also within words: begins with letters, so it is searched for fast
	write  string
	all    bool // else only in what users read
}

// refusals reads the table, so that the page and the check cannot differ.
func refusals(t *testing.T) (all []refused) {
	t.Helper()
	page := must.Have(os.ReadFile("docs/internals/style.md"))(t)
	row := regexp.MustCompile("(?m)^\\| `(.+)` \\| (.+) \\| (all|users) \\|$")
	for _, m := range row.FindAllStringSubmatch(string(page), -1) {
		phrase := strings.ReplaceAll(m[1], `\|`, "|") // as Markdown needs it in a table
		all = append(all, refused{regexp.MustCompile(`(?i)\b(?:` + phrase + `)\b`), regexp.MustCompile(strings.ToLower(phrase)), m[2], m[3] == "all"})
	}
	if len(all) < 20 {
		t.Fatalf("docs/internals/style.md refuses %d phrases", len(all))
	}
	return all
}

// quoted are texts in a line of JavaScript.
var quoted = regexp.MustCompile("'[^']* [^']*'|`[^`]* [^`]*`")

// TestStyle holds texts to the table of docs/internals/style.md: what users read (literals, pages, help), and comments and pages for
// those who change whylate.
func TestStyle(t *testing.T) {
	list := refusals(t)
	check := func(where, text string, users bool) {
		lower := strings.ToLower(text)
		for i := range list {
			r := &list[i]
			if !users && !r.all || !r.quick.MatchString(lower) {
				continue
			}
			if at := r.phrase.FindStringIndex(text); at != nil {
				t.Errorf("%s: %q: write %s (docs/internals/style.md)", where, text[max(0, at[0]-30):min(len(text), at[1]+30)], r.write)
			}
		}
	}
	files, sentences := 0, 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		path = filepath.ToSlash(path)
		if d.IsDir() {
			if name := d.Name(); name == "testdata" || path != "." && strings.HasPrefix(name, ".") && name != ".github" || name == "node_modules" || path == "lab" || path == "stories" || path == "site" {
				return filepath.SkipDir
			}
			return nil
		}
		switch filepath.Ext(path) {
		case ".md":
			if path == "docs/internals/style.md" || path == "docs/internals/accuracy.md" || path == "README.zh-CN.md" {
				return nil // accuracy.md repeats what recordings were called when they were made
			}
		case ".txt":
			if !strings.HasPrefix(path, "internal/cli/help/") {
				return nil
			}
		case ".js", ".html", ".go":
			if strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".min.js") {
				return nil
			}
		default:
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files++
		if filepath.Ext(path) != ".go" {
			users := !strings.HasPrefix(path, "docs/internals/") && path != "ARCHITECTURE.md" && path != "CONTRIBUTING.md"
			for n, line := range strings.Split(string(data), "\n") {
				at := path + ":" + strconv.Itoa(n+1)
				if filepath.Ext(path) == ".js" {
					check(at, line, false)
					line = strings.Join(quoted.FindAllString(line, -1), " ")
				}
				check(at, line, users)
			}
			return nil
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, data, parser.ParseComments)
		if err != nil {
			return err
		}
		at := func(p token.Pos) string { return path + ":" + strconv.Itoa(set.Position(p).Line) }
		for _, group := range file.Comments {
			check(at(group.Pos()), strings.ReplaceAll(group.Text(), "\n", " "), false)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if _, ok := n.(*ast.ImportSpec); ok {
				return false
			}
			if s, ok := n.(*ast.BasicLit); ok && s.Kind == token.STRING && strings.Contains(s.Value, " ") {
				if text, err := strconv.Unquote(s.Value); err == nil {
					check(at(s.Pos()), text, true)
					sentences++
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 300 || sentences < 2000 {
		t.Errorf("only %d files and %d texts were read", files, sentences)
	}
}
