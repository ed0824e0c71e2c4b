package explain

import (
	"bufio"
	"errors"
	"io"

	"github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/internal/explain/hostjoin"
)

// hostSamples are the host samples that accompany a trace. All its readings share them.
type hostSamples struct {
	samples *host.Samples // nil if there are none
	err     error
}

// load reads the samples. An empty input counts as none.
func (h *hostSamples) load(source io.Reader) {
	if source == nil {
		return
	}
	r := bufio.NewReader(source)
	if _, err := r.Peek(1); !errors.Is(err, io.EOF) {
		h.samples, h.err = host.Read(r)
	}
}

func (r *reading) hostWindow() hostjoin.Window {
	snapshot, snapshotTime := r.process.Clock()
	return hostjoin.Window{Start: r.pass.Start, End: r.pass.End, Snapshot: snapshot, SnapshotTime: snapshotTime}
}
