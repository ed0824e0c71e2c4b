package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// TestCut: a cut recording has whole generations of the original, byte by byte, and the host samples of their time. A cut may
// be off by a generation, fall within one, lose the mark of its end, or take samples of another time.
func TestCut(t *testing.T) {
	recording, err := os.ReadFile(testprog.Recording(t, "field/story-container-before-200.whylate"))
	must.Do(t, err)
	all, starts, _ := generations(t, recording)
	must.True(t, len(all) == 3, "the recording has %d generations", len(all))
	for from := range 3 {
		for n := 1; from+n <= 3; n++ {
			part := must.Have(cut(recording, from, n))(t)
			got, _, samples := generations(t, part)
			must.True(t, len(got) == n, "%d generations from %d on are %d", n, from, len(got))
			for i := range got {
				check.True(t, bytes.Equal(got[i], all[from+i]), "generation %d after the first %d differs", i, from)
			}
			first, last := samples.Points[0].MonoNS, samples.Points[len(samples.Points)-1].MonoNS
			if d := starts[from] - first; d < 0 && from > 0 || d > hostMargin {
				t.Errorf("from %d: samples begin %d ns before it", from, d)
			}
			if from+n < 3 {
				if d := last - starts[from+n]; d < 0 || d > hostMargin {
					t.Errorf("%d from %d: samples end %d ns after it", n, from, d)
				}
			}
		}
	}
	if _, err := cut(recording, 2, 2); err == nil {
		t.Error("cut accepts a generation that does not exist")
	}
}

// hostMargin is the time before and after its generations for which a cut keeps host samples.
const hostMargin = int64(1100 * 1e6)

// generations returns the bytes of a recording's generations, their starts by the monotonic clock, and the host samples.
func generations(t *testing.T, recording []byte) (all [][]byte, starts []int64, samples *host.Samples) {
	t.Helper()
	b := must.Have(bundle.New(bytes.NewReader(recording), int64(len(recording))))(t)
	r, _, err := b.Trace()
	must.Do(t, err)
	defer r.Close()
	rd, err := tracefmt.NewReader(r, tracefmt.Options{})
	must.Do(t, err)
	for {
		g, err := rd.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must.Do(t, err)
		if w := rd.Warnings(); len(w) > 0 || g.Unmarked {
			t.Fatalf("generation %d: %v", g.Num, w)
		}
		all, starts = append(all, bytes.Join(g.Parts, nil)), append(starts, int64(g.Snapshot.Mono))
	}
	lines, err := b.HostSamples()
	must.Do(t, err)
	if samples, err = host.Read(bytes.NewReader(lines)); err != nil {
		t.Fatal(err)
	}
	return all, starts, samples
}
