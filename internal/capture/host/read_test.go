package host

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

const ms = int64(1e6)

func sampleTime(i int64) (mono, wall int64) { return 1e9 + i*20*ms, 1000e9 + i*20*ms }

func p(v int64) *int64 { return &v }

func TestDamagedRecordings(t *testing.T) {
	var l sampleLog
	for i := range int64(10) {
		mono, wall := sampleTime(i)
		l.samples.add(Sample{MonoNS: mono, WallNS: wall, RunNS: p(i * ms)}, maxSamples)
	}
	mono, wall := sampleTime(10)
	good := string(l.encode(Line{Kind: KindStart, Schema: Schema, PID: 7, Sample: Sample{MonoNS: 1e9, WallNS: 1000e9}}, Line{Kind: KindEnd, Sample: Sample{MonoNS: mono, WallNS: wall}}))
	lines := strings.SplitAfter(good, "\n")
	for _, c := range []struct {
		name, text, want string
		warnings         int
	}{
		{"empty", "", "no sample is complete", 0},
		{"no text", "\x00\x01\x02", "first line", 0},
		{"another format", `{"kind":"start","schema":"x","mono_ns":1}` + "\n", `schema is "x"`, 0},
		{"newer", `{"kind":"start","schema":"whylate.host/v9","mono_ns":1}` + "\n", "use a newer whylate", 0},
		{"no start", strings.Join(lines[1:], ""), `of kind "sample"`, 0},
		{"start alone", lines[0], "no sample is complete", 0},
		{"cut", good[:len(good)-10], "", 1},
		{"garbage between", lines[0] + lines[1] + "garbage\n" + `{"kind":"sample"}` + "\n" + lines[2], "", 1},
		{"negative", lines[0] + lines[1] + `{"kind":"sample","mono_ns":2000000000,"run_ns":-5}` + "\n", "", 1},
		{"huge", lines[0] + lines[1] + `{"kind":"sample","mono_ns":2000000000,"run_ns":9000000000000000000}` + "\n", "", 1},
		{"time goes back", lines[0] + lines[5] + lines[2] + lines[6], "", 1},
		{"a line of 3 MB", lines[0] + lines[1] + strings.Repeat("x", 3<<20) + "\n" + lines[2], "", 1},
		{"unknown kinds and fields", lines[0] + `{"kind":"later","mono_ns":1,"x":{}}` + "\n" + lines[1] + lines[2], "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := Read(strings.NewReader(c.text))
			if c.want != "" {
				check.True(t, errors.Is(err, ErrFormat) && strings.Contains(err.Error(), c.want), "error %v, want %q", err, c.want)
				return
			}
			check.True(t, err == nil && len(s.Warnings) == c.warnings, "%v, warnings %v, want %d", err, s, c.warnings)
		})
	}
}

// countingReader counts the bytes that are read from it.
type countingReader struct {
	io.Reader
	n int
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += n
	return n, err
}

// endlessText repeats a text without end.
type endlessText struct {
	text   string
	offset int
}

func (e *endlessText) Read(p []byte) (int, error) {
	n := copy(p, e.text[e.offset:])
	e.offset = (e.offset + n) % len(e.text)
	return n, nil
}

// TestEndlessLines reads recordings without end: lines, blank lines, and one line. Reading must end,
// with a warning.
func TestEndlessLines(t *testing.T) {
	var l sampleLog
	for i := range int64(2) {
		mono, wall := sampleTime(i)
		l.samples.add(Sample{MonoNS: mono, WallNS: wall}, maxSamples)
	}
	mono, wall := sampleTime(2)
	good := string(l.encode(Line{Kind: KindStart, Schema: Schema, PID: 7, Sample: Sample{MonoNS: 1e9, WallNS: 1000e9}}, Line{Kind: KindEnd, Sample: Sample{MonoNS: mono, WallNS: wall}}))
	for name, text := range map[string]string{"blank lines": strings.Repeat("\n", 1000), "lines": "{}\n", "one line": strings.Repeat("x", 1000)} {
		in := &countingReader{Reader: io.MultiReader(strings.NewReader(good), &endlessText{text: text})}
		s, err := Read(in)
		must.Do(t, err, name)
		if in.n > maxBytes+1<<20 || name != "one line" && in.n > 4*maxLines {
			t.Errorf("%s: %d bytes are read", name, in.n)
		}
		check.True(t, len(s.Warnings) != 0 && strings.Contains(s.Warnings[len(s.Warnings)-1].Text, "is not read"),
			"%s: warnings %v", name, s.Warnings)
	}
}

// The memory for an endless recording is bounded.
func TestLongRecording(t *testing.T) {
	s := &Samples{Connections: map[Ends]*Connection{}}
	last := int64(0)
	for i := range int64(3 * maxPoints) {
		mono, wall := sampleTime(i)
		last = mono
		s.add(&Line{Kind: KindSample, Sample: Sample{MonoNS: mono, WallNS: wall, ThrottledNS: p(i), Periods: p(i)}})
		if i%100 == 0 {
			s.add(&Line{Kind: KindSecond, Sample: Sample{MonoNS: mono, WallNS: wall}})
			s.add(&Line{Kind: KindSockets, Sample: Sample{MonoNS: mono, WallNS: wall}, Sockets: []Socket{{Local: fmt.Sprintf("127.0.0.1:%d", i%60000+1), Remote: fmt.Sprintf("10.0.%d.%d:1", i/60000, i%250), Retransmitted: i}}})
		}
	}
	check.True(t, len(s.Points) <= maxPoints && len(s.Seconds) <= 2*maxSeconds && len(s.Connections) <= maxConnections && len(s.Events) <= maxEvents,
		"%d points, %d seconds, %d connections, %d events", len(s.Points), len(s.Seconds), len(s.Connections), len(s.Events))
	if got := *s.Points[len(s.Points)-1].ThrottledNS - *s.Points[0].ThrottledNS; got != 3*int64(maxPoints)-1 || s.Points[len(s.Points)-1].MonoNS != last {
		t.Errorf("the counters' growth is %d, want %d", got, 3*maxPoints-1)
	}
}

// The writer drops samples of long recordings, too, and keeps the sums.
func TestLogKeepsSums(t *testing.T) {
	var l series
	n := 3*maxSamples + 17
	for i := range n {
		l.add(Sample{MonoNS: int64(i + 1), ThrottledNS: p(int64(i))}, maxSamples)
	}
	first, last := *l.samples[0].ThrottledNS, *l.samples[len(l.samples)-1].ThrottledNS
	check.True(t, len(l.samples) <= maxSamples && first == 0 && last == int64(n-1),
		"%d samples from %d to %d, want 0 to %d", len(l.samples), first, last, n-1)
	for i := 1; i < len(l.samples); i++ {
		must.True(t, l.samples[i].MonoNS > l.samples[i-1].MonoNS, "sample %d is not after the one before", i)
	}
}
