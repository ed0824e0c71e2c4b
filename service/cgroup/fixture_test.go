package cgroup

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/must"
)

var update = flag.Bool("update", false, "rewrite the want sections of testdata/*.txtar")

// A fixture is a machine as text: the files of a txtar archive, with the
// story and the expectations in its comment. Expectations are written by
// hand, one "expect: key=value ..." a line; the section "want" is the whole
// answer, written by -update and read by people.
type fixture struct {
	comment string
	expect  map[string]string
	files   fstest.MapFS
	want    string
}

// readFixture reads the txtar format: "-- name --" lines begin files.
func readFixture(t *testing.T, name string) *fixture {
	t.Helper()
	b := must.Have(os.ReadFile(name))(t)
	f := &fixture{expect: map[string]string{}, files: fstest.MapFS{}}
	var cur *bytes.Buffer
	comment := &bytes.Buffer{}
	cur = comment
	bufs := map[string]*bytes.Buffer{}
	for line := range strings.Lines(string(b)) {
		if s, ok := strings.CutPrefix(line, "-- "); ok && strings.HasSuffix(s, " --\n") {
			cur = &bytes.Buffer{}
			bufs[strings.TrimSuffix(s, " --\n")] = cur
			continue
		}
		cur.WriteString(line)
	}
	f.comment = comment.String()
	for name, buf := range bufs {
		if name == "want" {
			f.want = buf.String()
			continue
		}
		f.files[name] = &fstest.MapFile{Data: buf.Bytes(), Mode: 0o444}
	}
	for line := range strings.Lines(f.comment) {
		rest, ok := strings.CutPrefix(line, "expect: ")
		if !ok {
			continue
		}
		rest = strings.TrimSpace(rest)
		// The value of these holds blanks and takes the line.
		for _, k := range []string{"error", "note", "bound"} {
			if v, ok := strings.CutPrefix(rest, k+"="); ok {
				f.expect[k] = v
				rest = ""
			}
		}
		for _, kv := range strings.Fields(rest) {
			k, v, ok := strings.Cut(kv, "=")
			must.True(t, ok, "%s: bad expectation %q", name, kv)
			f.expect[k] = v
		}
	}
	return f
}

func (f *fixture) options(t *testing.T) Options {
	o := Options{FS: f.files}
	if s := f.expect["pid"]; s != "" {
		n := must.Have(strconv.Atoi(s))(t)
		o.PID = n
	}
	return o
}

func fixtures(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob("testdata/*.txtar")
	must.True(t, err == nil && len(names) >= 25, "%d fixtures, %v", len(names), err)
	return names
}

func TestFixtures(t *testing.T) {
	for _, name := range fixtures(t) {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			f := readFixture(t, name)
			l, err := Read(f.options(t))
			checkExpected(t, f, l, err)
			got := render(l, err)
			if *update {
				writeWant(t, name, got)
				return
			}
			check.Equal(t, got, f.want, "the answer differs from the want section (run with -update to see it in a diff)")
		})
	}
}

// checkExpected compares with what the fixture's comment says by hand.
func checkExpected(t *testing.T, f *fixture, l *Limits, err error) {
	t.Helper()
	if want, ok := f.expect["error"]; ok {
		check.True(t, err != nil && strings.Contains(err.Error(), want) && errors.Is(err, ErrNotMeasurable),
			"error %v, want one that wraps ErrNotMeasurable and says %q", err, want)
		return
	}
	must.Do(t, err)
	c, m := &l.CPU, &l.Memory
	depth := -1
	if c.QuotaLevel >= 0 {
		depth = c.Levels[c.QuotaLevel].Depth
	}
	memDepth := -1
	if m.MaxLevel >= 0 {
		memDepth = m.Levels[m.MaxLevel].Depth
	}
	got := map[string]string{
		"pid": strconv.Itoa(l.PID), "cpu": c.Version.String(), "quota": fmt.Sprint(c.Quota), "depth": fmt.Sprint(depth),
		"hidden": fmt.Sprint(c.Hidden), "runtime": fmt.Sprint(c.RuntimeQuota), "gomaxprocs": fmt.Sprint(c.RuntimeDefault()),
		"parallelism": fmt.Sprint(c.Parallelism), "effective": fmt.Sprint(c.Effective), "cpuset": fmt.Sprint(c.Cpuset),
		"affinity": fmt.Sprint(c.Affinity), "online": fmt.Sprint(c.Online),
		"memory": m.Version.String(), "max": fmt.Sprint(m.Max), "memdepth": fmt.Sprint(memDepth), "memhidden": fmt.Sprint(m.Hidden),
		"high": fmt.Sprint(m.High), "hierarchical": fmt.Sprint(m.Hierarchical), "swap": fmt.Sprint(m.Swap),
	}
	for k, want := range f.expect {
		switch k {
		case "note":
			check.True(t, strings.Contains(strings.Join(l.Notes, "\n"), want), "no note says %q: %q", want, l.Notes)
		case "bound":
			found := false
			for _, b := range c.Bounds {
				found = found || strings.Contains(b.Why, want)
			}
			check.True(t, found, "no bound says %q: %+v", want, c.Bounds)
		default:
			g, ok := got[k]
			if !ok {
				t.Errorf("no expectation is called %q", k)
			} else if g != want {
				t.Errorf("%s is %s, want %s", k, g, want)
			}
		}
	}
	check.Equal(t, m.HasSwap, f.expect["swap"] != "", "HasSwap")
}

