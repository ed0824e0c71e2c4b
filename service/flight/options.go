package flight

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/whylate/whylate/service/redact"
)

// Options configure a recorder. The zero value of each field means its default, which
// is given at the field.
type Options struct {
	// Dir is the directory for recordings. It is created, and belongs to this process
	// alone. Empty means whylate-flight in os.TempDir, or no directory if Sink is set.
	Dir string
	// MaxDisk limits the size of all recordings in Dir: 256 MiB. The oldest are deleted
	// first, but the newest of each kind of trigger stays.
	MaxDisk int64
	// Sink, if set, receives every recording that is kept: its name and the .whylate
	// file. It runs on its own goroutine, and the next recording is kept after it
	// returns. Stop cancels ctx and waits five seconds for Sink. State reports its
	// errors and panics, and the recorder continues.
	Sink func(ctx context.Context, name string, recording io.Reader) error

	// A marked request that takes longer than Slow is slow; 0 turns this off.
	Slow time.Duration
	// A marked request is unusual if it takes longer than Factor times its route's p99
	// of the last minutes, and longer than MinUnusual. Routes with fewer than a hundred
	// requests are not judged. The defaults are 4 and 10 ms; a negative Factor turns
	// this off.
	Factor     float64
	MinUnusual time.Duration
	// Share triggers if this share of one second's marked requests is slow or unusual,
	// and at least ten of them; 0 turns this off.
	Share float64
	// Latency triggers if one in a hundred goroutines waits longer than this for a P,
	// Goroutines if the process has more, and GC if garbage collection takes a larger
	// share of the CPU time used. Each is judged every second; 0 turns it off.
	Latency    time.Duration
	Goroutines int
	GC         float64
	// Freeze is the shortest freeze that OnFreeze keeps: 50 ms. Shorter ones are
	// frequent on a machine shared with other processes.
	Freeze time.Duration

	// Tail is how long the recorder waits after a trigger before it takes the snapshot:
	// 200 ms. Each further trigger restarts the wait, up to five times Tail in all. Then
	// the snapshot waits for marked requests that are still running: at most half of
	// MinAge, and never so long that the first trigger's beginning is overwritten.
	Tail time.Duration
	// Gap is the shortest time between two recordings of the same class: 1 minute. The
	// classes are requests, freezes, latency, goroutines and GC.
	Gap time.Duration
	// PerHour and PerDay limit the number of recordings: 6 and 48. Half of both is
	// reserved for requests. KindAsked does not count. Negative means no limit.
	PerHour, PerDay int

	// MinAge is how far back a recording should reach: 10 s. MaxBytes is how much memory
	// the runtime's flight recorder should use: 10 MiB. The runtime takes both as hints;
	// if they conflict, MaxBytes wins.
	MinAge   time.Duration
	MaxBytes uint64
	// Budget is what the runtime's flight recorder may cost, as a share of the CPUs that
	// the process may use: 0.02, which is 2 %. Negative means no limit. After ten seconds
	// above it, the recorder runs only part of the time, so that the average stays
	// within the budget; if that is less than 5 % of the time, it is off until the
	// service has less load. State reports it, and docs/flight.md says how the cost is
	// measured.
	Budget float64
	// NoHost leaves the kernel's counters out of the trace.
	NoHost bool

	// Redact says which texts are hidden before a recording is written or sent. An empty
	// Main is filled in from the build information.
	Redact redact.Options
	// Signals keep a recording, as Capture does: syscall.SIGUSR1, for example.
	Signals []os.Signal
	// Upload, if set, sends the recordings in Dir to a collector (NewUploader).
	Upload *UploadOptions
}

// setDefaults replaces zero values by the defaults. It returns an error for a value out of range and for options that contradict each other.
func (o *Options) setDefaults() error {
	if o.Slow < 0 || o.MinUnusual < 0 || o.Tail < 0 || o.Gap < 0 || o.MinAge < 0 || o.MaxDisk < 0 || o.Goroutines < 0 || o.Latency < 0 || o.Freeze < 0 {
		return errors.New("flight: a bound is negative")
	}
	if o.Share < 0 || o.Share > 1 || o.GC < 0 || o.GC > 1 {
		return errors.New("flight: Share and GC are between 0 and 1")
	}
	if err := o.Redact.Check(); err != nil {
		return err
	}
	if o.Upload != nil && o.Dir == "" && o.Sink != nil {
		return errors.New("flight: Upload needs a Dir beside the Sink")
	}
	if o.Dir == "" && o.Sink == nil {
		o.Dir = filepath.Join(os.TempDir(), "whylate-flight")
	}
	o.MaxDisk = cmp.Or(o.MaxDisk, 256<<20)
	o.Factor = cmp.Or(o.Factor, 4)
	o.MinUnusual = cmp.Or(o.MinUnusual, 10*time.Millisecond)
	o.Freeze = cmp.Or(o.Freeze, 50*time.Millisecond)
	o.Tail = cmp.Or(o.Tail, 200*time.Millisecond)
	o.Gap = cmp.Or(o.Gap, time.Minute)
	o.PerHour, o.PerDay = cmp.Or(o.PerHour, 6), cmp.Or(o.PerDay, 48)
	o.MinAge = cmp.Or(o.MinAge, 10*time.Second)
	o.MaxBytes = cmp.Or(o.MaxBytes, 10<<20)
	o.Budget = cmp.Or(o.Budget, 0.02)
	return nil
}
