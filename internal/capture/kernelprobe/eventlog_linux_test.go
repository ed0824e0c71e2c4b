package kernelprobe

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/internal/capture/kernelevents"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestObjectsAreOfTheSource: generate.sh was run after the last change of its source. The full gate compiles it again.
func TestObjectsAreOfTheSource(t *testing.T) {
	for line := range strings.Lines(string(must.Have(os.ReadFile("bpf/source.sha256"))(t))) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		check.Equal(t, fmt.Sprintf("%x", sha256.Sum256(must.Have(os.ReadFile("bpf/"+name))(t))), sum,
			"%s has changed: run go generate in this directory", name)
	}
}

// TestObjects: each architecture's object has the programs and the maps that the loader uses, and the records have the lengths that it
// expects.
func TestObjects(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		spec := must.Have(ebpf.LoadCollectionSpec("bpf/probe_" + arch + ".o"))(t)
		for _, p := range tracepoints {
			for _, name := range p.programs {
				if s := spec.Programs[name]; s == nil || s.Type != ebpf.Tracing || s.AttachTo != p.name || s.License != "Dual MIT/GPL" {
					t.Errorf("%s: program %s is %+v", arch, name, s)
				}
			}
		}
		for _, name := range []string{"ring", "ports", "stacks"} {
			check.True(t, spec.Maps[name] != nil, "%s: no map %s", arch, name)
		}
		for _, name := range []string{"targets", "wanted_pid", "wanted_namespace", "target_network", "enabled", "lost"} {
			check.True(t, spec.Variables[name] != nil, "%s: no variable %s", arch, name)
		}
	}
}

