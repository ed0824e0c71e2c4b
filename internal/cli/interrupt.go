package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/whylate/whylate/internal/cli/command"
)

// An interruptible ends a Read when its context ends, whatever its reader waits for. The reader's call continues in its
// goroutine.
type interruptible struct {
	ctx  context.Context
	r    io.Reader
	buf  []byte
	done chan readResult
}

type readResult struct {
	n   int
	err error
}

// Read reads from the reader, which may block; it returns the error of ctx as soon as that ends. At most readSize bytes are
// read at once.
func (i *interruptible) Read(p []byte) (int, error) {
	if i.buf == nil {
		i.buf, i.done = make([]byte, readSize), make(chan readResult, 1)
	}
	if err := i.ctx.Err(); err != nil {
		return 0, err // the earlier call may still write to the buffer
	}
	buf := i.buf[:min(len(p), len(i.buf))]
	go func() {
		n, err := i.r.Read(buf)
		i.done <- readResult{n, err}
	}()
	select {
	case r := <-i.done:
		return copy(p, buf[:r.n]), r.err
	case <-i.ctx.Done():
		return 0, i.ctx.Err()
	}
}

// openWhile is openFile, but ends with ctx: opening a named pipe waits for a writer. If there is none, the call continues in
// its goroutine.
func openWhile(ctx context.Context, name string) (*os.File, error) {
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist) && name != "":
		return nil, fmt.Errorf("there is no file %s: name a trace, a URL, or - for standard input", name)
	case err != nil || info.Mode()&fs.ModeNamedPipe == 0:
		return command.OpenFile(name)
	}
	return command.WaitFor(ctx, name, func() (*os.File, error) { return command.OpenFile(name) })
}
