package rewrite_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/capture/kernelevents"
	"github.com/whylate/whylate/internal/capture/rewrite"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testfull"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/internal/trace/tracefmt/refdata"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/service/redact"
)

// damagedSource opens a recording as the commands do; nil if they refuse it.
func damagedSource(data []byte) *rewrite.Source {
	r := bytes.NewReader(data)
	if !bundle.IsZip(data) {
		return &rewrite.Source{Name: "x", Trace: r}
	}
	b, err := bundle.New(r, r.Size())
	if err != nil {
		trace, ok := bundle.UnfinishedTrace(r, r.Size())
		if !ok {
			return nil
		}
		return &rewrite.Source{Name: "x", Trace: trace, Meta: new(bundle.Meta)}
	}
	trace, _, err := b.Trace()
	if err != nil {
		return nil
	}
	return &rewrite.Source{Name: "x", Trace: trace, Bundle: b}
}

// explainReport returns the report on a recording; nil if explain refuses it.
func explainReport(data []byte) *report.Report {
	s := damagedSource(data)
	if s == nil {
		return nil
	}
	rep, err := whylate.Explain(context.Background(), s.Trace, whylate.Options{})
	if err != nil {
		return nil
	}
	return rep
}

// TestDamaged truncates and damages recordings. If explain reads one, Cut and Redact must read it,
// too; the report on the copy must equal that on the original, and the copy's metadata must report the
// loss.
func TestDamaged(t *testing.T) {
	dir, _ := testprog.Corpus(t)
	files := map[string][]byte{
		"ants-few.whylate":          must.Have(os.ReadFile(testprog.FieldRecording(t, dir, "ants-few")))(t),
		"slow-database-fixed.trace": must.Have(os.ReadFile(testprog.Recording(t, "truth/slow-database-fixed.trace")))(t),
	}
	damages := 20
	if testfull.IsEnabled() {
		damages = 40
	} else if testing.Short() {
		damages = 12
	}
	random := rand.New(rand.NewPCG(1, 2))
	writers := map[string]func(io.Writer, *rewrite.Source) (rewrite.Loss, error){
		"cut": func(w io.Writer, s *rewrite.Source) (rewrite.Loss, error) {
			p, err := rewrite.Cut(w, s, 0, 0)
			return p.Loss, err
		},
		"redact": func(w io.Writer, s *rewrite.Source) (rewrite.Loss, error) {
			return rewrite.Redact(w, s, redact.Options{Logs: redact.Hash, Key: []byte("0123456789abcdef")})
		},
	}
	read, truncated := 0, 0
	for name, whole := range files {
		for i := range 2 * damages {
			data := bytes.Clone(whole)
			if i < damages {
				data = data[:len(data)*i/damages]
			} else {
				for range 1 + random.IntN(8) {
					data[random.IntN(len(data))] ^= 1 << random.IntN(8)
				}
			}
			original := explainReport(data)
			if original == nil || len(original.Groups) == 0 {
				continue
			}
			read++
			for verb, write := range writers {
				var out bytes.Buffer
				loss, err := write(&out, damagedSource(data))
				if err != nil {
					t.Errorf("%s of %s, damage %d: %v", verb, name, i, err)
					continue
				}
				written := explainReport(out.Bytes())
				if written == nil || written.Input.Events != original.Input.Events || written.Input.DurationNS != original.Input.DurationNS || len(written.Groups) != len(original.Groups) {
					t.Errorf("%s of %s, damage %d: the report on what was written is another", verb, name, i)
				}
				check.False(t, original.Input.Truncated && !loss.Truncated && !written.Input.Truncated,
					"%s of %s, damage %d: it is not said to be truncated", verb, name, i)
				if b := damagedSource(out.Bytes()).Bundle; (b != nil) != bundle.IsZip(data) || b != nil && b.Meta().Truncated != loss.Truncated {
					t.Errorf("%s of %s, damage %d: the bundle says nothing of the damage", verb, name, i)
				}
				if loss.Truncated {
					truncated++
				}
			}
		}
	}
	check.True(t, read >= damages && truncated >= damages/2,
		"only %d damaged recordings were read, %d truncated ones were written", read, truncated)
}

// bundleOf returns a bundle of a trace and other entries.
func bundleOf(t *testing.T, trace []byte, entries map[string][]byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := must.Have(bundle.NewWriter(&out, time.Now()))(t)
	must.Have(w.Write(trace))(t)
	for name, data := range entries {
		must.Do(t, w.Add(name, data))
	}
	must.Do(t, w.Close(bundle.Meta{}))
	return out.Bytes()
}

