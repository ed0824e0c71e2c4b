package explain

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
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

// shopServices returns two services of lab/shop, of which one calls the other, whose traces are counted when they are read.
func shopServices(t *testing.T, counter *byteCounter) (out []*Service) {
	for _, role := range []string{"stock", "audit"} {
		out = append(out, &Service{Options: Options{Name: role, Reopen: func() (io.ReadCloser, error) {
			f, err := os.Open(testprog.Recording(t, "shop/"+role+".trace"))
			return countedFile{f, counter}, err
		}}})
	}
	return out
}

// TestBeginningDecodedOnce: the part of a trace that was read in advance, to find which service calls which, is not read again.
func TestBeginningDecodedOnce(t *testing.T) {
	var counter byteCounter
	must.Have(ExplainServices(t.Context(), shopServices(t, &counter)))(t)
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
	services := shopServices(t, new(byteCounter))
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
// not recorded: none of its requests may be joined.
func TestShop(t *testing.T) {
	var measured struct {
		Truth map[string]struct{ Made, Served []shopSpan }
	}
	must.Do(t, json.Unmarshal(must.Have(os.ReadFile(filepath.Join(testprog.RecordingsDir(t), "shop", "shop.json")))(t), &measured))
	services := shopServices(t, new(byteCounter))
	rep := must.Have(ExplainServices(t.Context(), services))(t)
	find := func(spans []shopSpan, g uint64, from, to int64) string {
		for _, s := range spans {
			if s.G == g && s.Begin < to && s.End > from {
				return s.ID
			}
		}
		return ""
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
	for _, c := range calls {
		callerID := find(measured.Truth["audit"].Made, c.G, c.Start+mono, c.End+mono)
		calleeID := find(measured.Truth["stock"].Served, c.RemoteAnswer.G, c.RemoteAnswer.Start+mono, c.RemoteAnswer.End+mono)
		if callerID == "" || callerID != calleeID {
			t.Errorf("call %q is joined with %q", callerID, calleeID)
		}
	}
	if len(calls) < 8 || len(calls) > made {
		t.Errorf("%d calls are joined, of %d in the recording", len(calls), made)
	}
	segments := 0
	for i := range rep.Groups {
		for _, q := range rep.Groups[i].Slowest {
			for _, s := range q.Segments {
				if from := s.StartNS + audit.server.From + mono; s.Service == "stock" && find(measured.Truth["stock"].Served, s.ServiceGoroutine, from, from+s.DurationNS) != "" {
					segments++
				}
			}
		}
	}
	if segments == 0 {
		t.Error("no segment of a slow request has the goroutine of stock that served it")
	}
	if rep.Services[0].Name != "audit" || len(services[0].remotes.calls) != 0 {
		t.Errorf("the first service is %s; %d calls of the server", rep.Services[0].Name, len(services[0].remotes.calls))
	}
}
