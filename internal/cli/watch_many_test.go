package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestWatchTooMany watches 10,000 services: the error names the largest number and the remedy, and the command connects to
// none and uses almost no memory.
func TestWatchTooMany(t *testing.T) {
	const many, most = 10_000, 8 << 20
	listener := must.Have(net.Listen("tcp", "127.0.0.1:0"))(t)
	asked := make(chan struct{}, 1)
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			c.Close()
			select {
			case asked <- struct{}{}:
			default:
			}
		}
	}()
	args := []string{"watch", "--plain"}
	for i := range many {
		args = append(args, fmt.Sprintf("http://%s/%d", listener.Addr(), i))
	}
	var before, after runtime.MemStats
	var errs bytes.Buffer
	runtime.ReadMemStats(&before)
	status := Run(context.Background(), args, nil, io.Discard, &errs)
	runtime.ReadMemStats(&after)
	listener.Close()
	want := fmt.Sprintf("whylate: watch shows at most %d services at once, but you named %d: name those that are late, or start one watch for every %[1]d; see `whylate watch --help`\n", maxWatched, many)
	check.True(t, status == ExitUsage && errs.String() == want, "exit status %d, standard error %.300q", status, errs.String())
	if got := after.TotalAlloc - before.TotalAlloc; got > most {
		t.Errorf("it allocated %d bytes, want at most %d", got, most)
	}
	select {
	case <-asked:
		t.Error("a service was asked")
	default:
	}
}
