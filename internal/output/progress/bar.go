// Package progress draws the progress of a task as one line of a terminal. It draws nothing on anything that is not a
// terminal.
package progress

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/output/words"
)

// State is the progress of a task: by time if Total is set, else by bytes if Size is.
type State struct {
	Label          string
	Bytes, Size    int64 // Size 0: not known
	Elapsed, Total time.Duration
	Note           string // replaces the figures if not empty
}

// Bar draws states. A nil Bar is valid and draws nothing. Methods may be called concurrently.
type Bar struct {
	mu           sync.Mutex
	w            io.Writer
	width        func() int
	color        bool
	drawnColumns int // columns of the line now
	last         time.Time
	clock        func() time.Time
	observer     func(State)
}

// WithObserver returns a bar that draws the same, and passes every state to f.
func (b *Bar) WithObserver(f func(State)) *Bar {
	if b == nil {
		return &Bar{observer: f}
	}
	return &Bar{w: b.w, width: b.width, color: b.color, clock: b.clock, observer: f}
}

// NewBar returns a bar on f if f is a terminal that can move its cursor, and the program does not run in a continuous
// integration system, whose logs keep every line. Otherwise it returns nil. getenv is os.Getenv.
func NewBar(f *os.File, getenv func(string) string) *Bar {
	if f == nil || !IsWanted(term.IsTerminal(int(f.Fd())), getenv) {
		return nil
	}
	return &Bar{w: f, color: getenv("NO_COLOR") == "", clock: time.Now, width: func() int {
		w, _, err := term.GetSize(int(f.Fd()))
		if err != nil || w <= 0 {
			return 80
		}
		return w
	}}
}

// IsWanted reports whether a bar is drawn on a stream; terminal says whether that is a terminal.
func IsWanted(terminal bool, getenv func(string) string) bool {
	ci := getenv("CI")
	return terminal && getenv("TERM") != "dumb" && (ci == "" || ci == "false" || ci == "0")
}

// interval is the shortest time between two changes of the line.
const interval = 80 * time.Millisecond

// Set passes a state to the observer and draws it, but not within interval after the last drawing. A nil bar does nothing. It may be called
// concurrently.
func (b *Bar) Set(s State) {
	if b == nil {
		return
	}
	if b.observer != nil {
		b.observer(s)
	}
	if b.w == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock()
	if b.drawnColumns > 0 && now.Sub(b.last) < interval {
		return
	}
	b.last = now
	// The last column stays free: some terminals wrap when it is written.
	line := s.line(max(b.width()-1, 0))
	n := termtext.Width(line)
	pad := strings.Repeat(" ", max(b.drawnColumns-n, 0))
	if b.color {
		line = strings.Replace(line, "[", "[\x1b[36m", 1)
		line = strings.Replace(line, "]", "\x1b[0m]", 1)
	}
	fmt.Fprint(b.w, "\r", line, pad)
	b.drawnColumns = n
}

// Clear removes the line, so that other output can follow. Set draws it again.
func (b *Bar) Clear() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.drawnColumns > 0 {
		fmt.Fprint(b.w, "\r", strings.Repeat(" ", b.drawnColumns), "\r")
		b.drawnColumns = 0
	}
}

// line formats a state in at most width columns: label, bar and figures. If they do not fit, it omits the bar first and then
// the label.
func (s State) line(width int) string {
	figures, share := s.Figures()
	line := termtext.Head(s.Label, width-termtext.Width(figures)-2)
	if line != "" {
		line += "  "
	}
	if cells := min(width-termtext.Width(line)-termtext.Width(figures)-4, 30); share >= 0 && cells >= 5 {
		full := int(share * float64(cells))
		line += "[" + strings.Repeat("=", full) + strings.Repeat(" ", cells-full) + "]  "
	}
	line += figures
	return termtext.Head(line, width)
}

// Figures returns how much is done as text, and the share of the whole, -1 if that is unknown.
func (s State) Figures() (string, float64) {
	if s.Note != "" {
		return termtext.Escape(s.Note), -1
	}
	switch {
	case s.Total > 0:
		share := min(max(float64(s.Elapsed)/float64(s.Total), 0), 1)
		return fmt.Sprintf("%.1fs of %v, %s", min(s.Elapsed, s.Total).Seconds(), s.Total, words.Bytes(s.Bytes)), share
	case s.Size > 0:
		share := min(max(float64(s.Bytes)/float64(s.Size), 0), 1)
		return fmt.Sprintf("%2.0f%% of %s", 100*share, words.Bytes(s.Size)), share
	}
	return words.Bytes(s.Bytes), -1
}

// A Reader counts the bytes read through it and shows them on a bar. It is for files, whose size is known.
type Reader struct {
	r     io.Reader
	bar   *Bar
	state State
}

// NewReader returns a Reader that shows on the bar, after label, how many of size bytes (0 if unknown) it has read; r itself if
// the bar is nil.
func NewReader(r io.Reader, bar *Bar, label string, size int64) io.Reader {
	if bar == nil {
		return r
	}
	return &Reader{r: r, bar: bar, state: State{Label: label, Size: size}}
}

// Read implements io.Reader. It clears the bar when the input ends.
func (r *Reader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	r.state.Bytes += int64(n)
	if err != nil {
		r.bar.Clear()
	} else {
		r.bar.Set(r.state)
	}
	return n, err
}
