// Package casegen writes the decoder of threads' streams: each case of its switch reads the arguments of its own events.
//
// One loop that reads as many arguments as a table says, and a switch behind it, decide twice what the event is, and that costs as
// much as the decoding: with the arguments read inside the cases, an event takes two thirds of the time. Written by hand that is 60
// times the same lines, each of which must fit the event table; so they are made from it.
package casegen

import (
	"bytes"
	"fmt"
	"go/format"
	"strings"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// args are the variables that take an event's arguments behind dt, in order.
var args = []string{"x", "y", "z", "u"}

// Generate returns the Go source that a template stands for. The template is Go, in which a line "READ v" reads the number at
// data[i] into v, a line "PUT stack z" makes the event's record with its stack (or PUT peer x, PUT both x z bits, PUT none), and after
// a line "case tracefmt.EvA, tracefmt.EvB:" come the reads of the arguments of these events.
func Generate(template []byte) ([]byte, error) {
	var out bytes.Buffer
	out.WriteString("// Code generated from chain.go.in by internal/trace/timeline/casegen (go test ./internal/trace/timeline -run Generated -update); DO NOT EDIT.\n\n")
	for line := range strings.Lines(string(template)) {
		text := strings.TrimSpace(line)
		if v, ok := strings.CutPrefix(text, "READ "); ok {
			read(&out, v)
			continue
		}
		if what, ok := strings.CutPrefix(text, "PUT "); ok {
			if err := put(&out, what); err != nil {
				return nil, err
			}
			continue
		}
		out.WriteString(line)
		list, ok := strings.CutPrefix(text, "case tracefmt.Ev")
		if !ok {
			continue
		}
		fewest, most := len(args), 0
		for _, name := range strings.Split(strings.TrimSuffix(list, ":"), ", tracefmt.Ev") {
			t, ok := tracefmt.TypeByName(name)
			if spec := tracefmt.SpecOf(t); !ok || !spec.Timed || len(spec.Args)-1 > len(args) {
				return nil, fmt.Errorf("the template reads %s, which is no event of a thread's stream with at most %d arguments", name, len(args))
			} else {
				fewest, most = min(fewest, len(spec.Args)-1), max(most, len(spec.Args)-1)
			}
		}
		for k := range most {
			if k >= fewest {
				fmt.Fprintf(&out, "if args > %d {\n", k+2) // args counts the type and dt
			}
			read(&out, args[k])
			if k >= fewest {
				out.WriteString("}\n")
			}
		}
	}
	source, err := format.Source(out.Bytes())
	if err != nil {
		return nil, fmt.Errorf("what was generated is no Go: %w", err)
	}
	return source, nil
}

// read writes code that reads a number: those of one and two bytes in place, because the compiler does not inline a function that
// does that.
func read(out *bytes.Buffer, v string) {
	fmt.Fprintf(out, `if c := data[i]; c < 0x80 {
	%[1]s = uint64(c)
	i++
} else if d := data[i+1]; d < 0x80 {
	%[1]s = uint64(c&0x7f) | uint64(d)<<7
	i += 2
} else {
	%[1]s, i = uvarintLong(data, i)
}
`, v)
}

// put writes code that makes a record: with a payload that fits, as timeline.record has it, in place, else by a call.
func put(out *bytes.Buffer, what string) error {
	kind, rest, _ := strings.Cut(what, " ")
	fits, payload, peer, stack := "far", "", "0", "0"
	switch f := strings.Fields(rest); {
	case kind == "none":
	case kind == "peer" && len(f) == 1:
		fits, payload, peer = fmt.Sprintf("uint64(%s)>>payloadBits|far", rest), rest, rest
	case kind == "stack" && rest != "":
		fits, payload, stack = fmt.Sprintf("%s>>payloadBits|far", rest), rest, rest
	case kind == "both" && len(f) == 3:
		peer, stack = f[0], f[1]
		fits = fmt.Sprintf("uint64(%s)>>(payloadBits-%s)|%s>>%[2]s|far", peer, f[2], stack)
		payload = fmt.Sprintf("uint64(%s)<<%s | %s", peer, f[2], stack)
	default:
		return fmt.Errorf("the template puts %q", what)
	}
	if payload != "" {
		payload = " | uint64(" + payload + ")"
	}
	fmt.Fprintf(out, `if %s == 0 {
	words[n] = a%s
} else {
	words[n] = w.putWide(kind(typ), t, 0, uint32(%s), uint32(%s))
}
n++
`, fits, payload, peer, stack)
	return nil
}
