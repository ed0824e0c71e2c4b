package tracefmt

import (
	"fmt"
	"strings"
)

// Missing returns an error that names a string or stack that g's events refer
// to without its tables defining it, nil if there is none. t must have read g.
//
// A generation without a mark at its end (before Go 1.26) is checked with it:
// the tables are written last, so a cut that leaves whole batches shows here.
func (t *Tables) Missing(g *Generation) error {
	for _, b := range g.tables {
		if EventType(g.Data[b.Off]) != EvStacks {
			continue
		}
		data := g.Data[:b.End]
		for i := b.Off + 1; i < len(data); {
			var id, count uint64
			id, i = uvarint(data, i+1)
			count, i = uvarint(data, i)
			for range count {
				var v [4]uint64
				for k := range v {
					v[k], i = uvarint(data, i)
				}
				for _, s := range v[1:3] {
					if !t.Strings.Defines(s) {
						return fmt.Errorf("stack %d names string %d, which is not there", id, s)
					}
				}
			}
		}
	}
	roles := argRoles()
	for _, b := range g.Batches {
		data := g.Data[:b.End]
		for i := b.Off; i < len(data); {
			typ := EventType(data[i])
			spec := SpecOf(typ)
			if !spec.Timed {
				break // unknown; the rest of the batch cannot be read
			}
			i++
			for k := range spec.Args {
				var v uint64
				if v, i = uvarint(data, i); i == 0 {
					return fmt.Errorf("a %s event is cut", spec.Name)
				}
				switch roles[typ][k] {
				case 's':
					if !t.Strings.Defines(v) {
						return fmt.Errorf("a %s event names string %d, which is not there", spec.Name, v)
					}
				case 'k':
					if !t.Stacks.Defines(v) {
						return fmt.Errorf("a %s event names stack %d, which is not there", spec.Name, v)
					}
				}
			}
		}
	}
	return nil
}

// argRoles returns for each event type and argument 's' for a string's id, 'k'
// for a stack's, 0 for anything else.
func argRoles() (roles [256][6]byte) {
	for t, s := range specs {
		if !s.Timed {
			continue
		}
		for k, name := range s.Args {
			switch name[strings.LastIndexByte(name, '_')+1:] {
			case "string":
				roles[t][k] = 's'
			case "stack":
				roles[t][k] = 'k'
			}
		}
	}
	return roles
}
