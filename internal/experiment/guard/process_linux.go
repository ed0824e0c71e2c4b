package guard

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// A Process is a command under a guard. Only one goroutine may call its methods.
type Process struct {
	PID int

	guard    *exec.Cmd
	stdin    io.Closer
	events   chan event
	readers  sync.WaitGroup // goroutines that read the guard's output
	exitText string         // how the command ended; empty while unknown
}

// Start starts a command under a guard. Guard is a command that calls Run with its standard streams. A
// separate goroutine passes each line that the command prints to onLine, without its line end and cut
// at 8 KiB. The caller must call Stop.
func Start(guard *exec.Cmd, c Command, onLine func(line string)) (*Process, error) {
	p := &Process{guard: guard, events: make(chan event, 2)}
	// A separate session: an interrupt on the terminal must reach the caller only, which ends the guard by closing its input.
	guard.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	stdin, err := guard.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("starting a guard: %w", err)
	}
	p.stdin = stdin
	stdout, err := guard.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting a guard: %w", err)
	}
	stderr, err := guard.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("starting a guard: %w", err)
	}
	if err := guard.Start(); err != nil {
		return nil, fmt.Errorf("starting a guard: %w", err)
	}
	p.readers.Go(func() {
		defer close(p.events)
		dec := json.NewDecoder(stdout)
		for {
			var e event
			if dec.Decode(&e) != nil {
				return
			}
			select {
			case p.events <- e:
			default: // a guard sends at most two
			}
		}
	})
	p.readers.Go(func() { readLines(stderr, onLine) })
	if err := json.NewEncoder(stdin).Encode(c); err != nil {
		return nil, errors.Join(fmt.Errorf("telling the guard what to start: %w", err), p.Stop())
	}
	select {
	case e, ok := <-p.events:
		switch {
		case !ok:
			err = errors.New("the guard ended before it started the command")
		case e.Error != "":
			err = errors.New(e.Error)
		default:
			p.PID = e.PID
			return p, nil
		}
	case <-time.After(20 * time.Second):
		err = errors.New("the guard does not answer")
	}
	return nil, errors.Join(err, p.Stop())
}

// readLines passes each line to onLine, without its line end and cut at 8 KiB, until the end of r or an error.
func readLines(r io.Reader, onLine func(string)) {
	in := bufio.NewReaderSize(r, 8<<10)
	for {
		b, long, err := in.ReadLine()
		if err != nil {
			return
		}
		line := string(b)
		for long && err == nil {
			_, long, err = in.ReadLine()
		}
		onLine(line)
	}
}

// ExitText returns how the command ended, "" while it runs.
func (p *Process) ExitText() string {
	select {
	case e, ok := <-p.events:
		if ok {
			p.exitText = e.Exit
		} else if p.exitText == "" {
			p.exitText = "its guard was killed"
		}
	default:
	}
	return p.exitText
}

// PIDs returns the processes of the command and their descendants.
func (p *Process) PIDs() []int { return Descendants(p.guard.Process.Pid) }

// Stop kills the command and its descendants and returns when all have ended, after 20 s at most. An error means that the guard failed or had to be
// killed.
func (p *Process) Stop() error {
	p.stdin.Close()
	kill := time.AfterFunc(20*time.Second, func() { _ = p.guard.Process.Kill() })
	defer kill.Stop()
	p.readers.Wait() // all writers have closed the pipes
	if err := p.guard.Wait(); err != nil {
		return fmt.Errorf("stopping the command: its guard: %w", err)
	}
	return nil
}
