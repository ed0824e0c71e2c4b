package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/report"
)

// answers are the reports of one recording: with the kernel's events, with samples alone, and of the trace alone.
type answers struct{ events, samples, bare *report.Report }

func readAnswers(name string) (a answers, err error) {
	b, err := bundle.Open(name)
	if err != nil {
		return a, err
	}
	defer b.Close()
	r, _, err := b.Trace()
	if err != nil {
		return a, err
	}
	defer r.Close()
	trace, err := io.ReadAll(r)
	if err != nil {
		return a, err
	}
	kernel, err := b.KernelEvents()
	if err != nil {
		return a, err
	}
	samples, err := b.HostSamples()
	if err != nil {
		return a, err
	}
	for _, x := range []struct {
		report          **report.Report
		samples, kernel []byte
	}{{&a.events, samples, kernel}, {&a.samples, samples, nil}, {&a.bare, nil, nil}} {
		options := whylate.Options{}
		if x.samples != nil {
			options.Host = bytes.NewReader(x.samples)
		}
		if x.kernel != nil {
			options.Kernel = bytes.NewReader(x.kernel)
		}
		if *x.report, err = whylate.Explain(context.Background(), bytes.NewReader(trace), options); err != nil {
			return a, err
		}
	}
	return a, nil
}

// A tally counts statements of one kind, and those that are right. What is not said is not counted.
type tally struct {
	right, said, missed int
	wrong               []string
}

func (t *tally) add(name string, said, right, missed int) {
	t.said, t.right, t.missed = t.said+said, t.right+right, t.missed+missed
	if right < said {
		t.wrong = append(t.wrong, name)
	}
}

// compare writes how often the answers without the kernel's events agree with those that have them.
func compare(w io.Writer, dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.whylate"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no recordings in %s: %w", dir, err)
	}
	slices.Sort(files)
	rows := newStatements()
	fmt.Fprintln(w, "| recording | a quota took | samples | bare | others had the CPUs | samples | bare | computing | samples | first finding | samples | bare |\n|---|---|---|---|---|---|---|---|---|---|---|---|")
	for _, file := range files {
		a, err := readAnswers(file)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".whylate")
		if !a.events.Kernel.IsComplete() {
			return fmt.Errorf("%s: the kernel's events are not complete", file)
		}
		for i := range rows {
			for k, inferred := range []*report.Report{a.samples, a.bare} {
				said, right, missed := rows[i].judge(a.events, inferred)
				rows[i].tallies[k].add(name, said, right, missed)
			}
		}
		cpu, saidCPU := causeNS(a.events, report.CauseCPU), computedNS(a.samples)
		fmt.Fprintf(w, "| %s | %s | %s | %s | %.0f %% | %s | %s | %.0f ms | %.0f ms | %s | %s | %s |\n", name, quotaText(a.events), quotaText(a.samples), quotaText(a.bare),
			100*othersShare(a.events), yes(has(a.samples, report.RuleBusyMachine)), yes(has(a.bare, report.RuleBusyMachine)), float64(cpu)/1e6, float64(saidCPU)/1e6, firstFinding(a.events), firstFinding(a.samples), firstFinding(a.bare))
	}
	fmt.Fprintf(w, "\n| %d recordings | samples: right of said | missed | bare: right of said | missed |\n|---|---|---|---|---|\n", len(files))
	for _, row := range rows {
		s, b := &row.tallies[0], &row.tallies[1]
		fmt.Fprintf(w, "| %s | %s | %d | %s | %d |\n", row.text, share(s), s.missed, share(b), b.missed)
	}
	fmt.Fprintln(w)
	for _, row := range rows {
		if text := wrongText(&row.tallies[0], &row.tallies[1]); text != "" {
			fmt.Fprintf(w, "wrong: %s: %s\n", row.text, text)
		}
	}
	return nil
}

func share(t *tally) string {
	if t.said == 0 {
		return "-"
	}
	return fmt.Sprintf("%d of %d, %.0f %%", t.right, t.said, 100*float64(t.right)/float64(t.said))
}

func wrongText(s, b *tally) string {
	var all []string
	for _, name := range s.wrong {
		all = append(all, name+" (samples)")
	}
	for _, name := range b.wrong {
		if !slices.Contains(s.wrong, name) {
			all = append(all, name+" (bare)")
		}
	}
	return strings.Join(all, ", ")
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func quotaText(r *report.Report) string {
	t := &r.Runtime.Throttle
	if t.Verdict.HeldBack() {
		return fmt.Sprintf("%.0f ms", float64(t.LostCPUNS)/1e6)
	}
	return string(t.Verdict)
}

func firstFinding(r *report.Report) string {
	for i := range r.Findings {
		if f := &r.Findings[i]; f.Severity == report.SeverityHigh || f.Severity == report.SeverityMedium {
			return string(f.Code)
		}
	}
	return "-"
}

func has(r *report.Report, code report.RuleCode) bool {
	return slices.ContainsFunc(r.Findings, func(f report.Finding) bool {
		return f.Code == code && f.Severity != report.SeverityInfo
	})
}

func causeNS(r *report.Report, cause report.CauseName) (ns int64) {
	for i := range r.Groups {
		for _, part := range r.Groups[i].HistogramCauses[cause] {
			ns += part
		}
	}
	return ns
}

// othersShare is the share of the goroutines' running time in which their threads waited while other processes had the CPU.
func othersShare(r *report.Report) float64 {
	k := r.Kernel
	share := 0.0
	for _, p := range k.Processes {
		if p.Process != report.OwnThreads {
			share += p.Share
		}
	}
	return share * float64(k.CPUWaitNS) / float64(max(1, k.RunningNS))
}
