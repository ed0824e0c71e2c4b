package tracefmt

import "fmt"

// CheckDefined returns an error for the first string or stack that g's events refer to but its tables do not define; nil if all
// are defined. t must have read g.
//
// It checks whether a generation without an end mark (before Go 1.26) is whole: the tables are written last, so a cut between
// batches removes definitions.
func (t *Tables) CheckDefined(g *Generation) error {
	for c := range g.entries(EvStacks) {
		c.nextType()
		id := c.nextUint()
		for range c.nextUint() {
			c.nextUint() // the program counter
			for range 2 {
				if s := c.nextUint(); !t.Strings.Defines(s) {
					return fmt.Errorf("stack %d names string %d, which is not there", id, s)
				}
			}
			c.nextUint() // the line
		}
	}
	for _, b := range g.Batches {
		for c := (&cursor{data: b.Data}); c.hasMore(); {
			spec := &specs[c.nextType()]
			if !spec.Timed {
				break // an unknown type: the rest of the batch cannot be read
			}
			for _, role := range spec.roles {
				v := c.nextUint()
				switch {
				case c.failed:
					return fmt.Errorf("a %s event is cut", spec.Name)
				case role == stringRole && !t.Strings.Defines(v):
					return fmt.Errorf("a %s event names string %d, which is not there", spec.Name, v)
				case role == stackRole && !t.Stacks.Defines(v):
					return fmt.Errorf("a %s event names stack %d, which is not there", spec.Name, v)
				}
			}
		}
	}
	return nil
}
