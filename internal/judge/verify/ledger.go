package verify

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/capture/atomicfile"
	"github.com/whylate/whylate/internal/explain/sample"
	"github.com/whylate/whylate/report"
)

// A ledger is a file of JSON lines, a verdict each, in the order of their ids. Two ledgers to which different people added verdicts are
// merged by taking all lines of both, as git does with "merge=union": a verdict that occurs twice counts once, and the next write
// restores the order.

// maxLedger is the largest ledger that is read, in bytes.
const maxLedger = 64 << 20

// ReadLedger reads the verdicts in a ledger, in the order of the file. A missing file is an empty ledger.
func ReadLedger(name string) ([]Verdict, error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the ledger: %w", err)
	}
	defer f.Close()
	var out []Verdict
	isListed := map[string]bool{}
	lines := bufio.NewScanner(io.LimitReader(f, maxLedger))
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var v Verdict
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil || v.ID == "" {
			return nil, fmt.Errorf("%s, line %d is not a verdict of whylate verify: remove it, or name another ledger", name, n)
		}
		if !isListed[v.ID] {
			isListed[v.ID] = true
			out = append(out, v)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading the ledger %s: %w", name, err)
	}
	return out, nil
}

// AddToLedger adds verdicts to a ledger, replaces those with the same ids, and returns all verdicts that it then contains, sorted by id. The file is
// replaced as a whole.
func AddToLedger(name string, verdicts []Verdict) ([]Verdict, error) {
	if info, err := os.Stat(name); err == nil && info.Mode()&fs.ModeNamedPipe != 0 {
		return nil, fmt.Errorf("the ledger %s is a pipe; name a file, which is read and then written", name)
	}
	all, err := ReadLedger(name)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(old Verdict) bool {
		return slices.ContainsFunc(verdicts, func(v Verdict) bool { return v.ID == old.ID })
	})
	all = append(all, verdicts...)
	slices.SortFunc(all, func(a, b Verdict) int { return strings.Compare(a.ID, b.ID) })
	f, err := atomicfile.Create(name)
	if err != nil {
		return nil, err
	}
	defer f.Discard()
	for i := range all {
		b, err := json.Marshal(&all[i])
		if err != nil {
			return nil, fmt.Errorf("writing the ledger: %w", err)
		}
		if _, err := f.Write(append(b, '\n')); err != nil {
			return nil, err
		}
	}
	return all, f.Commit()
}

// Accuracy is how accurate predictions have been on a service.
type Accuracy struct {
	Verdicts int `json:"verdicts"`
	Judged   int `json:"judged"` // verdicts with evidence
	Kept     int `json:"kept"`
	Better   int `json:"better"`
	Short    int `json:"short"`
	// MedianError is the median of |got-promised|/|promised| over the judged verdicts; null without any.
	MedianError *float64 `json:"median_error"`
}

// SumVerdicts counts the verdicts, and those with evidence by their judgement, and computes the median error of predictions; nil without any.
func SumVerdicts(all []Verdict) *Accuracy {
	a := &Accuracy{Verdicts: len(all)}
	var errs []float64
	for i := range all {
		v := &all[i]
		if !v.Judgement.IsConclusive() {
			continue
		}
		a.Judged++
		switch v.Judgement {
		case PromiseKept:
			a.Kept++
		case AbovePromise:
			a.Better++
		case BelowPromise:
			a.Short++
		}
		if v.Got != nil && v.Promised.Est != 0 {
			errs = append(errs, math.Abs(float64(*v.Got-v.Promised.Est))/math.Abs(float64(v.Promised.Est)))
		}
	}
	if len(errs) > 0 {
		m := (sample.Median(errs) + sample.Quantile(errs, 0.5)) / 2
		a.MedianError = &m
	}
	return a
}

// ReturnedFindings returns the findings of a report, without ignored ones, that their latest verdict in the ledger (PromiseKept or AbovePromise)
// calls fixed.
func ReturnedFindings(rep *report.Report, ledger []Verdict) []*report.Finding {
	type key struct {
		code        report.RuleCode
		site, group string
	}
	latest := map[key]*Verdict{}
	for i := range ledger {
		v := &ledger[i]
		k := key{v.Code, v.Site, v.Group}
		if old := latest[k]; old == nil || old.When == nil || v.When != nil && v.When.After(*old.When) {
			latest[k] = v
		}
	}
	var out []*report.Finding
	for i := range rep.Findings {
		f := &rep.Findings[i]
		v := latest[key{f.Code, siteOf(f), groupName(rep, f.Group)}]
		if f.Ignored == "" && v != nil && (v.Judgement == PromiseKept || v.Judgement == AbovePromise) {
			out = append(out, f)
		}
	}
	return out
}
