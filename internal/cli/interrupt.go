package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
)

// interruptible ends a Read when its context does, whatever the reader under it waits for. That Read is left to itself.
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

func (i *interruptible) Read(p []byte) (int, error) {
	if i.buf == nil {
		i.buf, i.done = make([]byte, readSize), make(chan readResult, 1)
	}
	if err := i.ctx.Err(); err != nil {
		return 0, err // the buffer may still be written to
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

// openWhile is openFile, but ends with ctx: opening a named pipe waits for a writer. If none comes, the open is left to itself.
func openWhile(ctx context.Context, name string) (*os.File, error) {
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist) && name != "":
		return nil, fmt.Errorf("there is no file %s: name a trace, a URL, or - for standard input", name)
	case err != nil || info.Mode()&fs.ModeNamedPipe == 0:
		return openFile(name)
	}
	return waitFor(ctx, name, func() (*os.File, error) { return openFile(name) })
}

func interruptedReading(name string) error {
	return &statusError{ExitInterrupted, errors.New("interrupted while reading " + name)}
}

// waitFor returns what get makes of the named file, or ends with ctx: opening and reading a named pipe, as shells make one of <(...), waits
// for who writes to it. Where that never comes, get is left to itself.
func waitFor[T any](ctx context.Context, name string, get func() (T, error)) (T, error) {
	type result struct {
		got T
		err error
	}
	done := make(chan result, 1)
	go func() {
		got, err := get()
		done <- result{got, err}
	}()
	select {
	case r := <-done:
		return r.got, r.err
	case <-ctx.Done():
		var none T
		return none, interruptedReading(name)
	}
}

// readOption reads a small file that a flag names, and ends with cmd's context.
func readOption[T any](cmd *cobra.Command, name string, read func(r io.Reader, name string) (T, error)) (T, error) {
	return waitFor(cmd.Context(), name, func() (got T, err error) {
		f, err := openFile(name)
		if err != nil {
			return got, err
		}
		defer f.Close()
		if got, err = read(f, name); err != nil {
			err = usage(cmd, "%v", err)
		}
		return got, err
	})
}
