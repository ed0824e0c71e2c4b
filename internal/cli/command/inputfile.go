package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
)

// OpenFile opens a file for reading. Errors are one line with the name and the mistake.
func OpenFile(name string) (*os.File, error) {
	if name == "" {
		return nil, errors.New("the name of the file is empty")
	}
	f, err := os.Open(name)
	switch {
	case err == nil:
		return f, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no file %s", name)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("no permission to read %s", name)
	}
	return nil, fmt.Errorf("opening %s: %w", name, WithoutPath(err))
}

// WithoutPath returns the cause of a *fs.PathError, whose path the message already has; any other error unchanged.
func WithoutPath(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}

// InterruptedReading is the error of an interrupt while a file is read.
func InterruptedReading(name string) error {
	return Exit(ExitInterrupted, errors.New("interrupted while reading "+name))
}

// WaitFor returns what get reads from the named file, or ends with ctx. Opening and reading a named pipe, which shells
// create for <(...), waits for the process that writes to it. If that never writes, get remains blocked.
func WaitFor[T any](ctx context.Context, name string, get func() (T, error)) (T, error) {
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
		return none, InterruptedReading(name)
	}
}

// ReadOption reads a small file that a flag names by read, and ends with cmd's context.
func ReadOption[T any](cmd *cobra.Command, name string, read func(r io.Reader, name string) (T, error)) (T, error) {
	return WaitFor(cmd.Context(), name, func() (got T, err error) {
		f, err := OpenFile(name)
		if err != nil {
			return got, err
		}
		defer f.Close()
		if got, err = read(f, name); err != nil {
			err = Usage(cmd, "%v", err)
		}
		return got, err
	})
}
