package acceptance_test

import (
	"bytes"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/report/text"
)

// TestFirstScreenIsOneJudgement: on the first screen of each recording of the corpus,
//
//   - the first finding is about the largest cause in the first sentence, or the sentence says how much of the time it is about,
//   - every cause of a third of the time of slow requests is in a sentence, and every finding of that much time is shown.
func TestFirstScreenIsOneJudgement(t *testing.T) {
	testprog.RecordingsDir(t)
	for _, name := range corpus(t) {
		if testing.Short() && !strings.HasPrefix(name, "cases/") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			rep := explainFile(t, testprog.Recording(t, name))
			var out bytes.Buffer
			must.Do(t, text.Write(&out, rep, text.Options{Command: "whylate explain x.whylate"}))
			screen := strings.Join(strings.Fields(out.String()), " ")
			if i := slices.IndexFunc(rep.Findings, isFault); i >= 0 && len(rep.Verdict) > 0 && len(rep.Verdict[0].Causes) > 0 {
				if f, v := &rep.Findings[i], &rep.Verdict[0]; v.Remark == "" && !isInSentence(v, f) {
					t.Errorf("the first finding (%s) is not about %s, and the sentence does not say so", f.Title, v.Causes[0].Text)
				}
			}
			checkNoLargeCauseIsMissing(t, rep, screen)
		})
	}
}

// corpus returns the names of all recordings.
func corpus(t *testing.T) (list []string) {
	t.Helper()
	must.Do(t, filepath.WalkDir(testprog.Dir, func(path string, _ fs.DirEntry, err error) error {
		name := strings.TrimSuffix(path, testprog.Packed)
		if ext := filepath.Ext(name); ext == ".whylate" || ext == ".trace" {
			list = append(list, filepath.ToSlash(must.Have(filepath.Rel(testprog.Dir, name))(t)))
		}
		return err
	}))
	return list
}

// isFault reports whether a finding says what to change first in the service.
func isFault(f report.Finding) bool {
	return f.Severity.IsMajor() && f.Ignored == "" && f.Group != "" && !f.Code.OfMachine()
}

// isInSentence reports whether a finding is about the first cause of a verdict, or about one that its sentence names by the same line.
func isInSentence(v *report.Verdict, f *report.Finding) bool {
	largest := &v.Causes[0]
	switch {
	case v.Open != nil && v.Open.Late && f.Code == report.RuleHung:
		return true
	case f.Queue != nil && strings.Contains(v.Text, f.Queue.For):
		return true
	case f.Site != nil && (strings.Contains(v.Text, names.Position(f.Site)) || strings.Contains(v.Text, names.Position(f.Site.OwnLine()))):
		return true
	}
	return slices.Contains(report.Family(f.Cause), largest.Cause)
}

// checkNoLargeCauseIsMissing requires that a screen has all causes and findings of at least a third of the time of slow requests.
func checkNoLargeCauseIsMissing(t *testing.T, rep *report.Report, screen string) {
	t.Helper()
	const large = 1. / 3
	for i := range rep.Verdict {
		for k := range rep.Verdict[i].Causes {
			if c := &rep.Verdict[i].Causes[k]; c.Share >= large && !c.InSentence && c.Cause != report.CauseOther {
				t.Errorf("no sentence has %.0f %% %s", 100*c.Share, c.Text)
			}
		}
	}
	for i := range rep.Findings {
		f := &rep.Findings[i]
		isShown := strings.Contains(screen, string(f.Code)) || f.Site != nil && strings.Contains(screen, names.Position(f.Site.OwnLine()))
		if isFault(*f) && f.Decided != nil && f.Decided.Share >= large && !isShown {
			t.Errorf("the screen does not have %.0f %% %s (%s)", 100*f.Decided.Share, f.Title, f.Code)
		}
	}
}
