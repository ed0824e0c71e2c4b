// Package limitstext writes the limits of a process as text.
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

// Write writes the answer as text. It escapes all texts that come from files.
func Write(w io.Writer, a *limits.Answer) error {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }

	switch {
	case a.PID == 0:
		p("a Go program started from here\n")
	case a.Program != nil:
		p("process %d: %s, %s", a.PID, escape(a.Program.Main), escape(a.Program.Go))
		for _, k := range sortedKeys(a.Program.Modules) {
			p(", %s %s", escape(k), escape(a.Program.Modules[k]))
		}
		p("\n")
	default:
		p("process %d\n", a.PID)
	}
	for _, k := range sortedKeys(a.Env) {
		p("  %s=%s\n", escape(k), escape(a.Env[k]))
	}
	if a.Limits == nil {
		p("\nlimits: not measurable here\n")
	} else {
		writeCPU(p, a.Limits)
		writeMemory(p, a.Limits)
		writeChoices(p, a.Choices)
	}
	if len(a.Traps) > 0 {
		p("\nTraps\n")
	}
	for _, t := range a.Traps {
		p("  %-7s%s: %s\n         fix: %s\n", t.Severity, t.Code, escape(t.Text), escape(t.Fix))
	}
	if len(a.Warnings) > 0 {
		p("\nNot visible\n")
	}
	for _, s := range a.Warnings {
		p("  %s\n", escape(s))
	}
	_, err := io.WriteString(w, b.String())
	if err != nil {
		return fmt.Errorf("writing the limits: %w", err)
	}
	return nil
}

func escape(s string) string { return termtext.Escape(s) }

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

type printf func(format string, args ...any)

// writeCPU writes the effective number of CPUs, and a table of all limits of CPU with the file of each.
func writeCPU(p printf, l *cgroup.Limits) {
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
		label := b.Kind
		if b.Kind == cgroup.BoundQuota {
			label = groupLevel(b.Depth)
		}
		rows = append(rows, tableRow(b.Won, label, b.File, b.Text, b.Why))
	}
	writeTable(p, rows)
	for _, lv := range c.Levels {
		if lv.Burst > 0 {
			p("    burst at %s: %s more in a period, from unused quota\n", groupLevel(lv.Depth), lv.Burst)
		}
	}
	writeUnseen(p, c.Sight, c.SightText, c.Hidden)
}

// writeMemory writes the effective memory limit, and a table of all limits of memory with the file of each.
func writeMemory(p printf, l *cgroup.Limits) {
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
		label, text := b.Kind, b.Text
		switch b.Kind {
		case cgroup.BoundMax:
			label = groupLevel(b.Depth)
		case cgroup.BoundTotal:
			label, text = "machine", words.Binary(b.Bytes)
		}
		rows = append(rows, tableRow(b.Won, label, b.File, text, b.Why))
	}
	writeTable(p, rows)
	if m.HighLevel >= 0 {
		p("    memory.high: %s at %s\n", words.Binary(m.High), groupLevel(m.Levels[m.HighLevel].Depth))
	}
	if m.HasSwap {
		p("    swap: at most %s\n", words.Binary(m.Swap))
	}
	writeUnseen(p, m.Sight, m.SightText, m.Hidden)
}

// writeUnseen writes finding, why no limit was found, if sight says that the table and the notes do not show it; and, if hidden is set, that groups
// further up are not visible.
func writeUnseen(p printf, sight cgroup.Sight, finding string, hidden bool) {
	switch sight {
	case cgroup.SightUnreadable, cgroup.SightMalformed, cgroup.SightCovered:
		p("    %s\n", escape(finding))
	}
	if hidden {
		p("    groups further up are not visible\n")
	}
}

// groupLevel returns the text for a control group that is depth levels above the process's own one.
func groupLevel(depth int) string {
	switch depth {
	case 0:
		return "own group"
	case 1:
		return "parent"
	}
	return fmt.Sprintf("%d levels up", depth)
}

// tableRow returns the cells of a row: the label, with a star if the limit is in force, the file with its content (text), and
// the reason.
func tableRow(inForce bool, label, file, text, reason string) [3]string {
	mark := " "
	if inForce {
		mark = "*"
	}
	content := escape(file)
	if text != "" {
		content += `  "` + escape(text) + `"`
	}
	return [3]string{mark + " " + label, content, escape(reason)}
}

// writeTable writes rows. If the second column is long, the reason is on the next line.
func writeTable(p printf, rows [][3]string) {
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

// writeChoices writes, for each setting, which source chose which value and why, with an asterisk at the choice in force. Choices of a
// setting follow each other.
func writeChoices(p printf, cs []limits.Choice) {
	knob := ""
	w := 0
	for _, c := range cs {
		w = max(w, utf8.RuneCountInString(escape(c.Setter)))
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
		p("  %s %-*s  %8s  %s\n", mark, w, escape(c.Setter), value, escape(c.Reason))
	}
}
