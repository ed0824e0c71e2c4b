package testprog

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestColumns: recordings of any version, and damaged ones, come back from columns byte by byte.
func TestColumns(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	inColumns := 0
	verify := func(name string, data []byte) {
		t.Helper()
		columns := splitColumns(data)
		got, err := joinColumns(columns)
		check.True(t, err == nil && bytes.Equal(got, data), "%s: of %d bytes come %d, %v", name, len(data), len(got), err)
		if len(columns) > len(columnsMagic) && bytes.HasPrefix(columns, []byte(columnsMagic)) {
			inColumns++
			_, err := joinColumns(columns[:len(columns)*3/4])
			check.Error(t, err, "%s: part of its columns was accepted", name)
		}
	}
	for _, p := range Programs() {
		data := Trace(t, p.Name)
		verify(p.Name, data)
		verify(p.Name+", cut", data[:random.IntN(len(data))])
		damaged := bytes.Clone(data)
		for range 8 {
			damaged[random.IntN(len(data))] ^= 1 << random.IntN(8)
		}
		verify(p.Name+", damaged", damaged)
	}
	must.True(t, inColumns > 2*len(Programs()), "only %d recordings were put in columns", inColumns)
	for _, text := range []string{"", "go 1.", "go 1.26 trace\x00\x00\x00", "{}"} {
		verify(text, []byte(text))
	}
}
