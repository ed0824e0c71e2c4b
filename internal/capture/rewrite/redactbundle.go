package rewrite

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"io"
	"net/netip"
	"slices"

	"github.com/google/pprof/profile"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/internal/capture/kernelevents"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/service/redact"
)

// Redact copies a recording with the texts of the trace replaced as o demands. In a bundle it also
// replaces addresses (equal ones stay equal, loopback stays) and removes directories and labels of
// profiles, names of control groups, the URL, and the service's description of itself. Times, counters
// and names of functions stay.
//
// An error is an error of reading s or of writing w; then the output is unusable. Damage is not an
// error unless nothing can be read: the Loss and the metadata of a bundle report it.
func Redact(w io.Writer, s *Source, o redact.Options) (Loss, error) {
	o = o.WithKey()
	if err := o.Check(); err != nil {
		return Loss{}, err
	}
	if !s.isBundle() {
		truncated, _, err := redactTrace(w, s, o)
		return Loss{Truncated: truncated}, err
	}
	entries := s.readEntries()
	h := &hider{o}
	err := entries.writeBundle(w, func(w io.Writer) error {
		truncated, first, err := redactTrace(w, s, o)
		entries.loss.Truncated = entries.loss.Truncated || truncated
		if _, wall, ok := startOf(first); ok && s.Bundle == nil {
			entries.meta.Start = wall
		}
		return err
	}, func() (err error) {
		h.meta(&entries.meta)
		for _, p := range []struct {
			data *[]byte
			name string
		}{{&entries.allocs, bundle.NameAllocs}, {&entries.cpu, bundle.NameCPU}} {
			if *p.data, err = h.profile(*p.data); err != nil {
				entries.loss.Entries = append(entries.loss.Entries, p.name)
			}
		}
		entries.host, err = filterHostLines(entries.host, func(l *host.Line) bool { h.hostLine(l); return true })
		entries.rewriteKernelEvents(func(*kernelevents.Event) bool { return true }, h.kernelTables)
		return err
	})
	return entries.loss, err
}

// redactTrace writes the readable generations with their texts replaced. A generation whose texts are unreadable ends the trace, and truncated is
// true. first is the first generation without its batches.
func redactTrace(w io.Writer, s *Source, o redact.Options) (truncated bool, first *tracefmt.Generation, err error) {
	first = new(tracefmt.Generation)
	reader, err := s.newReader()
	if err != nil {
		return false, first, err
	}
	head := traceHeader(reader.Minor())
	if _, err := w.Write(head); err != nil {
		return false, first, err
	}
	var hidden bytes.Buffer
	for n := 0; ; n++ {
		g, err := reader.Next()
		if err != nil {
			if truncated, err = s.classifyError(err); err != nil {
				return false, first, err
			}
		} else {
			hidden.Reset()
			truncated = hideGeneration(&hidden, head, g.Parts, o) != nil
		}
		switch {
		case truncated && n == 0:
			return true, first, fmt.Errorf("reading %s: it has no complete generation", s.Name)
		case truncated || g == nil:
			return truncated, first, nil
		case n == 0:
			first = &tracefmt.Generation{MinTime: g.MinTime, Freq: g.Freq, Snapshot: g.Snapshot, HasSnapshot: g.HasSnapshot}
		}
		if _, err := w.Write(hidden.Bytes()[len(head):]); err != nil {
			return false, first, err
		}
		g.Release()
	}
}

// hideGeneration writes to w the redacted trace of one generation: the header of the trace, and the generation's parts.
func hideGeneration(w io.Writer, header []byte, parts [][]byte, o redact.Options) error {
	writer := redact.NewWriter(w, o)
	for _, part := range slices.Concat([][]byte{header}, parts) {
		if _, err := writer.Write(part); err != nil {
			return err
		}
	}
	return writer.Close()
}

// A hider redacts the entries of a bundle other than the trace.
type hider struct{ redact.Options }

// meta removes the URL, the service's attributes (except the module) and texts of triggers from the metadata, and redacts
// routes, host facts and warnings.
func (h *hider) meta(m *bundle.Meta) {
	m.URL, m.Service = "", nil
	h.facts(m.Host)
	h.warnings(m.Warnings)
	if f := m.Flight; f != nil {
		for _, t := range append([]*bundle.Trigger{&f.Reason}, pointers(f.OtherTriggers)...) {
			t.Text, t.Route = "", h.Route(t.Route)
		}
		service := map[string]string{}
		if module := f.Service["module"]; module != "" {
			service["module"] = module // decides which functions are the service's code; the functions' names contain it anyway
		}
		f.Service = service
	}
}