// longTrace returns a trace of several generations.
func longTrace(t *testing.T) (data []byte, generations int) {
	t.Helper()
	data = must.Have(os.ReadFile(testprog.Recording(t, "truth/slow-database-fixed.trace")))(t)
	rd := must.Have(tracefmt.NewReader(bytes.NewReader(data), tracefmt.Options{}))(t)
	for {
		if _, err := rd.Next(); err != nil {
			break
		}
		generations++
	}
	if generations < 2 {
		t.Skip("the recording has one generation")
	}
	return data, generations
}

// TestTruncatedIsReported: the excerpt and the redacted copy of a truncated trace are marked as
// truncated.
func TestTruncatedIsReported(t *testing.T) {
	trace, generations := longTrace(t)
	cutTrace := trace[:len(trace)-len(trace)/generations/3]
	for verb, write := range map[string]func(io.Writer, *rewrite.Source) (rewrite.Loss, error){
		"cut": func(w io.Writer, s *rewrite.Source) (rewrite.Loss, error) {
			p, err := rewrite.Cut(w, s, 0, time.Hour)
			return p.Loss, err
		},
		"redact": func(w io.Writer, s *rewrite.Source) (rewrite.Loss, error) {
			return rewrite.Redact(w, s, redact.Options{Logs: redact.Drop})
		},
	} {
		for kind, data := range map[string][]byte{"whole": bundleOf(t, trace, nil), "cut": bundleOf(t, cutTrace, nil)} {
			var out bytes.Buffer
			loss := must.Have(write(&out, source(t, data)))(t)
			m, want := source(t, out.Bytes()).Bundle.Meta(), kind == "cut"
			isWarned := slices.ContainsFunc(m.Warnings, func(w bundle.Warning) bool { return w.Code == "damaged" })
			check.True(t, loss.Truncated == want && m.Truncated == want && isWarned == want,
				"%s of a %s trace: %+v, metadata %+v", verb, kind, loss, m)
			referenceEvents(t, verb, traceOf(t, out.Bytes()))
		}
	}
	// A part before the damage is whole.
	var out bytes.Buffer
	p := must.Have(rewrite.Cut(&out, source(t, bundleOf(t, cutTrace, nil)), 0, time.Millisecond))(t)
	check.True(t, !p.Truncated && !source(t, out.Bytes()).Bundle.Meta().Truncated, "the part before the damage is %+v", p)
}

// TestUnfinished: the recording of a killed writer becomes a complete bundle, with the start time of
// its trace.
func TestUnfinished(t *testing.T) {
	data := bundleOf(t, testprog.Trace(t, "snapshot"), nil)
	r := bytes.NewReader(data[:len(data)-100])
	for _, write := range []func(io.Writer, *rewrite.Source) error{
		func(w io.Writer, s *rewrite.Source) error { _, err := rewrite.Cut(w, s, 0, 0); return err },
		func(w io.Writer, s *rewrite.Source) error {
			_, err := rewrite.Redact(w, s, redact.Options{})
			return err
		},
	} {
		trace, _ := bundle.UnfinishedTrace(r, r.Size())
		var out bytes.Buffer
		must.Do(t, write(&out, &rewrite.Source{Name: "x", Trace: trace, Meta: new(bundle.Meta)}))
		if m := source(t, out.Bytes()).Bundle.Meta(); !m.Truncated || m.Start.Year() < 2024 {
			t.Errorf("the metadata are %+v", m)
		}
	}
}

// TestLostEntries damages a bundle's other entries: the rest is copied, and of the host samples the
// lines before the damage.
func TestLostEntries(t *testing.T) {
	const line = `{"kind":"start","schema":"whylate.host/v1","mono_ns":1,"wall_ns":1}` + "\n"
	// No compression, so that the damage is in the text.
	host := []byte(line + strings.Repeat(`{"kind":"mark","mono_ns":1,"wall_ns":1,"text":"x"}`+"\n", 3))
	data := bundleOf(t, testprog.Trace(t, "http1"), map[string][]byte{bundle.NameHost: host, bundle.NameAllocs: []byte("no profile"), bundle.NameCPU: []byte("no profile")})
	broken := bytes.Replace(data, []byte("no profile"), []byte("no_profile"), 1) // its checksum is wrong
	for verb, c := range map[string]struct {
		write func(io.Writer, *rewrite.Source) (rewrite.Loss, error)
		lost  int
	}{
		"cut": {func(w io.Writer, s *rewrite.Source) (rewrite.Loss, error) {
			p, err := rewrite.Cut(w, s, 0, 0)
			return p.Loss, err
		}, 1}, // it reads no profile
		"redact": {func(w io.Writer, s *rewrite.Source) (rewrite.Loss, error) {
			return rewrite.Redact(w, s, redact.Options{Logs: redact.Drop})
		}, 2},
	} {
		var out bytes.Buffer
		loss := must.Have(c.write(&out, source(t, broken)))(t)
		b := source(t, out.Bytes()).Bundle
		lines, err := b.HostSamples()
		m := b.Meta()
		isWarned := slices.ContainsFunc(m.Warnings, func(w bundle.Warning) bool { return w.Code == "unreadable" && strings.Contains(w.Text, ".pb.gz") })
		if len(loss.Entries) != c.lost || loss.Truncated || m.Truncated || !isWarned || err != nil || bytes.Count(lines, []byte("\n")) == 0 {
			t.Errorf("%s: %+v, metadata %+v, host samples %q, %v", verb, loss, m, lines, err)
		}
	}
}

