package repotest_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/explain/finding"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
)

var link = regexp.MustCompile(`\]\(([^)#\s]+)(?:#[^)]*)?\)`)

// TestLinks: every relative link of a page leads to a file of the repository.
func TestLinks(t *testing.T) {
	absent := must.Have(testprog.AbsentModules("."))(t)
	must.Do(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata" || d.Name() == "node_modules"):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".md":
			return nil
		}
		for _, m := range link.FindAllStringSubmatch(string(must.Have(os.ReadFile(path))(t)), -1) {
			if strings.Contains(m[1], ":") {
				continue // a URL
			}
			target := filepath.Join(filepath.Dir(path), m[1])
			if testprog.IsBelow(target, absent) {
				continue
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s refers to %s, which is not there", path, m[1])
			}
		}
		return nil
	}))
}

// TestUserPages: each page for users names its readers in the first line. The pages to read from top to bottom, without
// generated and Chinese pages and file formats, have at most 130 kB in total. Measurements belong in docs/internals.
func TestUserPages(t *testing.T) {
	size := 0
	for _, path := range must.Have(filepath.Glob("docs/*.md"))(t) {
		text := string(must.Have(os.ReadFile(path))(t))
		if lines := strings.SplitN(text, "\n", 4); len(lines) < 4 || !strings.HasPrefix(lines[2], "For ") && !strings.HasSuffix(path, ".zh-CN.md") {
			t.Errorf("%s: the first line below the title does not name the readers", path)
		}
		switch strings.TrimSuffix(filepath.Base(path), ".md") {
		case "findings", "findings.zh-CN", "start.zh-CN", "glossary", "fleet-flags", "bundle", "versions":
		default:
			size += len(text)
		}
	}
	check.True(t, size <= 130<<10, "pages for users have %d bytes in total, want at most %d", size, 130<<10)
}

// TestDeveloperPages limits the length of pages for developers, so that they remain readable. Golden files do not count.
func TestDeveloperPages(t *testing.T) {
	size := 0
	for _, path := range must.Have(filepath.Glob("docs/internals/*.md"))(t) {
		size += len(must.Have(os.ReadFile(path))(t))
	}
	check.True(t, size != 0 && size <= 100<<10, "pages for developers have %d bytes in total, want at most %d", size, 100<<10)
	if words := len(strings.Fields(string(must.Have(os.ReadFile("ARCHITECTURE.md"))(t)))); words == 0 || words > 1300 {
		t.Errorf("ARCHITECTURE.md has %d words, want at most 1300", words)
	}
}

// TestChineseReadme: the Chinese README has every command and section of the English one, and the same sample answer.
func TestChineseReadme(t *testing.T) {
	english, chinese := string(must.Have(os.ReadFile("README.md"))(t)), string(must.Have(os.ReadFile("README.zh-CN.md"))(t))
	same := regexp.MustCompile("(?m)^    (?:git|go|whylate) [^#\n]*|`whylate [a-z][^`]*`|```(?s:.*?)```")
	for _, c := range same.FindAllString(english, -1) {
		check.True(t, strings.Contains(chinese, c), "README.zh-CN.md lacks %q", c)
	}
	if e, c := strings.Count(english, "\n## "), strings.Count(chinese, "\n## "); e != c {
		t.Errorf("README.zh-CN.md has %d sections, README.md %d", c, e)
	}
}

// TestChineseFindings: the Chinese list has each rule next to its English sentence. If the sentence changes, the test fails
// until the translation is checked. `whylate rules --lang zh` says the same.
func TestChineseFindings(t *testing.T) {
	english, chinese := string(must.Have(os.ReadFile("docs/findings.md"))(t)), string(must.Have(os.ReadFile("docs/findings.zh-CN.md"))(t))
	rules := regexp.MustCompile(`(?m)^- \[(WL\d{4})\]\(#\w+\) [\w-]+: (.*)$`).FindAllStringSubmatch(english, -1)
	if rows := strings.Count(chinese, "\n| [WL"); rows != len(rules) || rows == 0 {
		t.Errorf("%d rules, %d of them in Chinese", len(rules), rows)
	}
	for _, r := range rules {
		if row := regexp.MustCompile(`(?m)^\| \[` + r[1] + `\].* \| \p{Han}?.*\p{Han}.* \| ` + regexp.QuoteMeta(r[2]) + ` \|$`); !row.MatchString(chinese) {
			t.Errorf("docs/findings.zh-CN.md does not translate %q of %s", r[2], r[1])
		}
		summary, text, ok := finding.Translation("zh", report.RuleCode(r[1]))
		if !ok || !strings.Contains(chinese, "| "+summary+" | "+r[2]+" |") || !strings.Contains(text, "\n改法：") || !strings.Contains(text, "\n可能误判：") {
			t.Errorf("%s in Chinese is %q %q, want the summary of docs/findings.zh-CN.md, what to do, and when it is wrong", r[1], summary, text)
		}
	}
}
