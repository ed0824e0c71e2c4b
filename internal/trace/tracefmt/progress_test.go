package tracefmt_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// The progress of reading may be queried concurrently; the race detector checks it.
func TestProgressWhileReading(t *testing.T) {
	b := tracetext.New(26)
	th := b.Thread()
	th.Create(1000, 7, "main.f")
	b.NextGeneration(1_000_000_000)
	data := must.Have(b.Bytes())(t)
	src, w := io.Pipe()
	go func() {
		for _, c := range data {
			w.Write([]byte{c})
		}
		w.Close()
	}()
	r := must.Have(tracefmt.NewReader(src, tracefmt.Options{}))(t)
	done := make(chan error)
	go func() {
		for {
			if _, err := r.Next(); err != nil {
				done <- err
				return
			}
		}
	}()
	last := int64(0)
	for {
		n := r.Consumed()
		check.True(t, n >= last && r.Unpacked() >= last && len(r.Warnings()) == 0,
			"%d bytes after %d, %d unpacked, warnings %v", n, last, r.Unpacked(), r.Warnings())
		last = min(n, r.Unpacked())
		select {
		case err := <-done:
			check.True(t, err == io.EOF && r.Consumed() == int64(len(data)) && r.Unpacked() == int64(len(data)),
				"%v; consumed %d, unpacked %d of %d bytes", err, r.Consumed(), r.Unpacked(), len(data))
			// The same with a gzip source: Unpacked counts bytes after unpacking.
			z := must.Have(tracefmt.NewReader(bytes.NewReader(gzippedData(data)), tracefmt.Options{}))(t)
			for err == nil {
				_, err = z.Next()
			}
			check.True(t, z.Unpacked() == int64(len(data)) && z.Consumed() != z.Unpacked(),
				"packed: consumed %d, unpacked %d of %d bytes", z.Consumed(), z.Unpacked(), len(data))
			return
		default:
		}
	}
}

func gzippedData(data []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write(data)
	z.Close()
	return b.Bytes()
}
