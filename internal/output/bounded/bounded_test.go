package bounded

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
)

// TestBuffer: the buffer keeps no more than its limit, also when it is copied into. Too much output is an error unless the rest is
// dropped.
func TestBuffer(t *testing.T) {
	const lines = "0123456789\n0123456789\n"
	for _, c := range []struct {
		limit               int
		dropsRest, exceeded bool
		content             string
		wantErr             bool
	}{
		{100, false, false, lines, false},
		{len(lines), false, false, lines, false},
		{15, false, true, "0123456789\n0123", true},
		{15, true, true, "0123456789\n0123", false},
		{0, true, true, "", false},
	} {
		b := &Buffer{Limit: c.limit, DropsRest: c.dropsRest}
		n, err := io.Copy(b, bytes.NewReader([]byte(lines)))
		check.True(t, string(b.Bytes()) == c.content && (err != nil) == c.wantErr && b.IsExceeded == c.exceeded, "limit %d: %q, %d copied, %v", c.limit, b.Bytes(), n, err)
	}
	b := &Buffer{Limit: 11, DropsRest: true}
	for line := range strings.Lines(lines) {
		n, err := io.WriteString(b, line)
		check.True(t, n == len(line) && err == nil, "%d written, %v", n, err)
	}
	check.Equal(t, string(b.Bytes()), "0123456789\n", "of two writes")
}
