package timeline

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testfull"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/internal/trace/tracefmt/refdata"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// cutOffsets returns about n offsets to cut a trace at: evenly distributed ones, and all borders of batches and of
// their headers, with one byte on either side, reduced evenly if they are too many.
func cutOffsets(data []byte, n int) []int {
	chunks, err := tracetext.Split(data)
	if err != nil {
		panic(err) // our own trace
	}
	var borders []int
	for _, c := range chunks {
		borders = append(borders, c.Off-1, c.Off, c.Off+1, c.Data, c.End-1)
	}
	if len(borders) > n/2 {
		var sample []int
		for i := range n / 2 {
			sample = append(sample, borders[i*len(borders)/(n/2)])
		}
		borders = sample
	}
	out := append(borders, 0, 1, 15, 16, 17, len(data)-1, len(data))
	for i := len(out); i < n; i++ {
		out = append(out, i*len(data)/n)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// checkReaderCuts cuts a trace of Go 1.26 at up to 250 offsets (1,000 in the full checks), a large one at fewer, because each reading
// reads all bytes before the cut. In this version a mark ends each generation, so the generations before the cut
// are known without a reader. They must be delivered byte for byte, and the error must report that something is
// missing.
func checkReaderCuts(t *testing.T, data []byte) {
	t.Helper()
	chunks := must.Have(tracetext.Split(data))(t)
	var ends []int
	for _, c := range chunks {
		if c.Type == tracefmt.EvEndOfGeneration {
			ends = append(ends, c.End)
		}
	}
	most := 250
	if testfull.IsEnabled() {
		most = 1000
	}
	places := max(min(most, maxBytesRead/len(data)), 50)
	if testing.Short() {
		places = 50
	}
	for _, cut := range cutOffsets(data, places) {
		whole := 0
		for whole < len(ends) && ends[whole] <= cut {
			whole++
		}
		rd, err := tracefmt.NewReader(bytes.NewReader(data[:cut]), tracefmt.Options{})
		if cut < 16 {
			must.Equal(t, tracefmt.KindOf(err), map[bool]tracefmt.Kind{true: tracefmt.Empty, false: tracefmt.Truncated}[cut == 0],
				"cut at %d: %v", cut, err)
			continue
		}
		must.True(t, err == nil, "cut at %d: %v", cut, err)
		from := 16
		for k := range whole {
			g, err := rd.Next()
			must.True(t, err == nil, "cut at %d: generation %d of %d: %v", cut, k+1, whole, err)
			must.True(t, g.Offset == int64(from) && bytes.Equal(bytes.Join(g.Parts, nil), data[from:ends[k]]),
				"cut at %d: generation %d is not the bytes from %d to %d", cut, k+1, from, ends[k])
			from = ends[k]
			g.Release()
		}
		_, err = rd.Next()
		atBorder := whole > 0 && cut == ends[whole-1] || cut == 16
		if atBorder != errors.Is(err, io.EOF) || !atBorder && tracefmt.KindOf(err) != tracefmt.Truncated {
			t.Fatalf("cut at %d of %d, after %d generations: %v", cut, len(data), whole, err)
		}
	}
}

// maxBytesRead bounds the bytes read for the cuts of one trace; a cut reads half of the trace on average.
const maxBytesRead = 64 << 20

// checkCuts cuts a trace and compares our results with the reference's. Our generations must be equal to its
// generations. Their number must be equal for traces with end marks. Before Go 1.26 there are no marks, and no
// reader can know whether the last generation is whole:
//
//   - The reference reads as much of it as there is, and fails where an event refers to a stack or string that was cut off. We drop
//     the generation if a batch is cut, or if its events refer to something missing, without an error of the reader, so that the
//     report of the earlier generations continues.
//   - So we may have one generation fewer.
func checkCuts(t *testing.T, data []byte, offsets []int) {
	t.Helper()
	marked := !strings.HasPrefix(string(data), "go 1.22") && !strings.HasPrefix(string(data), "go 1.23") && !strings.HasPrefix(string(data), "go 1.25")
	for _, cut := range offsets {
		in := decodeAll(data[:cut], 2)
		stk := newStacks()
		ref := accountOfReference(data[:cut], stk, 1<<30)
		n := len(in.gens)
		switch {
		case n == ref.gens:
		case n == ref.gens-1 && !marked:
			ref = accountOfReference(data[:cut], stk, n)
		default:
			t.Fatalf("cut at %d of %d: we have %d generations (%v), the reference %d (%v)", cut, len(data), n, in.err, ref.gens, ref.err)
		}
		if n == 0 {
			continue
		}
		if diff := differences(accountOfOurs(in, n, stk), ref, stk); diff != nil {
			t.Fatalf("cut at %d of %d: different from the reference reader:\n%s", cut, len(data), strings.Join(diff, "\n"))
		}
	}
}

func TestCutReferenceTraces(t *testing.T) {
	traces := must.Have(refdata.Traces())(t)
	for _, tr := range traces {
		t.Run(tr.Name, func(t *testing.T) {
			t.Parallel()
			if tr.FailurePattern != "" || testing.Short() {
				return
			}
			data := must.Have(tracetext.Assemble(tr.Text))(t)
			n := 1000
			if len(data) > 3000 {
				n = 60
			}
			checkCuts(t, data, cutOffsets(data, n))
		})
	}
}

// TestOldVersions converts traces to those that older versions of Go would have written, whole and cut.
func TestOldVersions(t *testing.T) {
	if testing.Short() {
		t.Skip("other tests run the same code")
	}
	for _, name := range []string{"generations", "tasks", "iterpull", "cpusamples"} {
		data := testprog.Trace(t, name)
		for _, minor := range []int{22, 23, 25, 26} {
			t.Run(fmt.Sprintf("%s/%d", name, minor), func(t *testing.T) {
				old := data
				if minor < 26 {
					var err error
					if old, err = downgrade(data, minor); err != nil {
						if name == "iterpull" && minor == 22 {
							return // coroutine switches came with 1.23
						}
						t.Fatal(err)
					}
				}
				checkAgainstReference(t, old)
				checkCuts(t, old, cutOffsets(old, 60))
			})
		}
	}
}

// downgrade converts a trace of Go 1.26 to the trace that Go 1.minor would have written: 25 without end marks of
// generations, 23 also with only a frequency instead of the clock snapshot, 22 also without stacks in statuses. It
// fails for a trace with events that the older version does not have.
func downgrade(data []byte, minor int) ([]byte, error) {
	chunks, err := tracetext.Split(data)
	if err != nil {
		return nil, fmt.Errorf("downgrading a trace: %w", err)
	}
	out := tracetext.Header(minor)
	for _, c := range chunks {
		body := data[c.Data:c.End]
		switch {
		case c.Type == tracefmt.EvEndOfGeneration:
			continue
		case c.Type == tracefmt.EvExperimentalBatch:
		case len(body) > 0 && tracefmt.EventType(body[0]) == tracefmt.EvSync && minor < 25:
			_, n := binary.Uvarint(body[2:])
			if tracefmt.EventType(body[1]) != tracefmt.EvFrequency || n <= 0 {
				return nil, errors.New("downgrading a trace: a sync batch does not begin with the frequency")
			}
			body = body[1 : 2+n]
		default:
			if body, err = downgradeEvents(body, minor); err != nil {
				return nil, fmt.Errorf("downgrading a trace: %w", err)
			}
		}
		out = append(out, data[c.Off])
		if c.Type == tracefmt.EvExperimentalBatch {
			out = append(out, data[c.Off+1])
		}
		for _, v := range []uint64{c.Gen, c.M, c.Time, uint64(len(body))} {
			out = binary.AppendUvarint(out, v)
		}
		out = append(out, body...)
	}
	return out, nil
}

// downgradeEvents converts the events of a batch to those of Go 1.minor. An event that this version lacks is an error.
func downgradeEvents(body []byte, minor int) ([]byte, error) {
	if len(body) == 0 || !tracefmt.SpecOf(tracefmt.EventType(body[0])).Timed {
		return body, nil
	}
	var out []byte
	for i := 0; i < len(body); {
		typ := tracefmt.EventType(body[i])
		spec := tracefmt.SpecOf(typ)
		from := i
		i++
		lastArg := i
		for range spec.Args {
			lastArg = i
			_, n := binary.Uvarint(body[i:])
			if n <= 0 {
				return nil, errors.New("not a whole event")
			}
			i += n
		}
		switch {
		case spec.SinceMinor <= minor:
			out = append(out, body[from:i]...)
		case typ == tracefmt.EvGoStatusStack:
			out = append(out, byte(tracefmt.EvGoStatus))
			out = append(out, body[from+1:lastArg]...)
		default:
			return nil, fmt.Errorf("go 1.%d has no %s event", minor, spec.Name)
		}
	}
	return out, nil
}