// TestCutHostLines: host samples stay from 1.1 s before the excerpt to 1.1 s after it, and no others.
func TestCutHostLines(t *testing.T) {
	trace := testprog.Trace(t, "snapshot")
	rd := must.Have(tracefmt.NewReader(bytes.NewReader(trace), tracefmt.Options{}))(t)
	g := must.Have(rd.Next())(t)
	if !g.HasSnapshot {
		t.Skip("the trace has no clock snapshot")
	}
	scale := tracefmt.NewScale(g.Freq)
	begin := int64(g.Snapshot.Mono) - (scale.NS(g.Snapshot.Time) - scale.NS(g.MinTime))
	p := must.Have(rewrite.Cut(io.Discard, source(t, bundleOf(t, trace, nil)), 0, time.Hour))(t)
	end := begin + int64(p.End)
	const ms, margin = 1_000_000, 1100 * 1_000_000
	var lines bytes.Buffer
	want := map[int64]bool{}
	for _, l := range []struct {
		mono   int64
		kind   string
		isKept bool
	}{
		{begin - 99*margin, "start", true},
		{begin - margin - ms, "sample", false}, {begin - margin - 2*ms, "second", false}, {begin - margin, "sample", true}, {begin, "trace", false}, {begin + ms, "second", true},
		{end + margin, "sample", true}, {end + margin + ms, "sample", false}, {end + 10*margin, "second", false}, {end + 99*margin, "end", true},
	} {
		fmt.Fprintf(&lines, `{"kind":%q,"mono_ns":%d,"wall_ns":1}`+"\n", l.kind, l.mono)
		if l.isKept {
			want[l.mono] = true
		}
	}
	var out bytes.Buffer
	must.Have(rewrite.Cut(&out, source(t, bundleOf(t, trace, map[string][]byte{bundle.NameHost: lines.Bytes()})), 0, time.Hour))(t)
	samples := must.Have(source(t, out.Bytes()).Bundle.HostSamples())(t)
	for mono := range want {
		check.True(t, bytes.Contains(samples, fmt.Appendf(nil, `"mono_ns":%d,`, mono)), "the line at %d is missing", mono)
	}
	check.Equal(t, bytes.Count(samples, []byte("\n")), len(want), "lines:\n%s", samples)
}

// TestKernelEvents: a cut keeps the kernel's events of its time, redaction keeps all and hides the tables, and damaged
// ones are reported.
func TestKernelEvents(t *testing.T) {
	trace := testprog.Trace(t, "snapshot")
	g := must.Have(must.Have(tracefmt.NewReader(bytes.NewReader(trace), tracefmt.Options{}))(t).Next())(t)
	begin := tracefmt.NewScale(g.Freq).NS(g.MinTime)
	const margin, offset = 300 * 1_000_000, 5_000_000_000
	var file bytes.Buffer
	w := must.Have(kernelevents.NewWriter(&file))(t)
	for _, at := range []int64{-margin - 1, -margin, 0, 3600e9} {
		must.Do(t, w.Add(kernelevents.Event{Time: begin + at - offset, Kind: kernelevents.Refill, A: at}))
	}
	must.Do(t, w.Close(kernelevents.Tables{PID: 77, Threads: []kernelevents.Thread{{TID: 9, Comm: "secret"}}}))
	recording := func(data []byte) *rewrite.Source {
		var out bytes.Buffer
		w := must.Have(bundle.NewWriter(&out, time.Now()))(t)
		must.Have(w.Write(trace))(t)
		must.Do(t, w.Add(bundle.NameKernel, data))
		must.Do(t, w.Close(bundle.Meta{Kernel: &bundle.Kernel{ClockOffsetNS: offset}}))
		return source(t, out.Bytes())
	}
	copied := func(data []byte) (tables kernelevents.Tables, values []int64) {
		r := must.Have(kernelevents.NewReader(must.Have(source(t, data).Bundle.KernelEvents())(t)))(t)
		events, _ := r.Next(nil)
		for _, e := range events {
			values = append(values, e.A)
		}
		return r.Tables, values
	}
	var out bytes.Buffer
	must.Have(rewrite.Cut(&out, recording(file.Bytes()), 0, time.Hour))(t)
	if tables, values := copied(out.Bytes()); !slices.Equal(values, []int64{-margin, 0}) || tables.PID != 77 {
		t.Errorf("the excerpt has the events %d and the process %d", values, tables.PID)
	}
	out.Reset()
	must.Have(rewrite.Redact(&out, recording(file.Bytes()), redact.Options{}))(t)
	if tables, values := copied(out.Bytes()); len(values) != 4 || tables.PID != 1 || tables.Threads[0].Comm == "secret" {
		t.Errorf("the redacted copy has the events %d and the tables %+v", values, tables)
	}
	out.Reset()
	loss := must.Have(rewrite.Redact(&out, recording([]byte("damaged")), redact.Options{}))(t)
	check.True(t, slices.Equal(loss.Entries, []string{bundle.NameKernel}), "damaged events: %+v", loss)
}

