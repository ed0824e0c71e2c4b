package repotest_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
)

// TestQuestions: the files of testdata/questions.md exist. In a released module, those of other modules are absent.
func TestQuestions(t *testing.T) {
	page := must.Have(os.ReadFile("internal/repotest/testdata/questions.md"))(t)
	files := regexp.MustCompile(`(?m)\| (\S+) \| (?:yes|no) \|$`).FindAllSubmatch(page, -1)
	check.Equal(t, len(files), 60, "questions")
	absent := must.Have(testprog.AbsentModules("."))(t)
	for _, f := range files {
		if path := string(f[1]); !testprog.IsBelow(path, absent) {
			_, err := os.Stat(path)
			must.Do(t, err)
		}
	}
}
