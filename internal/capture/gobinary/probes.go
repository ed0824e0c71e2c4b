package gobinary

import (
	"fmt"

	"golang.org/x/arch/x86/x86asm"
)

// PushOf returns the address of the instruction that saves the frame pointer at the beginning of the function at address entry;
// name is for the error. A probe there is cheap, because the kernel emulates the instruction; the first instruction, a
// comparison, would need a single step of the CPU.
func (p *Program) PushOf(name string, entry uint64) (uint64, error) {
	const prologue = 64 // bytes; the check of the stack's size before the push is at most 30 long
	address := uint64(0)
	p.instructions(entry, prologue, func(position uint64, in x86asm.Inst) bool {
		if in.Op == x86asm.PUSH && in.Args[0] == x86asm.RBP {
			address = position
		}
		return address == 0 && in.Op != x86asm.CALL && in.Op != x86asm.RET
	})
	if address == 0 {
		return 0, fmt.Errorf("%s does not begin as compiled functions do", name)
	}
	return address, nil
}

// CallOf returns the address of the first direct call instruction by which the function at address entry calls the one at address callee; name, of
// the caller, is for the error.
func (p *Program) CallOf(name string, entry, callee uint64) (uint64, error) {
	f, ok := p.find(entry)
	if !ok {
		return 0, fmt.Errorf("%s is not in the function table", name)
	}
	address := uint64(0)
	p.instructions(entry, int(f.end-f.entry), func(position uint64, in x86asm.Inst) bool {
		if rel, ok := in.Args[0].(x86asm.Rel); ok && in.Op == x86asm.CALL && position+uint64(in.Len)+uint64(int64(rel)) == callee {
			address = position
		}
		return address == 0
	})
	if address == 0 {
		return 0, fmt.Errorf("%s does not contain the expected call", name)
	}
	return address, nil
}

// instructions calls f for each instruction in n bytes of code from address, until f returns false or one cannot be decoded.
func (p *Program) instructions(address uint64, n int, f func(position uint64, in x86asm.Inst) bool) {
	for code := p.bytes(address, n); len(code) > 0; {
		in, err := x86asm.Decode(code, 64)
		if err != nil || in.Len == 0 || !f(address, in) {
			return
		}
		code, address = code[in.Len:], address+uint64(in.Len)
	}
}
