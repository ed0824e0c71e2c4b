package cli

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/whylate/whylate/internal/output/progress"
)

// TestPipeWithoutWriter opens a named pipe that nobody writes to: an interrupt ends that.
func TestPipeWithoutWriter(t *testing.T) {
	name := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Skip(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := openWhile(ctx, name); !errors.Is(err, context.Canceled) {
		t.Errorf("opening ended with %v", err)
	}
	// The open that was left to itself must not keep the pipe.
	fd, err := syscall.Open(name, syscall.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err == nil {
		syscall.Close(fd)
	}
}

// TestUnpackOnlyTraces gives view a small file of very many zero bytes.
func TestUnpackOnlyTraces(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	z.Write(make([]byte, 8<<20))
	z.Close()
	in := &input{name: "bomb.gz", Reader: &packed}
	defer in.Close()
	_, size, err := unpacked(context.Background(), in, (*progress.Bar)(nil))
	if err == nil || !strings.Contains(err.Error(), "not a Go execution trace") || size != 0 {
		t.Errorf("%d bytes were unpacked, error %v", size, err)
	}
}
