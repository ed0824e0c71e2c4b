package cli

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/cli/command"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestDirectoryOfMany: a recording with far too many entries is an error, and is not read as one without its end.
func TestDirectoryOfMany(t *testing.T) {
	const entries = 100_000
	head, entry, end := make([]byte, bundle.MagicLen), make([]byte, 46), make([]byte, 22)
	copy(head, "PK\x03\x04")
	head[26] = byte(len(bundle.NameTrace))
	copy(head[30:], bundle.NameTrace)
	copy(entry, "PK\x01\x02")
	copy(end, "PK\x05\x06")
	binary.LittleEndian.PutUint32(end[12:], uint32(entries*len(entry)))
	binary.LittleEndian.PutUint32(end[16:], uint32(len(head)))
	name := filepath.Join(t.TempDir(), "x.whylate")
	must.Do(t, os.WriteFile(name, bytes.Join([][]byte{head, bytes.Repeat(entry, entries), end}, nil), 0o600))
	s := &streams{command.Streams{Out: io.Discard, Err: new(bytes.Buffer)}}
	if in, err := s.openInput(context.Background(), name); !errors.Is(err, bundle.ErrDirectory) {
		t.Errorf("%+v, %v", in, err)
	}
}
