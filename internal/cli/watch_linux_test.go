package cli

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
)

// A terminal is the other side of a program's terminal: it has the visible text.
type terminal struct {
	master, slave *os.File
	before        unix.Termios

	mu            sync.Mutex
	cells         [][]rune
	row, col      int
	other, hidden bool   // on the other screen; the cursor is hidden
	unknown       string // sequences that it does not know
	rest          []byte
}

// newTerminal opens a terminal of the kernel.
func newTerminal(t *testing.T, columns, lines int) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no terminals here: ", err)
	}
	t.Cleanup(func() { master.Close() })
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	must.Do(t, err)
	slave, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no terminals here: ", err)
	}
	t.Cleanup(func() { slave.Close() })
	term := &terminal{master: master, slave: slave}
	mode := must.Have(unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS))(t)
	term.before = *mode
	term.resize(t, columns, lines)
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			term.write(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	return term
}

func (t *terminal) resize(tb testing.TB, columns, lines int) {
	tb.Helper()
	t.mu.Lock()
	t.cells = make([][]rune, lines)
	for i := range t.cells {
		t.cells[i] = []rune(strings.Repeat(" ", columns))
	}
	t.mu.Unlock()
	must.Do(tb, unix.IoctlSetWinsize(int(t.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(lines), Col: uint16(columns)}))
}

var sequence = regexp.MustCompile(`^\x1b\[([?0-9;]*)([A-Za-z])`)

// write interprets a program's output: moving, erasing, modes, colours, and letters of one column.
func (t *terminal) write(data []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rest = append(t.rest, data...)
	for len(t.rest) > 0 {
		if t.rest[0] == 0x1b {
			m := sequence.FindSubmatch(t.rest)
			if m == nil {
				if len(t.rest) > 32 {
					t.unknown += fmt.Sprintf("%q ", t.rest[:8])
					t.rest = t.rest[1:]
					continue
				}
				return // the rest is yet to come
			}
			t.obey(string(m[1]), string(m[2]))
			t.rest = t.rest[len(m[0]):]
			continue
		}
		r, n := []rune(string(t.rest[:min(4, len(t.rest))]))[0], 1
		if t.rest[0] >= 0x80 {
			if n = len(string(r)); r == '\ufffd' && len(t.rest) < 4 {
				return
			}
		}
		switch {
		case r == '\r':
			t.col = 0
		case r == '\n':
			t.row++
		case t.row < len(t.cells) && len(t.cells) > 0:
			t.cells[t.row][min(t.col, len(t.cells[t.row])-1)] = r
			t.col++
		}
		t.rest = t.rest[n:]
	}
}

func (t *terminal) obey(args, command string) {
	switch {
	case command == "m":
	case command == "H":
		var row, col int
		fmt.Sscanf(args, "%d;%d", &row, &col)
		t.row, t.col = max(row-1, 0), max(col-1, 0)
	case command == "J" && args == "2":
		for _, line := range t.cells {
			for i := range line {
				line[i] = ' '
			}
		}
	case command == "K" && args == "2":
		if t.row < len(t.cells) {
			for i := range t.cells[t.row] {
				t.cells[t.row][i] = ' '
			}
		}
	case args == "?1049":
		t.other = command == "h"
	case args == "?25":
		t.hidden = command == "l"
	case args == "?7", args == "?2026":
	default:
		t.unknown += args + command + " "
	}
}

// text returns the text on the screen.
func (t *terminal) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var lines []string
	for _, l := range t.cells {
		lines = append(lines, strings.TrimRight(string(l), " "))
	}
	return strings.Join(lines, "\n")
}

// shows waits until the screen shows all of these.
func (t *terminal) shows(tb testing.TB, want ...string) string {
	tb.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		text := t.text()
		missing := ""
		for _, w := range want {
			if !strings.Contains(text, w) {
				missing = w
			}
		}
		if missing == "" {
			return text
		}
		must.False(tb, time.Now().After(end), "the screen does not show %q:\n%s", missing, text)
	}
}

func (t *terminal) press(keys string) { t.master.WriteString(keys) }

// givenBack fails unless the terminal is as it was.
func (t *terminal) givenBack(tb testing.TB) {
	tb.Helper()
	mode, err := unix.IoctlGetTermios(int(t.slave.Fd()), unix.TCGETS)
	check.True(tb, err == nil && *mode == t.before, "the terminal's mode is another one than before: %v", err)
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		t.mu.Lock()
		other, hidden, unknown := t.other, t.hidden, t.unknown
		t.mu.Unlock()
		if !other && !hidden && unknown == "" {
			return
		}
		if time.Now().After(end) {
			tb.Errorf("the other screen %v, the cursor hidden %v, sequences %q", other, hidden, unknown)
			return
		}
	}
}

// onTerminal starts the command as a separate process on a terminal.
func onTerminal(t *testing.T, term *terminal, dir string, env []string, args ...string) *exec.Cmd {
	t.Helper()
	self := must.Have(os.Executable())(t)
	cmd := exec.Command(self, args...)
	cmd.Args[0] = "whylate" // the test's main takes the command's name for the command
	cmd.Dir, cmd.Stdin, cmd.Stdout = dir, term.slave, term.slave
	cmd.Env = append(append(os.Environ(), "TERM=xterm", "TMPDIR="+dir, "NO_COLOR=1", "CI="), env...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	must.Do(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Logf("standard error: %s", errs.String())
		}
	})
	return cmd
}