// pointers returns pointers to the elements of a list.
func pointers[T any](list []T) []*T {
	out := make([]*T, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	return out
}

// facts removes names. The limits stay.
func (h *hider) facts(f *bundle.Host) {
	if f != nil {
		f.PID, f.QuotaFile, f.MemoryFile, f.Group = 0, "", "", ""
	}
}

// warnings keeps the codes and removes the texts, which may have names and addresses.
func (h *hider) warnings(list []bundle.Warning) {
	for i := range list {
		list[i].Text = "(left out: " + list[i].Code + ")"
	}
}

// hostLine redacts a line of the host samples in place: it removes the process id and texts, and hides addresses and names of control groups.
func (h *hider) hostLine(l *host.Line) {
	l.PID, l.Text = 0, ""
	h.facts(l.Facts)
	h.warnings(l.Warnings)
	for i := range l.Levels {
		l.Levels[i].GroupPath = fmt.Sprint("level ", l.Levels[i].Depth)
	}
	for i := range l.Sockets {
		s := &l.Sockets[i]
		s.Local, s.Remote = h.address(s.Local), h.address(s.Remote)
	}
	for i := range l.ListenAddrs {
		l.ListenAddrs[i] = h.address(l.ListenAddrs[i])
	}
}

// kernelTables replaces, in place, names of processes and control groups, process numbers and addresses. Equal ones stay equal.
func (h *hider) kernelTables(t *kernelevents.Tables) {
	processes, names := map[int32]int32{t.PID: 1}, map[string]string{"": ""}
	for i := range t.Threads {
		th := &t.Threads[i]
		if processes[th.PID] == 0 {
			processes[th.PID] = int32(len(processes) + 1)
		}
		th.PID = processes[th.PID]
		for _, name := range []*string{&th.Comm, &th.Process} {
			if _, ok := names[*name]; !ok {
				names[*name] = fmt.Sprint("process ", len(names))
			}
			*name = names[*name]
		}
	}
	t.PID, t.NSPID = 1, 0
	for i := range t.Cgroups {
		t.Cgroups[i].Path, t.Cgroups[i].Container = fmt.Sprint("group ", i+1), ""
	}
	for i := range t.Sockets {
		s := &t.Sockets[i]
		s.Local, s.Remote = h.address(s.Local), h.address(s.Remote)
	}
}

// address returns an address with port whose address is replaced by one of 2001:db8::/32, which RFC 3849 reserves for documentation. Equal addresses
// stay equal, and loopback and unspecified ones stay as they are. It is "" for a text that is no address with port.
func (h *hider) address(text string) string {
	a, err := netip.ParseAddrPort(text)
	if err != nil {
		return ""
	}
	ip := a.Addr().Unmap()
	if ip.IsLoopback() || ip.IsUnspecified() {
		return text
	}
	sum := hmac.New(sha256.New, h.Key)
	sum.Write(ip.AsSlice())
	out := [16]byte{0x20, 0x01, 0x0d, 0xb8}
	copy(out[4:], sum.Sum(nil))
	return netip.AddrPortFrom(netip.AddrFrom16(out), a.Port()).String()
}

// profile returns a gzipped pprof profile without files, labels and comments, with the same functions and numbers; nil for an empty one.
func (h *hider) profile(data []byte) ([]byte, error) {
	if len(data) == 0 {
		return nil, nil
	}
	p, err := profile.ParseData(data)
	if err != nil {
		return nil, fmt.Errorf("reading a profile: %w", err)
	}
	for _, f := range p.Function {
		f.Filename = h.File(f.Filename, f.Name)
	}
	for _, m := range p.Mapping {
		m.File, m.BuildID, m.KernelRelocationSymbol = "", "", ""
	}
	for _, s := range p.Sample {
		s.Label, s.NumLabel, s.NumUnit = nil, nil, nil
	}
	p.Comments, p.DocURL, p.DropFrames, p.KeepFrames = nil, "", "", ""
	var out bytes.Buffer
	if err := p.Write(&out); err != nil {
		return nil, fmt.Errorf("writing a profile: %w", err)
	}
	return out.Bytes(), nil
}
