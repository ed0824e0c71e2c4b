package check

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/whylate/whylate/service"
	"github.com/whylate/whylate/service/flight"
	"github.com/whylate/whylate/service/mark"
	"github.com/whylate/whylate/service/probe"
	"github.com/whylate/whylate/service/tune"
)

// clockChecks set the machine's clock, or suspend the machine, under a service with everything that service.Start starts. The
// service must measure by a clock that cannot be set.
func clockChecks() []Check {
	return []Check{
		{Name: "clock/back-an-hour", Run: func(_ *Env, t *T) { clockJumps(t, -time.Hour) }},
		{Name: "clock/forward-a-day", Run: func(_ *Env, t *T) { clockJumps(t, 24*time.Hour) }},
		{Name: "clock/suspended", Run: func(_ *Env, t *T) { suspended(t) }},
	}
}

// A clocked is a service whose clock is set.
type clocked struct {
	t       *T
	s       *service.Service
	dir     string
	mu      sync.Mutex
	freezes []probe.Freeze
	arrived []string
	refuse  int // as many requests of the uploader are answered 503
}

// perHour is how many recordings a clocked keeps in an hour.
const perHour = 4

func newClocked(t *T) *clocked {
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil || !strings.Contains(string(line), "whylate.layout=") {
		t.Skipf("the clock of this machine is not this check's to set")
	}
	if err := loopback(); err != nil {
		t.Fatalf("no loopback: %v", err)
	}
	c := &clocked{t: t}
	if c.dir, err = os.MkdirTemp("", "clock"); err != nil {
		t.Fatalf("%v", err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("%v", err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(c.collect)}
	go srv.Serve(ln)
	c.s = service.Start(service.Options{
		Tune:  &tune.Options{Interval: 50 * time.Millisecond},
		Probe: probe.Options{OnFreeze: c.froze},
		Flight: &flight.Options{
			Dir: c.dir, Slow: 200 * time.Millisecond, Factor: -1, Tail: 50 * time.Millisecond, Gap: time.Second, Freeze: time.Minute, PerHour: perHour, PerDay: perHour,
			MinAge: 2 * time.Second, Budget: -1, MaxDisk: 1, Upload: &flight.UploadOptions{URL: "http://" + ln.Addr().String()},
		},
		Logger: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(func() {
		c.s.Stop()
		_ = srv.Close()
		_ = os.RemoveAll(c.dir)
	})
	if f := c.s.Flight(); f == nil || !f.State().Recording {
		t.Fatalf("nothing is recorded: %+v", f.State())
	}
	return c
}

func (c *clocked) froze(f probe.Freeze) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.freezes = append(c.freezes, f)
}

func (c *clocked) collect(w http.ResponseWriter, q *http.Request) {
	_, _ = io.Copy(io.Discard, q.Body)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refuse > 0 {
		c.refuse--
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	c.arrived = append(c.arrived, q.Header.Get("Whylate-Recording-Name"))
	w.WriteHeader(http.StatusCreated)
}

// slow does one slow request, and reports whether a recording of it was kept and
// arrived.
func (c *clocked) slow(name string) (arrived bool) {
	c.mu.Lock()
	before := len(c.arrived)
	c.mu.Unlock()
	stored := c.s.Flight().State().Kept
	_ = mark.Do(context.Background(), name, func(context.Context) error { time.Sleep(300 * time.Millisecond); return nil })
	arrivals := func() int { c.mu.Lock(); defer c.mu.Unlock(); return len(c.arrived) }
	for range 200 {
		if st := c.s.Flight().State(); st.Kept > stored && arrivals() > before {
			return true
		} else if st.Kept == stored && st.Missed[flight.KindSlow] > 0 {
			return false
		}
		time.Sleep(100 * time.Millisecond)
	}
	return false
}

// sound checks the service's results after its clock was set. began is a reading of a clock that cannot be set.
func (c *clocked) sound(began time.Time) {
	t := c.t
	for range 100 { // the answer to the last request is on its way
		if c.s.Flight().State().Upload.Waiting == 0 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	took := time.Since(began)
	var p probe.Snapshot
	c.s.Probe().Snapshot(&p)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.freezes {
		if f.Likely > took {
			t.Errorf("a freeze of %v in %v", f.Likely, took)
		}
	}
	if p.FreezeTime > took || time.Duration(p.Ticks) > took/time.Millisecond*2 {
		t.Errorf("in %v the probe has seen %v of freezes, %d ticks", took, p.FreezeTime, p.Ticks)
	}
	st := c.s.Flight().State()
	if st.Failed != 0 || st.LastError != "" || !st.Recording || st.Cost < 0 || st.OwnCost < 0 || st.OwnCost > 0.5 || st.Upload.Waiting != 0 {
		t.Errorf("the recorder says %+v, %+v", st, st.Upload)
	}
	ts := c.s.Tuner().State()
	if d := time.Since(ts.Time); d < 0 || d > took {
		t.Errorf("the tuner's last look was %v ago", d)
	}
	t.Logf("%d recordings kept, %d arrived, %d freezes of %v in %v", st.Kept, len(c.arrived), len(c.freezes), p.FreezeTime, took)
}

func clockJumps(t *T, by time.Duration) {
	c := newClocked(t)
	began := time.Now()
	if !c.slow("before") {
		t.Fatalf("before the clock is set nothing is kept: %+v", c.s.Flight().State())
	}
	c.mu.Lock()
	c.refuse = 2
	c.mu.Unlock()
	set := func(by time.Duration) {
		at := time.Now().Add(by)
		tv := syscall.NsecToTimeval(at.UnixNano())
		if err := syscall.Settimeofday(&tv); err != nil {
			t.Fatalf("setting the clock: %v", err)
		}
		if d := time.Now().Round(0).Sub(at.Round(0)); d < 0 || d > time.Minute {
			t.Fatalf("the clock is %v off what it was set to", d)
		}
	}
	time.Sleep(1100 * time.Millisecond) // the gap
	set(by)
	t.Cleanup(func() { set(-by) })
	c.mu.Lock()
	earlier := len(c.freezes)
	c.mu.Unlock()
	// It is kept at once, under the new time, and arrives although the collector
	// wants it later: no wait is an hour longer.
	if !c.slow("after") {
		t.Errorf("after the clock was set nothing is kept, or it does not arrive: %+v, %+v", c.s.Flight().State(), c.s.Flight().State().Upload)
	}
	if last, want := c.s.Flight().State().Last, "flight-"+time.Now().UTC().Format("20060102T15"); !strings.HasPrefix(last, want) && !strings.HasPrefix(last, "flight-"+time.Now().Add(-time.Minute).UTC().Format("20060102T15")) {
		t.Errorf("the recording is called %s, the hour is %s", last, want)
	}
	// Of one kind one is left on the disk: the newest.
	if files, _ := filepath.Glob(filepath.Join(c.dir, "*")); len(files) == 0 || len(files) > 2 || !strings.Contains(fmt.Sprint(files), strings.TrimSuffix(c.s.Flight().State().Last, ".whylate")) {
		t.Errorf("on the disk are %q, the last one is %s", files, c.s.Flight().State().Last)
	}
	// A day that has not passed fills no bucket, an hour that comes again empties none.
	for i := range perHour - 2 {
		time.Sleep(1100 * time.Millisecond)
		if !c.slow("more") {
			t.Errorf("recording %d of %d in an hour is not kept: %+v", i+3, perHour, c.s.Flight().State())
		}
	}
	time.Sleep(1100 * time.Millisecond)
	if c.slow("too many") {
		t.Errorf("%d recordings are kept in an hour, of %d", c.s.Flight().State().Kept, perHour)
	}
	c.sound(began)
	// A freeze that is seen now has the time of now.
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.freezes[min(earlier+1, len(c.freezes)):] { // the first may have begun before
		if d := time.Now().Round(0).Sub(f.End.Round(0)); d.Abs() > time.Since(began) {
			t.Errorf("of %d freezes one ended %v ago", len(c.freezes)-earlier, d)
		}
	}
}

// suspended lets the machine sleep for some seconds: for a service no time has
// passed.
func suspended(t *T) {
	c := newClocked(t)
	const asleep = 15
	began := time.Now()
	if !c.slow("before") {
		t.Fatalf("before it sleeps nothing is kept: %+v", c.s.Flight().State())
	}
	time.Sleep(1100 * time.Millisecond)
	alarm := "/sys/class/rtc/rtc0/wakealarm"
	state, err := os.ReadFile("/sys/power/state")
	if err != nil || os.WriteFile(alarm, []byte("0"), 0) != nil {
		t.Skipf("this kernel does not sleep, or has no alarm: %v", err)
	}
	surroundings := "freeze"
	if strings.Contains(string(state), "mem") {
		surroundings = "mem"
	}
	if err := os.WriteFile(alarm, fmt.Appendf(nil, "+%d", asleep), 0); err != nil {
		t.Skipf("the alarm cannot be set: %v", err)
	}
	before, wall := time.Now(), time.Now().Round(0)
	if err := os.WriteFile("/sys/power/state", []byte(surroundings), 0); err != nil {
		t.Skipf("it does not sleep (%s of %q): %v", surroundings, state, err)
	}
	passed, slept := time.Since(before), time.Now().Round(0).Sub(wall)
	t.Logf("%s: %v by the wall, %v by the clock that is not set", surroundings, slept, passed)
	if slept-passed < 3*time.Second { // a busy machine takes long to fall asleep
		t.Skipf("the machine was not asleep")
	}
	if !c.slow("after") {
		t.Errorf("after it slept nothing is kept: %+v, %+v", c.s.Flight().State(), c.s.Flight().State().Upload)
	}
	c.sound(began)
}

// loopback brings the machine's own network up.
func loopback() error {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	var ifreq struct {
		name  [16]byte
		flags uint16
		_     [22]byte
	}
	copy(ifreq.name[:], "lo")
	ifreq.flags = syscall.IFF_UP | syscall.IFF_RUNNING
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.SIOCSIFFLAGS, uintptr(unsafe.Pointer(&ifreq))); errno != 0 {
		return errno
	}
	return nil
}
