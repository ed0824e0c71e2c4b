package host

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/whylate/whylate/service/cgroup"
)

// BenchmarkSample measures the sample that is taken every 20 ms.
func BenchmarkSample(b *testing.B) {
	s := stoppedSampler(b)
	for b.Loop() {
		mono, wall := readClocks()
		s.takeSample(mono, wall)
		s.lines = sampleLog{}
	}
}

// BenchmarkSecond measures the additional reads of each second.
func BenchmarkSecond(b *testing.B) {
	s := stoppedSampler(b)
	for b.Loop() {
		mono, wall := readClocks()
		s.takeSecond(mono, wall)
		s.lines = sampleLog{}
	}
}

// BenchmarkParts measures each source of a sample.
func BenchmarkParts(b *testing.B) {
	s := stoppedSampler(b)
	b.Run("stat", func(b *testing.B) {
		for b.Loop() {
			s.readStat()
		}
	})
	b.Run("cgroup", func(b *testing.B) {
		var c cgroup.Stat
		for b.Loop() {
			s.group.Sample(&c)
		}
	})
	b.Run("threads", func(b *testing.B) {
		st, _ := s.readStat()
		for b.Loop() {
			s.threads.read(int(st.threads))
		}
	})
	b.Run("snmp", func(b *testing.B) {
		for b.Loop() {
			parseRetransmitted(s.readFile(s.snmpFD))
		}
	})
	b.Run("sockets", func(b *testing.B) {
		for b.Loop() {
			s.socketPoller.poll(0, true)
		}
	})
}

// stoppedSampler returns a sampler of this process whose goroutine has ended.
func stoppedSampler(b *testing.B) *Sampler {
	s, err := Start(Options{PID: os.Getpid()})
	if err != nil {
		b.Skip(err)
	}
	unix.Close(s.stopPipe[1])
	<-s.stopped
	s.stopPipe[1] = -1
	b.Cleanup(func() { s.Stop() })
	return s
}
