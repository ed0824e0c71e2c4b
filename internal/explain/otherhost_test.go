package explain

import (
	"bytes"
	"encoding/binary"
	"time"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A hostClock is how the clocks of another host differ from those of the host of a recording.
type hostClock struct {
	mono, wall time.Duration // ahead of this host's, when the recording begins
	ppm        float64       // how much faster it runs
}

// applyTo returns a trace as the other host would have recorded it: only the batches that hold a generation's clocks and the frequency of
// its timestamps change (runtime/tracetime.go, traceSyncBatch).
func (c hostClock) applyTo(trace []byte) []byte {
	in := bytes.NewReader(trace)
	out := make([]byte, 16, len(trace)) // the header
	_, _ = in.Read(out)
	first := uint64(0) // time of the first snapshot
	for in.Len() > 0 {
		kind, _ := in.ReadByte()
		out = append(out, kind)
		for range 3 { // generation, thread, time
			v, _ := binary.ReadUvarint(in)
			out = binary.AppendUvarint(out, v)
		}
		size, _ := binary.ReadUvarint(in)
		events := make([]byte, size)
		_, _ = in.Read(events)
		if size > 0 && tracefmt.EventType(events[0]) == tracefmt.EvSync {
			events = c.moveSync(events, &first)
		}
		out = append(binary.AppendUvarint(out, uint64(len(events))), events...)
	}
	return out
}

func (c hostClock) moveSync(events []byte, first *uint64) (moved []byte) {
	faster := 1 + c.ppm/1e6
	for in := bytes.NewReader(events); in.Len() > 0; {
		kind, _ := in.ReadByte()
		moved = append(moved, kind)
		args := make([]uint64, map[tracefmt.EventType]int{tracefmt.EvFrequency: 1, tracefmt.EvClockSnapshot: 4}[tracefmt.EventType(kind)])
		for i := range args {
			args[i], _ = binary.ReadUvarint(in)
		}
		switch tracefmt.EventType(kind) {
		case tracefmt.EvFrequency:
			args[0] = uint64(float64(args[0]) / faster)
		case tracefmt.EvClockSnapshot: // units since the batch, monotonic ns, s and ns of the wall clock
			if *first == 0 {
				*first = args[1]
			}
			ahead := time.Duration(float64(args[1]-*first) * (faster - 1))
			wall := time.Unix(int64(args[2]), int64(args[3])).Add(c.wall + ahead)
			args[1], args[2], args[3] = args[1]+uint64(c.mono+ahead), uint64(wall.Unix()), uint64(wall.Nanosecond())
		}
		for _, v := range args {
			moved = binary.AppendUvarint(moved, v)
		}
	}
	return moved
}
