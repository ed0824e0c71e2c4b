package screen

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// A Terminal is a whole terminal, with keys and the drawn lines. Close restores its former contents.
type Terminal struct {
	in, out       *os.File
	originalState *term.State
	keys          chan Key
	frames        chan []string // the next frame, until it is drawn
	stop          chan struct{}
	stopped       chan struct{}
	closeOnce     sync.Once
}

// The sequences are xterm's (invisible-island.net/xterm/ctlseqs), which current terminals support: the alternate screen, no cursor, no
// wrapping at the right edge; and the reverse.
const (
	enter = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
	leave = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
	// Between these, a terminal that supports them shows no incomplete frame.
	frameBegin = "\x1b[?2026h"
	frameEnd   = "\x1b[?2026l"
)

// CanDraw reports whether both files are a terminal that can be drawn on.
func CanDraw(in, out *os.File, getenv func(string) string) bool {
	return in != nil && out != nil && getenv("TERM") != "dumb" && term.IsTerminal(int(in.Fd())) && term.IsTerminal(int(out.Fd()))
}

// OpenTerminal switches the terminal to raw mode and starts to read keys and draw frames. Close restores it, and must be called however the program
// ends.
func OpenTerminal(in, out *os.File) (*Terminal, error) {
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, fmt.Errorf("taking the terminal: %w", err)
	}
	t := &Terminal{in: in, out: out, originalState: before, keys: make(chan Key, 16), frames: make(chan []string, 1), stop: make(chan struct{}), stopped: make(chan struct{})}
	go t.read()
	go t.write()
	return t, nil
}

// Keys returns the channel of pressed keys. It is closed when the terminal is closed.
func (t *Terminal) Keys() <-chan Key { return t.keys }

// Size returns columns and lines; 80 and 24 if they are not known.
func (t *Terminal) Size() (columns, lines int) {
	columns, lines, err := term.GetSize(int(t.out.Fd()))
	if err != nil || columns <= 0 || lines <= 0 {
		return 80, 24
	}
	return columns, lines
}

// Draw passes lines, which it keeps, to the goroutine that shows them, and drops earlier ones that were not shown yet. It does not wait: a terminal
// may be stopped, or slow.
func (t *Terminal) Draw(lines []string) {
	for {
		select {
		case t.frames <- lines:
			return
		default:
		}
		select {
		case <-t.frames:
		default:
		}
	}
}

// lastFrame is the longest wait for a terminal that accepts no output.
const lastFrame = 200 * time.Millisecond

// Close restores the terminal. It waits for a frame that is being drawn, for lastFrame at most.
func (t *Terminal) Close() {
	t.closeOnce.Do(func() {
		close(t.stop)
		select {
		case <-t.stopped:
		case <-time.After(lastFrame):
		}
		_ = term.Restore(int(t.in.Fd()), t.originalState) // an error cannot be handled
	})
}

// write draws frames, of each only the changed lines, until Close or an error of writing.
func (t *Terminal) write() {
	defer close(t.stopped)
	if _, err := io.WriteString(t.out, enter); err != nil {
		return
	}
	var shown []string
	width, height := 0, 0
	for {
		select {
		case <-t.stop:
			io.WriteString(t.out, leave)
			return
		case frame := <-t.frames:
			w, h := t.Size()
			if w != width || h != height {
				shown, width, height = nil, w, h
			}
			if _, err := io.WriteString(t.out, changes(shown, frame, shown == nil)); err != nil {
				return
			}
			shown = frame
		}
	}
}

// changes returns the control sequences and lines that turn the shown frame into another one. If all is true, the screen is erased and every line
// drawn.
func changes(shown, frame []string, all bool) string {
	var b strings.Builder
	b.WriteString(frameBegin)
	if all {
		b.WriteString("\x1b[2J")
	}
	for i := range max(len(frame), len(shown)) {
		text := ""
		if i < len(frame) {
			text = frame[i]
		}
		if !all && i < len(shown) && shown[i] == text {
			continue
		}
		// Erasing after a full line would erase its last letter.
		fmt.Fprintf(&b, "\x1b[%d;1H\x1b[0m\x1b[2K%s\x1b[0m", i+1, text)
	}
	b.WriteString(frameEnd)
	return b.String()
}

// read passes keys to t.keys until reading fails. It is not stopped at the end of the program, because a blocked read of a terminal cannot be.
func (t *Terminal) read() {
	defer close(t.keys)
	buf := make([]byte, 256)
	for {
		n, err := t.in.Read(buf)
		for _, k := range parseKeys(buf[:n]) {
			select {
			case t.keys <- k:
			case <-t.stop:
				return
			}
		}
		if err != nil {
			return
		}
	}
}