// rawEvent returns an event as the programs send it.
func rawEvent(time uint64, kind uint16, cpu uint16, thread uint32, fields ...int64) []byte {
	b := binary.LittleEndian.AppendUint64(nil, time)
	b = binary.LittleEndian.AppendUint16(b, kind)
	b = binary.LittleEndian.AppendUint16(b, cpu)
	b = binary.LittleEndian.AppendUint32(b, thread)
	for i := range 4 {
		v := int64(0)
		if i < len(fields) {
			v = fields[i]
		}
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	return b
}

func rawThread(thread, process, inner uint32, comm string) []byte {
	b := rawEvent(1, threadName, 0, thread)[:threadNameBytes]
	binary.LittleEndian.PutUint32(b[16:], process)
	binary.LittleEndian.PutUint32(b[20:], inner)
	copy(b[24:40], append([]byte(comm), make([]byte, 16)...))
	return b
}

func rawSocket(id uint64, family, protocol, local, remote uint16, localAddr, remoteAddr []byte) []byte {
	b := make([]byte, socketNameBytes)
	binary.LittleEndian.PutUint16(b[8:], socketName)
	for i, v := range []uint16{family, protocol, local} {
		binary.LittleEndian.PutUint16(b[10+2*i:], v)
	}
	binary.BigEndian.PutUint16(b[16:], remote)
	binary.LittleEndian.PutUint64(b[24:], id)
	copy(b[32:48], localAddr)
	copy(b[48:64], remoteAddr)
	return b
}

// rawPeer returns a UNIX socket of another process that is connected to a socket of the service.
func rawPeer(id, peer uint64) []byte {
	b := rawSocket(id, 1, 0, 0, 0, nil, nil)
	binary.LittleEndian.PutUint64(b[64:], peer)
	return b
}

// logOf returns the log of records about process 100, which is process 7 in its namespace.
func logOf(records ...[]byte) *eventLog {
	l := &eventLog{groups: map[string]uint64{}, threads: map[int32]*kernelevents.Thread{}, processes: map[int32]process{}, sockets: map[uint64]int64{}, peers: map[int32]bool{}, stacks: map[int64]int64{}}
	l.writer, _ = kernelevents.NewWriter(&l.data)
	l.setPID(100)
	for _, r := range records {
		l.add(r)
	}
	return l
}

func TestRecords(t *testing.T) {
	const connection, second = 1<<32 | 1, 2<<32 | 1
	l := logOf(
		rawThread(100, 100, 7, "orders"), rawThread(101, 100, 8, "orders"), rawThread(55, 54, 55, "worker"), rawThread(54, 54, 54, "python3"),
		rawEvent(10, 2, 1, 101, 55, 0, 55, 1<<2|2),
		rawEvent(20, 1, 0, 55, 101, 0, 0, 0),
		rawEvent(30, 1, 0, 101, 0, 2|16, 1+77, 5), // its stack has the number 77
		rawSocket(connection, 2, 6, 8080, 40000, []byte{127, 0, 0, 1}, []byte{10, 0, 0, 9}),
		rawPeer(3<<32|2, connection), rawEvent(35, 8, 0, 55, 3<<32|2, 5, 0),
		rawSocket(second, 10, 6, 80, 4, net16("::ffff:1.2.3.4"), net16("2001:db8::1")),
		rawEvent(40, 6, 0, 0, connection, 100, 1100),
		rawEvent(50, 7, 0, 101, second, 100, 0, 1100),
		rawEvent(60, 8, 0, 101, 3<<32|1, 100, 1100), // a socket without a name
		rawEvent(70, 200, 0, 0), []byte("short"),    // kinds of later programs, and damage
	)
	l.addLost(3, 1000)
	l.finishTables(func(int64) []uint64 { return nil })
	must.Do(t, l.writer.Close(l.tables))
	r := must.Have(kernelevents.NewReader(l.data.Bytes()))(t)
	got := must.Have(r.Next(nil))(t)
	want := []kernelevents.Event{
		{Time: 10, Kind: kernelevents.Wakeup, CPU: 1, Thread: 101, A: 55, C: 55, D: 1<<2 | 2},
		{Time: 20, Kind: kernelevents.Switch, Thread: 55, A: 101},
		{Time: 30, Kind: kernelevents.Switch, Thread: 101, B: 2 | 16, C: 1, D: 5},
		{Time: 35, Kind: kernelevents.Send, Thread: 55, A: 2, B: 5},
		{Time: 40, Kind: kernelevents.Arrival, A: 1, B: 100, C: 1100},
		{Time: 50, Kind: kernelevents.Read, Thread: 101, A: 3, B: 100, D: 1100},
		{Time: 1000, Kind: kernelevents.Lost, A: 3, B: 0},
	}
	check.True(t, slices.Equal(got, want), "events\n%+v\nwant\n%+v", got, want)
	if want := []kernelevents.Thread{
		{TID: 54, PID: 54, Comm: "python3", Process: "python3", IsPeer: true}, {TID: 55, PID: 54, Comm: "worker", Process: "python3", IsPeer: true},
		{TID: 100, NSTID: 7, PID: 100, Comm: "orders", Process: "orders", Own: true}, {TID: 101, NSTID: 8, PID: 100, Comm: "orders", Process: "orders", Own: true},
	}; !slices.Equal(r.Tables.Threads, want) {
		t.Errorf("threads %+v, want %+v", r.Tables.Threads, want)
	}
	if want := []kernelevents.Socket{
		{ID: 1, Protocol: "tcp", Local: "127.0.0.1:8080", Remote: "10.0.0.9:40000"}, {ID: 2, Protocol: "unix", Peer: 1}, {ID: 3, Protocol: "tcp", Local: "1.2.3.4:80", Remote: "[2001:db8::1]:4"},
	}; !slices.Equal(r.Tables.Sockets, want) {
		t.Errorf("sockets %+v, want %+v", r.Tables.Sockets, want)
	}
}

// TestBounds: a storm of events and too many of them end the recording, with a reason.
func TestBounds(t *testing.T) {
	l := logOf()
	l.lastDrain = 0
	l.events = maxRate
	l.addLost(0, 2e9)
	check.Equal(t, l.stopReason, "", "%d events in 2 s", maxRate)
	l.events += maxRate/10 + 1
	l.addLost(0, 2e9+1e8)
	check.True(t, strings.Contains(l.stopReason, "a second") && l.end == 2e9+1e8, "an event storm: %q at %d", l.stopReason, l.end)
	l = logOf()
	l.events = maxEvents - 1
	l.add(rawEvent(5, 1, 0, 1))
	l.add(rawEvent(6, 1, 0, 1))
	check.True(t, l.stopReason != "" && l.end == 5 && l.events == maxEvents, "too many events: %q at %d", l.stopReason, l.end)
}

func TestStacks(t *testing.T) {
	const symbols = "0000000000000000 A fixed_percpu_data\nffffffff81000000 T _stext\nffffffff81000100 t io_schedule\nffffffff81000100 T io_schedule_alias\n" +
		"ffffffff81000300 T filemap_fault\nffffffff81000200 d data\nffffffff81000050 T schedule\nffffffffa0000000 t later\t[module]\n\nbroken\n"
	const schedule, ioSchedule, fault = 0xffffffff81000060, 0xffffffff81000120, 0xffffffff81000308
	names := resolve(strings.NewReader(symbols), [][]uint64{{schedule, ioSchedule, fault}, {fault, 0xffffffffa0000001, 0xffffffffb0000000, 5}})
	for address, want := range map[uint64]string{schedule: "schedule", ioSchedule: "io_schedule_alias", fault: "filemap_fault", 0xffffffffa0000001: "later", 0xffffffffb0000000: "", 5: ""} {
		check.Equal(t, names[address], want, "%x", address)
	}
	stacks := namedStacks(names, [][]uint64{{schedule, ioSchedule, fault}, nil})
	check.True(t, len(stacks) == 2 && slices.Equal(stacks[0].Frames, []string{"io_schedule_alias", "filemap_fault"}) && len(stacks[1].Frames) == 0,
		"stacks %v", stacks)
	// Without CAP_SYSLOG all addresses are 0.
	if names := resolve(strings.NewReader("0000000000000000 T _stext\n0000000000000000 t schedule\n"), [][]uint64{{fault}}); len(names) != 0 {
		t.Errorf("hidden symbols give %v", names)
	}
}

func TestGroups(t *testing.T) {
	for text, want := range map[string]string{
		"12:cpuacct,cpu:/docker/x\n0::/y\n": "/docker/x", "0::/user.slice\n": "/user.slice", "3:cpuset:/a\n0::/b:c\n": "/b:c", "": "", "x\n": "",
	} {
		check.Equal(t, cpuGroup(text), want, "%q", text)
	}
	id := strings.Repeat("0123456789abcdef", 4)
	for group, want := range map[string]string{
		"/docker/" + id: id[:12], "/system.slice/docker-" + id + ".scope": id[:12],
		"/kubepods.slice/kubepods-pod1.slice/cri-containerd-" + id + ".scope": id[:12], "/kubepods/pod1/" + id + "/inner": id[:12], "/user.slice": "", "/": "", "relative": "",
	} {
		check.Equal(t, containerID(group), want, "%s is in container", group)
	}
}

// TestWarnings: what a host refuses is listed with the answers that stay inferred.
func TestWarnings(t *testing.T) {
	p := &Probe{log: logOf()}
	for i := range tracepoints {
		p.programs = append(p.programs, bundle.KernelProgram{Name: tracepoints[i].name, IsAttached: true})
	}
	if w := p.warnings(); len(w) != 0 {
		t.Errorf("nothing is missing: %v", w)
	}
	for i := range p.programs {
		if slices.Contains([]string{"sk_data_ready", "sock_recv_length", "sched_waking"}, p.programs[i].Name) {
			p.programs[i].IsAttached, p.programs[i].Reason = false, "no such tracepoint"
		}
	}
	p.log.lost, p.log.end, p.log.stopReason, p.log.hasUnnamedStacks = 5, 3e9, "there were too many", true
	var text bytes.Buffer
	for _, w := range p.warnings() {
		check.True(t, w.Code == WarnKernel && !strings.Contains(w.Text, "\n"), "%+v", w)
		fmt.Fprintln(&text, w.Text)
	}
	for _, want := range []string{"sk_data_ready, sock_recv_length (no such tracepoint)", "when bytes arrived; which bytes", "end 3s after their start: there were too many", "5 of 5 kernel events were lost", "CAP_SYSLOG"} {
		check.True(t, strings.Contains(text.String(), want), "no %q in\n%s", want, &text)
	}
	check.False(t, strings.Contains(text.String(), "sched_waking"), "a detail is a warning:\n%s", &text)
}

func TestRefusal(t *testing.T) {
	if err := explainRefusal(io.ErrUnexpectedEOF); err != io.ErrUnexpectedEOF {
		t.Error(err)
	}
	refused := fmt.Errorf("creating a map: %w", unix.EPERM)
	err := explainRefusal(refused)
	if missing := host.MissingBPFCapabilities(); len(missing) > 0 != strings.Contains(err.Error(), "CAP_") || len(missing) == 0 && !errors.Is(err, unix.EPERM) {
		t.Errorf("%v; missing are %v", err, missing)
	}
}
