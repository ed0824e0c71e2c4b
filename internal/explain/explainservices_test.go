package explain

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/explain/exchange"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
)

// A shopSpan is what a goroutine of a service of lab/shop logged for a call.
type shopSpan struct {
	ID         string
	G          uint64
	Begin, End int64
}

// A byteCounter counts bytes that are read.
type byteCounter struct{ n atomic.Int64 }

// A countedFile counts the bytes read from a file.
type countedFile struct {
	*os.File
	counter *byteCounter
}

func (f countedFile) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	f.counter.n.Add(int64(n))
	return n, err
}

// shopServices returns two services of lab/shop, of which one calls the other by a protocol, whose traces are counted when they are read.
func shopServices(t *testing.T, protocol string, counter *byteCounter) (out []*Service) {
	for _, role := range []string{"stock", "audit"} {
		trace := testprog.Recording(t, "shop/"+protocol+role+".trace") // here, since it may end the test, which no other goroutine can
		out = append(out, &Service{Options: Options{Name: role, Reopen: func() (io.ReadCloser, error) {
			f, err := os.Open(trace)
			return countedFile{f, counter}, err
		}}})
	}
	return out
}

// TestBeginningDecodedOnce: the part of a trace that was read in advance, to find which service calls which, is not read again.
func TestBeginningDecodedOnce(t *testing.T) {
	var counter byteCounter
	must.Have(ExplainServices(t.Context(), shopServices(t, "", &counter)))(t)
	size := 0
	for _, role := range []string{"stock", "audit"} {
		size += len(must.Have(os.ReadFile(testprog.Recording(t, "shop/"+role+".trace")))(t))
	}
	if n := counter.n.Load(); n != int64(size) {
		t.Errorf("%d bytes were read, of traces of %d bytes", n, size)
	}
}

// TestBeginningsReadTogether: the traces are read in advance at the same time, because reading one does not use all CPUs.
func TestBeginningsReadTogether(t *testing.T) {
	services := shopServices(t, "", new(byteCounter))
	var opened sync.WaitGroup
	opened.Add(len(services))
	areOpen := make(chan struct{})
	go func() {
		opened.Wait()
		close(areOpen)
	}()
	for _, s := range services {
		reopen, markOpened := s.Reopen, sync.OnceFunc(opened.Done)
		s.Reopen = func() (io.ReadCloser, error) {
			markOpened()
			select {
			case <-areOpen:
				return reopen()
			case <-time.After(time.Minute):
				return nil, errors.New("the other trace was not opened in a minute")
			}
		}
	}
	must.Have(ExplainServices(t.Context(), services))(t)
}

// TestShop compares each joined call of a client with the logs of both services (lab/shop). The server has another client, which was
// not recorded: none of its requests may be joined. A message of a stream is for several calls.
func TestShop(t *testing.T) {
	for _, protocol := range []string{"", "stream-"} {
		t.Run("protocol "+protocol, func(t *testing.T) { checkShop(t, protocol, shopServices(t, protocol, new(byteCounter))) })
	}
}

// TestShopOfTwoHosts: as if the services had run on two hosts, whose clocks differ and run at different rates, the same calls are joined,
// and the interval of the offset contains the one that both traces show on one host.
func TestShopOfTwoHosts(t *testing.T) {
	one, calls := checkShop(t, "", shopServices(t, "", new(byteCounter)))
	trace := must.Have(os.ReadFile(testprog.Recording(t, "shop/stock.trace")))(t)
	for _, c := range []hostClock{{mono: time.Hour, wall: 30 * time.Millisecond, ppm: 100}, {mono: -time.Second, wall: -30 * time.Millisecond, ppm: -100}} {
		services := shopServices(t, "", new(byteCounter))
		moved := c.applyTo(trace)
		services[0].Reopen = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(moved)), nil }
		two, n := checkShop(t, "", services)
		check.True(t, n == calls, "%+v: %d calls are joined, %d on one host", c, n, calls)
		offset, clock := one.Services[1].Clock.OffsetNS, two.Services[1].Clock
		check.True(t, clock != nil && clock.LowNS <= offset && clock.HighNS >= offset && clock.HighNS != clock.LowNS,
			"%+v: the traces begin %+v apart, %d on one host", c, clock, offset)
	}
}

// checkShop explains two services of lab/shop and returns the report and the number of calls that are joined.
func checkShop(t *testing.T, protocol string, services []*Service) (rep *report.Report, joinedCalls int) {
	t.Helper()
	var measured struct {
		Truth map[string]struct{ Made, Served []shopSpan }
	}
	must.Do(t, json.Unmarshal(must.Have(os.ReadFile(filepath.Join(testprog.RecordingsDir(t), "shop", protocol+"shop.json")))(t), &measured))
	rep = must.Have(ExplainServices(t.Context(), services))(t)
	served := func(g uint64, from, to int64) (ids []string) {
		for _, s := range measured.Truth["stock"].Served {
			if s.G == g && s.Begin < to && s.End > from {
				ids = append(ids, strings.Fields(s.ID)...)
			}
		}
		return ids
	}
	audit := services[1]
	mono := audit.preview.clock.Mono
	made := 0
	for _, span := range measured.Truth["audit"].Made {
		if span.Begin-mono > audit.server.From && span.End-mono < audit.server.To {
			made++
		}
	}
	calls := audit.remotes.calls
	joined := make(map[string]bool)
	for _, c := range calls {
		ids := served(c.RemoteAnswer.G, c.RemoteAnswer.Start+mono, c.RemoteAnswer.End+mono)
		for _, span := range measured.Truth["audit"].Made {
			if !slices.Contains(ids, span.ID) {
				continue
			}
			joined[span.ID] = true
			if span.Begin > c.RemoteAnswer.Start+mono || span.End < c.End+mono || protocol == "" && span.G != c.G || slices.ContainsFunc(calls, func(o exchange.Call) bool {
				return o.RemoteAnswer.G == c.RemoteAnswer.G && o.End > c.End && o.End+mono < span.End
			}) {
				t.Errorf("a wait until %d is joined with the request of %+v", c.End+mono, span)
			}
		}
		check.True(t, len(ids) != 0, "a wait until %d is joined with an unknown request", c.End+mono)
	}
	check.True(t, len(joined) >= 8 && len(joined) <= made, "%d calls are joined, of %d in the recording", len(joined), made)
	segments := 0
	for i := range rep.Groups {
		for _, q := range rep.Groups[i].Slowest {
			for _, s := range q.Segments {
				if from := s.StartNS + audit.server.From + mono; s.Service == "stock" && len(served(s.ServiceGoroutine, from, from+s.DurationNS)) > 0 {
					segments++
				}
			}
		}
	}
	check.True(t, segments != 0, "no segment of a slow request has the goroutine of stock that served it")
	check.True(t, rep.Services[0].Name == "audit" && len(services[0].remotes.calls) == 0,
		"the first service is %s; %d calls of the server", rep.Services[0].Name, len(services[0].remotes.calls))
	return rep, len(joined)
}