// TestGzip: both functions read gzipped traces, as explain does, and write an unpacked one.
func TestGzip(t *testing.T) {
	data := testprog.Trace(t, "tasks")
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	must.Have(z.Write(data))(t)
	must.Do(t, z.Close())
	for verb, write := range map[string]func(io.Writer, *rewrite.Source) error{
		"cut": func(w io.Writer, s *rewrite.Source) error { _, err := rewrite.Cut(w, s, 0, 0); return err },
		"redact": func(w io.Writer, s *rewrite.Source) error {
			_, err := rewrite.Redact(w, s, redact.Options{Tasks: redact.Hash, Key: []byte("0123456789abcdef")})
			return err
		},
	} {
		var plain, unpacked bytes.Buffer
		must.Do(t, write(&plain, source(t, data)))
		must.Do(t, write(&unpacked, source(t, packed.Bytes())))
		check.True(t, bytes.Equal(plain.Bytes(), unpacked.Bytes()) && plain.Len() != 0,
			"%s writes %d bytes of the trace, and %d of the packed one", verb, plain.Len(), unpacked.Len())
	}
}

// TestInterrupted: a copy that the user interrupts is an error, not a truncated recording.
func TestInterrupted(t *testing.T) {
	data, _ := longTrace(t)
	interrupted := func() *rewrite.Source {
		return &rewrite.Source{Name: "x", Trace: io.MultiReader(bytes.NewReader(data[:len(data)-9]), canceledReader{})}
	}
	if _, err := rewrite.Cut(io.Discard, interrupted(), 0, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("cut: %v", err)
	}
	if _, err := rewrite.Redact(io.Discard, interrupted(), redact.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("redact: %v", err)
	}
}

type canceledReader struct{}

func (canceledReader) Read([]byte) (int, error) { return 0, context.Canceled }

// TestNothingWhole: a trace without a complete generation is an error.
func TestNothingWhole(t *testing.T) {
	data := testprog.Trace(t, "http1")
	for _, size := range []int{0, 10, 16, 17, 200} {
		if loss, err := rewrite.Redact(io.Discard, source(t, data[:size]), redact.Options{Logs: redact.Drop}); err == nil && size != 16 {
			t.Errorf("redact of %d bytes: %+v", size, loss)
		}
	}
}

// TestVersions copies the reference reader's test traces, of all versions of the format.
func TestVersions(t *testing.T) {
	traces := must.Have(refdata.Traces())(t)
	versions := map[int]bool{}
	for _, x := range traces {
		data, err := tracetext.Assemble(x.Text)
		if err != nil || x.FailurePattern != "" {
			continue
		}
		rd := must.Have(tracefmt.NewReader(bytes.NewReader(data), tracefmt.Options{}))(t)
		versions[rd.Minor()] = true
		want := referenceEvents(t, x.Name, data)
		var part, hidden bytes.Buffer
		if p, err := rewrite.Cut(&part, source(t, data), 0, 0); err != nil || p.Truncated || referenceEvents(t, x.Name, part.Bytes()) != want {
			t.Errorf("cut of %s: %+v, %v", x.Name, p, err)
		}
		loss, err := rewrite.Redact(&hidden, source(t, data), redact.Options{Logs: redact.Drop, Tasks: redact.Drop, Files: redact.Drop})
		check.True(t, err == nil && !loss.Truncated && referenceEvents(t, x.Name, hidden.Bytes()) == want,
			"redact of %s: %+v, %v", x.Name, loss, err)
	}
	check.True(t, len(versions) >= 3, "there are traces of %d versions", len(versions))
}
