//go:build unix

package verify

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// TestLedgerFiles: a file that is no ledger is an error and stays unchanged; ledgers to which two people added are merged.
func TestLedgerFiles(t *testing.T) {
	dir := t.TempDir()
	path := func(name, text string) string {
		name = filepath.Join(dir, name)
		must.Do(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	if all, err := ReadLedger(filepath.Join(dir, "none")); all != nil || err != nil {
		t.Errorf("a file that is none: %v, %v", all, err)
	}
	merged := path("merged", `{"id":"b"}`+"\n\n  \n"+`{"id":"a","code":"WL1"}`+"\n"+`{"id":"b","code":"WL2"}`)
	all := must.Have(ReadLedger(merged))(t)
	check.True(t, len(all) == 2 && all[0].ID == "b" && all[0].Code == "" && all[1].Code == "WL1", "%+v", all)
	all = must.Have(AddToLedger(merged, []Verdict{{ID: "c"}, {ID: "a", Code: "WL3"}}))(t)
	reread := must.Have(ReadLedger(merged))(t)
	var ids []string
	for i := range reread {
		ids = append(ids, reread[i].ID+string(reread[i].Code))
	}
	if got := strings.Join(ids, " "); got != "aWL3 b c" || len(all) != 3 {
		t.Errorf("the ledger has %s", got)
	}
	for name, text := range map[string]string{"not JSON": "{}\nhello\n", "no id": `{"code":"WL1"}`, "a long line": `{"id":"` + strings.Repeat("x", 1<<20) + `"}`} {
		file := path("bad", text)
		if _, err := AddToLedger(file, []Verdict{{ID: "x"}}); err == nil {
			t.Errorf("%s is a ledger", name)
		}
		check.Equal(t, string(must.Have(os.ReadFile(file))(t)), text, "%s was changed", name)
	}
	if _, err := ReadLedger(path("bad", `{"id":"a"}`+"\nx\n")); err == nil || !strings.Contains(err.Error(), "line 2 is not a verdict") {
		t.Errorf("%v", err)
	}
	if _, err := ReadLedger(dir); err == nil {
		t.Error("a folder is a ledger")
	}
	if _, err := AddToLedger(filepath.Join(dir, "none", "x"), nil); err == nil {
		t.Error("a folder that is none was written to")
	}
	pipe := filepath.Join(dir, "pipe")
	must.Do(t, syscall.Mkfifo(pipe, 0o600))
	if _, err := AddToLedger(pipe, nil); err == nil || !strings.Contains(err.Error(), "is a pipe") {
		t.Errorf("a pipe: %v", err)
	}
}

// TestSum: verdicts with evidence are counted by their judgement, and the error is their median.
func TestSum(t *testing.T) {
	promised := func(est, got int64, j Judgement) Verdict {
		v := Verdict{Judgement: j, Got: &got}
		v.Promised.Est = est
		return v
	}
	empty := Verdict{Judgement: BelowPromise}
	empty.Promised.Est = 5
	for want, all := range map[string][]Verdict{
		"{0 0 0 0 0} -":    nil,
		"{1 1 1 0 0} 0.5":  {promised(-10, -5, PromiseKept)},
		"{2 2 0 1 1} 0.75": {promised(-10, -20, AbovePromise), promised(10, 5, BelowPromise)},
		"{3 3 3 0 0} 0.5":  {promised(10, 10, PromiseKept), promised(10, 5, PromiseKept), promised(10, -90, PromiseKept)},
		"{3 2 1 0 1} -":    {promised(0, 5, PromiseKept), empty, promised(10, 5, "")},
	} {
		a := SumVerdicts(all)
		got := fmt.Sprint("{", a.Verdicts, " ", a.Judged, " ", a.Kept, " ", a.Better, " ", a.Short, "} -")
		if a.MedianError != nil {
			got = strings.TrimSuffix(got, "-") + fmt.Sprint(*a.MedianError)
		}
		check.True(t, got == want, "%s, want %s", got, want)
	}
}

// TestBackLatest: the latest verdict of a finding decides, one with a date precedes one without, and an ignored finding is not
// returned.
func TestBackLatest(t *testing.T) {
	at := func(n int64) *time.Time { x := time.Unix(n, 0); return &x }
	f := finding(5)
	rep := &report.Report{Findings: []report.Finding{f}}
	verdict := func(j Judgement, when *time.Time) Verdict {
		return Verdict{Code: f.Code, Site: siteOf(&f), Group: groupName(rep, f.Group), Judgement: j, When: when}
	}
	other := verdict(PromiseKept, at(9))
	other.Site += "x"
	for i, c := range []struct {
		ledger []Verdict
		want   int
	}{
		{nil, 0}, {[]Verdict{verdict(PromiseKept, nil)}, 1}, {[]Verdict{verdict(AbovePromise, nil)}, 1}, {[]Verdict{verdict(BelowPromise, nil)}, 0}, {[]Verdict{other}, 0},
		{[]Verdict{verdict(PromiseKept, at(1)), verdict(BelowPromise, at(2))}, 0}, {[]Verdict{verdict(BelowPromise, at(2)), verdict(PromiseKept, at(1))}, 0}, {[]Verdict{verdict(BelowPromise, at(1)), verdict(PromiseKept, at(2))}, 1}, {[]Verdict{verdict(PromiseKept, at(1)), verdict(BelowPromise, at(1))}, 1},
		{[]Verdict{verdict(PromiseKept, nil), verdict(BelowPromise, at(1))}, 0}, {[]Verdict{verdict(PromiseKept, at(1)), verdict(BelowPromise, nil)}, 1}, {[]Verdict{verdict(BelowPromise, nil), verdict(PromiseKept, nil)}, 1},
	} {
		check.Equal(t, len(ReturnedFindings(rep, c.ledger)), c.want, "ledger %d: are back", i)
	}
	rep.Findings[0].Ignored = "known"
	check.Equal(t, len(ReturnedFindings(rep, []Verdict{verdict(PromiseKept, nil)})), 0, "an ignored finding is back")
}
