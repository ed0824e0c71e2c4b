package repotest_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestQuestions: the files of testdata/questions.md exist.
func TestQuestions(t *testing.T) {
	page := must.Have(os.ReadFile("internal/repotest/testdata/questions.md"))(t)
	files := regexp.MustCompile(`(?m)\| (\S+) \| (?:yes|no) \|$`).FindAllSubmatch(page, -1)
	check.Equal(t, len(files), 60, "questions")
	for _, f := range files {
		_, err := os.Stat(string(f[1]))
		must.Do(t, err)
	}
}