// render writes the whole answer for people.
func render(l *Limits, err error) string {
	var b strings.Builder
	if err != nil {
		return fmt.Sprintf("error: %v\n", err)
	}
	c, m := &l.CPU, &l.Memory
	h := func(h Hierarchy) {
		fmt.Fprintf(&b, "%s: %v group %s, mount %s shows %s, hidden %v\n", h.Controller, h.Version, h.Group, h.MountPoint, h.MountRoot, h.Hidden)
	}
	mark := func(won bool) string {
		if won {
			return "*"
		}
		return " "
	}
	h(c.Hierarchy)
	for _, l := range c.Levels {
		fmt.Fprintf(&b, "  level %d %s: quota %v period %v burst %v weight %d missing %v %s\n", l.Depth, l.Group, l.Quota, l.Period, l.Burst, l.Weight, l.Missing, l.Err)
	}
	h(c.CpusetHierarchy)
	for _, o := range c.Bounds {
		fmt.Fprintf(&b, " %s%s %s %q = %s CPUs: %s\n", mark(o.Won), o.Kind, o.File, o.Text, cpusText(o.CPUs), o.Why)
	}
	h(m.Hierarchy)
	for _, l := range m.Levels {
		fmt.Fprintf(&b, "  level %d %s: max %d limited %v high %d soft %d swap %d,%v memsw %d missing %v %s\n", l.Depth, l.Group, l.Max, l.Limited, l.High, l.Soft, l.Swap, l.HasSwap, l.MemSwap, l.Missing, l.Err)
	}
	for _, o := range m.Bounds {
		fmt.Fprintf(&b, " %s%s %s %q = %d: %s\n", mark(o.Won), o.Kind, o.File, o.Text, o.Bytes, o.Why)
	}
	for _, n := range l.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	return b.String()
}

func writeWant(t *testing.T, name, want string) {
	t.Helper()
	b := must.Have(os.ReadFile(name))(t)
	const mark = "-- want --\n"
	if i := bytes.Index(b, []byte(mark)); i >= 0 {
		b = b[:i]
	}
	must.Do(t, os.WriteFile(name, append(b, mark+want...), 0o644))
}

// deniedFS refuses to open some files.
type deniedFS struct {
	fs.FS
	deny func(name string) bool
}

func (d deniedFS) Open(name string) (fs.File, error) {
	if d.deny(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return d.FS.Open(name)
}

// TestEachFileDenied denies one file at a time: Read returns an error or omits that
// file's part. It never panics or invents a limit.
func TestEachFileDenied(t *testing.T) {
	for _, name := range fixtures(t) {
		f := readFixture(t, name)
		whole, err := Read(f.options(t))
		if err != nil {
			continue
		}
		for denied := range f.files {
			o := f.options(t)
			o.FS = deniedFS{f.files, func(n string) bool { return n == denied }}
			l, err := Read(o)
			if err != nil {
				check.True(t, errors.Is(err, ErrNotMeasurable), "%s without %s: %v", name, denied, err)
				continue
			}
			if whole.CPU.Quota == 0 && l.CPU.Quota != 0 || l.CPU.Quota != 0 && l.CPU.Quota < whole.CPU.Quota {
				t.Errorf("%s without %s: quota %v, was %v", name, denied, l.CPU.Quota, whole.CPU.Quota)
			}
			if base := filepath.Base(denied); base == "cpu.max" || base == "cpu.cfs_quota_us" {
				reported := false
				for _, b := range l.CPU.Bounds {
					reported = reported || strings.Contains(b.Why, "permission denied")
				}
				check.False(t, onPath(whole, "/"+denied) && !reported, "%s without %s: no bound shows it: %+v", name, denied, l.CPU.Bounds)
			}
			if s, err := NewSampler(o); err == nil {
				var st Stat
				s.Sample(&st)
				s.Close()
			}
		}
	}
}

func onPath(l *Limits, file string) bool {
	return slices.ContainsFunc(l.CPU.Bounds, func(b CPUBound) bool { return b.File == file })
}
