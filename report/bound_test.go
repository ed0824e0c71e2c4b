package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/must"
)

// TestBound: input up to the bound is read completely, and no more than the bound is read of longer input.
func TestBound(t *testing.T) {
	var b bytes.Buffer
	must.Do(t, WriteJSON(&b, &Report{Schema: Schema}))
	for bound, want := range map[int]string{b.Len(): "", b.Len() + 1: "", b.Len() - 1: "longer than"} {
		_, err := readJSON(bytes.NewReader(b.Bytes()), int64(bound))
		if want == "" && err != nil && strings.Contains(err.Error(), "longer than") || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%d bytes with a bound of %d: %v", b.Len(), bound, err)
		}
	}
	endless := &byteCounter{}
	if _, err := readJSON(endless, 1<<20); err == nil || endless.n > 2<<20 {
		t.Errorf("%d bytes of endless input were read, %v", endless.n, err)
	}
}

type byteCounter struct{ n int }

func (c *byteCounter) Read(p []byte) (int, error) {
	c.n += len(p)
	return len(p), nil
}
