package gobinary

import (
	"encoding/binary"
	"strings"
)

// A Frame is one call of a stack. Calls of inlined functions have frames of their own.
type Frame struct {
	PC   uint64
	Func string
	File string
	Line int

	isWrapper bool
}

// Stack returns the frames, innermost first, of the calls that a stack of return addresses contains, inlined ones included. It omits the innermost
// skip frames and those that the runtime leaves out of stacks: wrappers that the compiler created, the end of every goroutine, and runtime.main. It
// agrees with the runtime's fpunwindExpand.
func (p *Program) Stack(addresses []uint64, skip int) []Frame {
	var all []Frame
	for _, address := range addresses {
		for _, f := range p.frames(address) {
			if f.isWrapper {
				continue
			}
			if skip > 0 {
				skip--
				continue
			}
			all = append(all, f)
		}
	}
	for len(all) > 0 {
		switch all[len(all)-1].Func {
		case "runtime.goexit", "runtime.main", "runtime.mstart", "runtime.mstart1":
			all = all[:len(all)-1]
			continue
		}
		break
	}
	return all
}

// EntryStack returns the stack of one frame that the runtime's tracer gives for a new goroutine: the function that it starts with; nil if the program
// has none at address entry. Of a wrapper that the compiler created for a go statement, it is the wrapped function.
func (p *Program) EntryStack(entry uint64) []Frame {
	f, ok := p.find(entry)
	if !ok {
		return nil
	}
	values := int(f.cell(functionValueCount))
	if int(f.data[functionExtraCount]) > wrapInfo && p.goFunc != 0 {
		if info := f.cell(functionSize + 4*values + 4*wrapInfo); info != ^uint32(0) {
			if b := p.bytes(p.goFunc+uint64(info), 4); len(b) == 4 {
				if f, ok = p.find(p.textStart + uint64(binary.LittleEndian.Uint32(b))); !ok {
					return nil
				}
			}
		}
	}
	file, line := p.position(f, f.entry)
	return []Frame{{PC: f.entry + 1, Func: p.name(f.cell(functionName)), File: file, Line: line}}
}

// Indexes of a function's values and extra data: internal/abi/symtab.go.
const (
	inlineIndexTable = 2
	inlineTree       = 3
	wrapInfo         = 7
	inlinedCallSize  = 16
)

// frames returns the frames of a return address, innermost first: the calls inlined there and their function; nil if no function contains the
// address.
func (p *Program) frames(address uint64) []Frame {
	call := address - 1
	f, ok := p.find(call)
	if !ok {
		return nil
	}
	var frames []Frame
	file, line := p.position(f, call)
	for range 128 { // the runtime's limit of frames
		node := p.inlinedCall(f, call)
		if node == nil {
			break
		}
		name := p.name(binary.LittleEndian.Uint32(node[4:]))
		frames = append(frames, Frame{PC: call + 1, Func: name, File: file, Line: line, isWrapper: p.isWrapper(node[0], name)})
		call = f.entry + uint64(binary.LittleEndian.Uint32(node[8:]))
		file, line = p.position(f, call)
	}
	name := p.name(f.cell(functionName))
	return append(frames, Frame{PC: call + 1, Func: name, File: file, Line: line, isWrapper: p.isWrapper(f.data[functionID], name)})
}

// isWrapper reports whether a function is a wrapper that the compiler generated: by its id in the function table (abi.FuncID),
// or, for releases whose id for wrappers is not known, by a name that ends in .gowrapN.
func (p *Program) isWrapper(id byte, name string) bool {
	if p.Layout.WrapperID >= 0 {
		return int64(id) == p.Layout.WrapperID
	}
	i := strings.LastIndex(name, ".gowrap")
	return i >= 0 && strings.Trim(name[i+len(".gowrap"):], "0123456789") == ""
}

// inlinedCall returns the entry (runtime.inlinedCall) of a function's inline tree for the innermost inlined call at the address
// of an instruction (of a frame: its return address minus 1), nil if it is in no inlined call or the tables cannot be read.
func (p *Program) inlinedCall(f function, address uint64) []byte {
	values := int(f.cell(functionValueCount))
	if p.goFunc == 0 || values <= inlineIndexTable || int(f.data[functionExtraCount]) <= inlineTree {
		return nil
	}
	index := p.value(f, f.cell(functionSize+4*inlineIndexTable), address)
	tree := f.cell(functionSize + 4*values + 4*inlineTree)
	if index < 0 || tree == ^uint32(0) {
		return nil
	}
	node := p.bytes(p.goFunc+uint64(tree)+uint64(index)*inlinedCallSize, inlinedCallSize)
	if len(node) < inlinedCallSize {
		return nil
	}
	return node
}
