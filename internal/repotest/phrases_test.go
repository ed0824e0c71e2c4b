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

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// A refusedPhrase is an expression that is hard to understand, with its replacement.
type refusedPhrase struct {
	pattern     string // a regular expression for whole words, in any case
	replacement string
	usersOnly   bool // refused in texts for users, not in comments and pages for developers
}

var refusedPhrases = []refusedPhrase{
	{`tells? of`, "reports, says", false},
	{`told (of|aloud)`, "reported, reported as high", false},
	{`(tells?|told|telling) apart`, "distinguish", false},
	{`of whom`, "who, that", false},
	{`at hand`, "available", false},
	{`lets? go of`, "free, release", false},
	{`anew`, "again", false},
	{`for ever`, "indefinitely, never returns", false},
	{`nobody(|'|’)s( else's)?`, "name what has none: no latency, not a request", false},
	{`again and again`, "repeatedly", false},
	{`once more`, "again", false},
	{`to be had`, "available", false},
	{`held against`, "compared with", false},
	{`mend(s|ed|ing)?`, "fix", false},
	{`a trifle`, "a little, with the number", false},
	{`at the least`, "at least", false},
	{`be it`, "a plain \"or\"", false},
	{`by a half`, "50 %", false},
	{`(had|have) not ended when`, "still running at the end of the trace", false},
	{`neighbours?`, "other processes on this machine", true},
	{`stretch(es)?`, "interval", true},
	{`whoever`, "the goroutine, the client: name it", true},
	{`somebody`, "name who", true},
	{`(stands?|standing) in line`, "queue", true},
	{`looks? again`, "polls, checks again", true},
	{`a good part`, "much, with the number", true},
	{`now and then`, "at times", true},
	{`what there is`, "all, the rest", true},
}

// A phraseMatcher finds a refused phrase.
type phraseMatcher struct {
	refusedPhrase
	exact  *regexp.Regexp
	coarse *regexp.Regexp // matches lower-case text and parts of words too; begins with letters, so the search is fast
}

func newPhraseMatchers() []phraseMatcher {
	var matchers []phraseMatcher
	for _, p := range refusedPhrases {
		matchers = append(matchers, phraseMatcher{p, regexp.MustCompile(`(?i)\b(?:` + p.pattern + `)\b`), regexp.MustCompile(strings.ToLower(p.pattern))})
	}
	return matchers
}

// quoted matches the string literals with spaces in a line of JavaScript.
var quoted = regexp.MustCompile("'[^']* [^']*'|`[^`]* [^`]*`")

// TestStyle refuses phrases in texts for users (literals, pages, help), and the worst of them in comments and pages for
// developers. tools/plain measures comments and names.
func TestStyle(t *testing.T) {
	matchers := newPhraseMatchers()
	checkPhrases := func(position, text string, forUsers bool) {
		lower := strings.ToLower(text)
		for i := range matchers {
			m := &matchers[i]
			if !forUsers && m.usersOnly || !m.coarse.MatchString(lower) {
				continue
			}
			if match := m.exact.FindStringIndex(text); match != nil {
				t.Errorf("%s: %q: write: %s", position, text[max(0, match[0]-30):min(len(text), match[1]+30)], m.replacement)
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
			if name := d.Name(); name == "testdata" || path != "." && strings.HasPrefix(name, ".") && name != ".github" || name == "node_modules" || path == "lab" || path == "stories" || path == "site" || path == "tools/plain" {
				return filepath.SkipDir
			}
			return nil
		}
		switch filepath.Ext(path) {
		case ".md":
			if path == "README.zh-CN.md" {
				return nil
			}
		case ".txt":
			if !strings.HasPrefix(path, "internal/cli/help/") {
				return nil
			}
		case ".js", ".html", ".go":
			if strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".min.js") || path == "docs/example/demo.html" { // made of the page's sources
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
				match := path + ":" + strconv.Itoa(n+1)
				if filepath.Ext(path) == ".js" {
					checkPhrases(match, line, false)
					line = strings.Join(quoted.FindAllString(line, -1), " ")
				}
				checkPhrases(match, line, users)
			}
			return nil
		}
		fileSet := token.NewFileSet()
		file, err := parser.ParseFile(fileSet, path, data, parser.ParseComments)
		if err != nil {
			return err
		}
		match := func(p token.Pos) string { return path + ":" + strconv.Itoa(fileSet.Position(p).Line) }
		for _, group := range file.Comments {
			checkPhrases(match(group.Pos()), strings.ReplaceAll(group.Text(), "\n", " "), false)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if _, ok := n.(*ast.ImportSpec); ok {
				return false
			}
			if s, ok := n.(*ast.BasicLit); ok && s.Kind == token.STRING && strings.Contains(s.Value, " ") {
				if text, err := strconv.Unquote(s.Value); err == nil {
					checkPhrases(match(s.Pos()), text, true)
					sentences++
				}
			}
			return true
		})
		return nil
	})
	must.Do(t, err)
	check.True(t, files >= 300 && sentences >= 2000, "only %d files and %d texts were read", files, sentences)
}
