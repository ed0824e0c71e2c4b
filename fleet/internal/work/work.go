// Package work explains the recordings of the queue, each in a child process: a hostile one costs itself only.
package work

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/report"
)

// VerbArg makes the program one of whylate's verbs; the worker starts it so.
const VerbArg = "whylate-verb"

const (
	timeout   = 2 * time.Minute // of a child
	lease     = 2 * timeout     // a recording whose worker is gone is taken again after
	tries     = 3
	maxReport = 64 << 20
)

// Run explains what waits in the queue until ctx ends.
func Run(ctx context.Context, st *store.Store, raw string, log *slog.Logger) {
	for ctx.Err() == nil {
		found, err := once(ctx, st, raw)
		if err != nil && ctx.Err() == nil {
			log.Error("work", "error", err)
		}
		if found && err == nil {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// once explains one recording, if one waits.
func once(ctx context.Context, st *store.Store, raw string) (found bool, err error) {
	r, err := st.Claim(ctx, time.Now(), lease)
	if r == nil || err != nil {
		return false, err
	}
	if r.Tries > tries {
		return true, st.Fail(ctx, r.ID, true, "its workers died")
	}
	rep, err := explain(ctx, filepath.Join(raw, r.ID))
	if ctx.Err() != nil {
		return true, ctx.Err() // the lease ends
	}
	if err != nil {
		return true, st.Fail(ctx, r.ID, r.Tries == tries, err.Error())
	}
	return true, st.Finish(ctx, r.ID, time.Now(), rep)
}

func explain(ctx context.Context, file string) (*report.Report, error) {
	out, err := Verb(ctx, "explain", "--json", "--max-memory=512MB", file)
	if err != nil {
		return nil, err
	}
	return report.ReadJSON(bytes.NewReader(out))
}

// Verb runs one of whylate's verbs in a child with bounds of time and memory, and returns what it printed.
func Verb(ctx context.Context, args ...string) ([]byte, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c := exec.CommandContext(ctx, self, append([]string{VerbArg}, args...)...)
	c.Env = []string{"TMPDIR=" + os.TempDir()}
	out, said := &bounded{max: maxReport}, &bounded{max: 4 << 10}
	c.Stdout, c.Stderr = out, said
	if err := c.Run(); err != nil {
		return nil, fmt.Errorf("explaining: %w: %s", errors.Join(ctx.Err(), err), said.Bytes())
	}
	return out.Bytes(), nil
}

// A bounded buffer takes no more than max bytes.
type bounded struct {
	bytes.Buffer
	max int
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.max {
		return 0, errors.New("too much output")
	}
	return b.Buffer.Write(p)
}