// TestWatchTerminal acts like a user: watches, explains, saves, compares, resizes, and ends the program by key and by signal.
func TestWatchTerminal(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a process and waits for looks")
	}
	trace := testprog.Service(t, "lock-network").Trace
	s := serveRecorded(t, trace, nil)
	host := strings.TrimPrefix(s.URL, "http://")
	for _, c := range []struct {
		name string
		end  func(*terminal, *exec.Cmd)
		want int // exit status
	}{
		{"q", func(term *terminal, _ *exec.Cmd) { term.press("q") }, ExitOK},
		{"ctrl-c", func(term *terminal, _ *exec.Cmd) { term.press("\x03") }, ExitOK},
		{"sigterm, twice", func(_ *terminal, cmd *exec.Cmd) {
			cmd.Process.Signal(syscall.SIGTERM)
			cmd.Process.Signal(syscall.SIGTERM)
		}, ExitOK},
		{"sighup", func(_ *terminal, cmd *exec.Cmd) { cmd.Process.Signal(syscall.SIGHUP) }, ExitOK},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			term := newTerminal(t, 100, 30)
			cmd := onTerminal(t, term, dir, nil, "watch", "--proxy", "none", "--every", "1s", "--no-host", s.URL)
			term.shows(t, host, "per s", "slow requests spent", "estimated cost", "findings", "q quit")
			if c.name == "q" {
				term.press("e")
				term.shows(t, "why ", "the last look", "back")
				term.press("Gq")
				term.press("d") // there has been another look as soon as there is a line of history
				term.shows(t, "slowest 1% of")
				term.press("d")
				term.shows(t, "the one before", "back")
				term.press("G")
				term.shows(t, "Over all looks")
				term.press("q")
				term.shows(t, "q quit")
				term.press("s")
				term.shows(t, "saved watch-")
				saved, _ := filepath.Glob(filepath.Join(dir, "watch-*.whylate"))
				check.Equal(t, len(saved), 1, "saved %q", saved)
				for _, size := range [][2]int{{40, 12}, {20, 5}, {160, 50}} {
					term.resize(t, size[0], size[1])
					term.shows(t, host[strings.IndexByte(host, ':'):], "e")
				}
				term.press("?")
				term.shows(t, "explain the last look in full")
				term.press("q")
			}
			begin := time.Now()
			c.end(term, cmd)
			err := cmd.Wait()
			if took := time.Since(begin); took > 10*time.Second { // on a machine that is busy with anything
				t.Errorf("it took %v to end", took)
			}
			if status := cmd.ProcessState.ExitCode(); status != c.want {
				t.Errorf("exit status %d, %v", status, err)
			}
			term.givenBack(t)
			if left, _ := filepath.Glob(filepath.Join(dir, "whylate-*")); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
}

// TestWatchDumb: a terminal that cannot be drawn on gets lines.
func TestWatchDumb(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a process")
	}
	s := serveRecorded(t, testprog.Service(t, "lock-network").Trace, nil)
	term := newTerminal(t, 100, 30)
	cmd := onTerminal(t, term, t.TempDir(), []string{"TERM=dumb"}, "watch", "--proxy", "none", "--looks", "1", "--no-host", s.URL)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	term.shows(t, "requests, every", "p99")
	term.givenBack(t)
}

// TestWatchHangs: a service that never answers does not prevent the user from quitting.
func TestWatchHangs(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a process")
	}
	s := serveRecorded(t, nil, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	term := newTerminal(t, 80, 10)
	cmd := onTerminal(t, term, t.TempDir(), nil, "watch", "--proxy", "none", s.URL)
	term.shows(t, "taking a snapshot")
	term.press("q")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	term.givenBack(t)
}

// TestWatchGivesUp: a run with a number of polls ends even if a service is dead.
func TestWatchGivesUp(t *testing.T) {
	if testing.Short() {
		t.Skip("tries again for 15 s")
	}
	dead := serveRecorded(t, nil, nil)
	dead.Close()
	alive := serveRecorded(t, testprog.Service(t, "lock-network").Trace, nil)
	var out, complaints bytes.Buffer
	code := Run(t.Context(), []string{"watch", "--proxy", "none", "--no-host", "--plain", "--looks", "1", dead.URL, alive.URL}, strings.NewReader(""), &out, &complaints)
	check.True(t, code == 0 && strings.Contains(out.String(), "p99"), "one of two is dead: status %d, %s", code, &complaints)
	code = Run(t.Context(), []string{"watch", "--proxy", "none", "--no-host", "--plain", "--looks", "1", dead.URL}, strings.NewReader(""), &out, &complaints)
	check.True(t, code == ExitFailed && strings.Contains(complaints.String(), "no look at any service succeeded"),
		"a dead one: status %d, %s", code, &complaints)
}
