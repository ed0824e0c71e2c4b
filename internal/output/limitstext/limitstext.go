// Package limitstext writes what a process may use for people.
package limitstext

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/whylate/whylate/internal/limits"
	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/service/cgroup"
)

// Write writes the answer for people. Nothing that came from a file reaches
// the terminal unescaped.
func Write(w io.Writer, a *limits.Answer) error {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }

	switch {
	case a.PID == 0:
		p("a Go program started from here\n")
	case a.Program != nil:
		p("process %d: %s, %s", a.PID, esc(a.Program.Main), esc(a.Program.Go))
		for _, k := range sorted(a.Program.Modules) {
			p(", %s %s", esc(k), esc(a.Program.Modules[k]))
		}
		p("\n")
	default:
		p("process %d\n", a.PID)
	}
	for _, k := range sorted(a.Env) {
		p("  %s=%s\n", esc(k), esc(a.Env[k]))
	}
	if a.Limits == nil {
		p("\nlimits: not measurable here\n")
	} else {
		cpu(p, a.Limits)
		memory(p, a.Limits)
		choices(p, a.Choices)
	}
	if len(a.Traps) > 0 {
		p("\nTraps\n")
	}
	for _, t := range a.Traps {
		p("  %-7s%s: %s\n         fix: %s\n", t.Severity, t.Code, esc(t.Text), esc(t.Fix))
	}
	if len(a.Warnings) > 0 {
		p("\nNot visible\n")
	}
	for _, s := range a.Warnings {
		p("  %s\n", esc(s))
	}
	_, err := io.WriteString(w, b.String())
	if err != nil {
		return fmt.Errorf("writing the limits: %w", err)
	}
	return nil
}

func esc(s string) string { return termtext.Escape(s) }

func sorted(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

type printf func(format string, args ...any)

func cpu(p printf, l *cgroup.Limits) {
	c := &l.CPU
	p("\nCPU: ")
	if c.Effective > 0 {
		p("%s", words.CPUs(c.Effective))
	} else {
		p("not known")
	}
	p("   (cgroup %s)\n", c.Version)
	var rows [][3]string
	for _, b := range c.Bounds {
		what := b.Kind
		if b.Kind == cgroup.BoundQuota {
			what = level(b.Depth)
		}
		rows = append(rows, row(b.Won, what, b.File, b.Text, b.Why))
	}
	table(p, rows)
	for _, lv := range c.Levels {
		if lv.Burst > 0 {
			p("    burst at %s: %s more in a period, from unused quota\n", level(lv.Depth), lv.Burst)
		}
	}
	unseen(p, c.Sight, c.Seen, c.Hidden)
}

func memory(p printf, l *cgroup.Limits) {
	m := &l.Memory
	p("\nMemory: ")
	if m.Effective > 0 || m.MaxLevel >= 0 {
		p("%s", words.Binary(m.Effective))
	} else {
		p("not known")
	}
	p("   (cgroup %s)\n", m.Version)
	var rows [][3]string
	for _, b := range m.Bounds {
		what, text := b.Kind, b.Text
		switch b.Kind {
		case cgroup.BoundMax:
			what = level(b.Depth)
		case cgroup.BoundTotal:
			what, text = "machine", words.Binary(b.Bytes)
		}
		rows = append(rows, row(b.Won, what, b.File, text, b.Why))
	}
	table(p, rows)
	if m.HighLevel >= 0 {
		p("    memory.high: %s at %s\n", words.Binary(m.High), level(m.Levels[m.HighLevel].Depth))
	}
	if m.HasSwap {
		p("    swap: at most %s\n", words.Binary(m.Swap))
	}
	unseen(p, m.Sight, m.Seen, m.Hidden)
}

// unseen says why no limit was found, where neither the table nor the notes do.
func unseen(p printf, sight cgroup.Sight, seen string, hidden bool) {
	switch sight {
	case cgroup.SightUnreadable, cgroup.SightMalformed, cgroup.SightCovered:
		p("    %s\n", esc(seen))
	}
	if hidden {
		p("    groups further up are not visible\n")
	}
}

func level(depth int) string {
	switch depth {
	case 0:
		return "own group"
	case 1:
		return "parent"
	}
	return fmt.Sprintf("%d levels up", depth)
}

func row(won bool, what, file, text, why string) [3]string {
	mark := " "
	if won {
		mark = "*"
	}
	said := esc(file)
	if text != "" {
		said += `  "` + esc(text) + `"`
	}
	return [3]string{mark + " " + what, said, esc(why)}
}

// table writes rows whose second column may be long: the reason stands on a
// line of its own then.
func table(p printf, rows [][3]string) {
	w := 0
	for _, r := range rows {
		w = max(w, utf8.RuneCountInString(r[0]))
	}
	for _, r := range rows {
		if utf8.RuneCountInString(r[1]) <= 72 {
			p("  %-*s  %-60s  %s\n", w, r[0], r[1], r[2])
		} else {
			p("  %-*s  %s\n  %-*s    %s\n", w, r[0], r[1], w, "", r[2])
		}
	}
}

func choices(p printf, cs []limits.Choice) {
	knob := ""
	w := 0
	for _, c := range cs {
		w = max(w, utf8.RuneCountInString(esc(c.Who)))
	}
	for _, c := range cs {
		if c.Knob != knob {
			knob = c.Knob
			p("\n%s chosen by\n", knob)
		}
		mark, value := " ", "-"
		if c.InForce {
			mark = "*"
		}
		if c.Value != nil {
			value = fmt.Sprint(*c.Value)
			if knob == "GOMEMLIMIT" {
				value = words.Binary(*c.Value)
			}
		}
		p("  %s %-*s  %8s  %s\n", mark, w, esc(c.Who), value, esc(c.Why))
	}
}
