package gobinary

import (
	"bytes"
	"debug/buildinfo"
	"debug/dwarf"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sort"
)

// ErrNotGo is wrapped by errors about files that are no program built by Go.
var ErrNotGo = errors.New("not a Go program")

// A Program is the executable file of a Go program for Linux on amd64. Addresses are those in the file: a position-independent
// program runs at other addresses, which Base maps to these.
type Program struct {
	Version string // such as "go1.26.8"
	Layout  *Layout

	file      *elf.File
	addresses map[uint64]uint64 // values of pointers that the loader writes, by address
	table     []byte            // the function table .gopclntab
	textStart uint64
	goFunc    uint64 // address of the functions' extra data; 0 if not known

	names, units, files, values, functions []byte // parts of the function table
	functionCount                          int
}

// Open reads the tables of an executable ELF file for amd64; r has to stay open while the program is used. The error wraps ErrNotGo if it is no Go
// program, else it names the missing part.
func Open(r io.ReaderAt) (*Program, error) {
	f, err := elf.NewFile(r)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotGo, err)
	}
	info, err := buildinfo.Read(r)
	if err != nil {
		return nil, fmt.Errorf("%w: it has no build information of Go", ErrNotGo)
	}
	if f.Machine != elf.EM_X86_64 {
		return nil, fmt.Errorf("the program is for %s, and only amd64 is supported", f.Machine)
	}
	p := &Program{Version: info.GoVersion, file: f}
	if p.Layout, err = layoutOf(p.Version, func() (*dwarf.Data, error) { return f.DWARF() }); err != nil {
		return nil, err
	}
	if err := p.readTable(); err != nil {
		return nil, err
	}
	return p, nil
}

// tableMagic begins the function table since Go 1.20: runtime.pcHeader.
const tableMagic = 0xfffffff1

// readTable sets the function table, its parts and textStart.
func (p *Program) readTable() error {
	var address uint64
	for _, s := range p.file.Sections {
		switch s.Name {
		case ".gopclntab", ".data.rel.ro.gopclntab":
			data, err := s.Data()
			if err != nil {
				return fmt.Errorf("reading the function table: %w", err)
			}
			p.table, address = data, s.Addr
		}
	}
	const headerSize = 72
	if len(p.table) < headerSize || binary.LittleEndian.Uint32(p.table) != tableMagic || p.table[7] != 8 {
		return errors.New("the program has no function table (.gopclntab) of a known format")
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(p.table[8+8*i:]) }
	p.functionCount, p.textStart = int(word(0)), word(2)
	parts := []*[]byte{&p.names, &p.units, &p.files, &p.values, &p.functions}
	for i, part := range parts {
		offset := word(3 + i)
		if offset > uint64(len(p.table)) {
			return errors.New("the program's function table is damaged")
		}
		*part = p.table[offset:]
	}
	if p.functionCount < 0 || p.functionCount > len(p.functions)/8 {
		return errors.New("the program's function table is damaged")
	}
	p.readModuleData(address, address+word(3))
	if p.textStart == 0 {
		for _, s := range p.symbols() {
			if s.Name == "runtime.text" {
				p.textStart = s.Value
			}
		}
	}
	if p.textStart == 0 {
		return errors.New("the start of the program's functions was not found")
	}
	return nil
}

// symbols returns the symbols of the program; none if it is stripped.
func (p *Program) symbols() []elf.Symbol {
	symbols, _ := p.file.Symbols()
	return symbols
}

// readModuleData finds the runtime's description of the program: a structure that begins with a pointer to the function table and one to its names,
// both given by their addresses. It sets goFunc and textStart from it, or leaves them if there is none. Stripped programs have no symbol for it.
func (p *Program) readModuleData(table, names uint64) {
	p.addresses = map[uint64]uint64{}
	for _, s := range p.file.Sections {
		if s.Type != elf.SHT_RELA {
			continue
		}
		data, err := s.Data()
		if err != nil {
			continue
		}
		for ; len(data) >= 24; data = data[24:] {
			if elf.R_X86_64(binary.LittleEndian.Uint32(data[8:])) == elf.R_X86_64_RELATIVE {
				p.addresses[binary.LittleEndian.Uint64(data)] = binary.LittleEndian.Uint64(data[16:])
			}
		}
	}
	check := func(start uint64) bool {
		if p.word(start) != table || p.word(start+8) != names {
			return false
		}
		if text := p.word(start + uint64(p.Layout.ModuleData.Text)); text != 0 {
			p.textStart = text
		}
		p.goFunc = p.word(start + uint64(p.Layout.ModuleData.GoFunc))
		return true
	}
	for address, value := range p.addresses {
		if value == table && check(address) {
			return
		}
	}
	var pattern [8]byte
	binary.LittleEndian.PutUint64(pattern[:], table)
	for _, s := range p.file.Sections {
		if s.Type != elf.SHT_PROGBITS || s.Flags&elf.SHF_WRITE == 0 {
			continue
		}
		data, err := s.Data()
		if err != nil {
			continue
		}
		for i := 0; ; i += 8 {
			k := bytes.Index(data[i:], pattern[:])
			if k < 0 {
				break
			}
			if i += k; i%8 == 0 && check(s.Addr+uint64(i)) {
				return
			}
			i -= i % 8
		}
	}
}

// word returns the 8 bytes at an address of the loaded program, relocated as by the loader; 0 if the file has none there.
func (p *Program) word(address uint64) uint64 {
	if v, ok := p.addresses[address]; ok {
		return v
	}
	b := p.bytes(address, 8)
	if len(b) < 8 {
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}

// bytes returns a copy of up to n bytes that the file has for an address of the loaded program: fewer at the end of the segment, nil outside of all
// segments.
func (p *Program) bytes(address uint64, n int) []byte {
	for _, s := range p.file.Progs {
		if s.Type == elf.PT_LOAD && address >= s.Vaddr && address-s.Vaddr < s.Filesz {
			b := make([]byte, min(uint64(n), s.Filesz-(address-s.Vaddr)))
			if k, err := s.ReadAt(b, int64(address-s.Vaddr)); err != nil && err != io.EOF {
				return b[:k]
			}
			return b
		}
	}
	return nil
}

// FileOffset returns the offset in the file of an address in the program's code. It is false for an address outside of the code.
func (p *Program) FileOffset(address uint64) (uint64, bool) {
	for _, s := range p.file.Progs {
		if s.Type == elf.PT_LOAD && s.Flags&elf.PF_X != 0 && address >= s.Vaddr && address-s.Vaddr < s.Filesz {
			return address - s.Vaddr + s.Off, true
		}
	}
	return 0, false
}

// Base returns the number to add to addresses in the file for those of a running program, from the start and the file offset of a
// mapping; false if the mapping is not that of the file's code.
func (p *Program) Base(start, fileOffset uint64) (uint64, bool) {
	for _, s := range p.file.Progs {
		if s.Type == elf.PT_LOAD && s.Flags&elf.PF_X != 0 && fileOffset <= s.Off && s.Off < fileOffset+s.Filesz {
			return start + (s.Off - fileOffset) - s.Vaddr, true
		}
	}
	return 0, false
}

// A function is one entry of the function table.
type function struct {
	entry, end uint64
	data       []byte // runtime._func and the values after it
}

// functionAt returns the i-th function in the order of addresses, from 0. In a damaged table its data may be empty.
func (p *Program) functionAt(i int) (f function) {
	cell := func(i int) uint32 {
		if 4*i+4 > len(p.functions) {
			return 0
		}
		return binary.LittleEndian.Uint32(p.functions[4*i:])
	}
	f.entry, f.end = p.textStart+uint64(cell(2*i)), p.textStart+uint64(cell(2*i+2))
	if offset := int(cell(2*i + 1)); offset < len(p.functions) {
		f.data = p.functions[offset:]
	}
	return f
}

// find returns the function that contains an address; false if none does, or if its record is damaged.
func (p *Program) find(address uint64) (function, bool) {
	i := sort.Search(p.functionCount, func(i int) bool { return p.functionAt(i).entry > address }) - 1
	if i < 0 {
		return function{}, false
	}
	f := p.functionAt(i)
	return f, address < f.end && len(f.data) >= functionSize
}

// Fields of runtime._func, the same since Go 1.20.
const (
	functionName       = 4
	functionFile       = 20
	functionLine       = 24
	functionValueCount = 28
	functionUnit       = 32
	functionID         = 40
	functionExtraCount = 43
	functionSize       = 44
)

// cell returns the 32-bit number at an offset, in bytes, of the function's record, 0 beyond its end.
func (f function) cell(offset int) uint32 {
	if offset < 0 || offset+4 > len(f.data) {
		return 0
	}
	return binary.LittleEndian.Uint32(f.data[offset:])
}

// name returns the name at an offset of the table of names.
func (p *Program) name(offset uint32) string { return text(p.names, offset) }

// text returns the text that begins at an offset of a table and ends before the next zero byte, "" if the offset is beyond the table or no zero byte
// follows.
func text(table []byte, offset uint32) string {
	if uint64(offset) >= uint64(len(table)) {
		return ""
	}
	end := bytes.IndexByte(table[offset:], 0)
	if end < 0 {
		return ""
	}
	return string(table[offset:][:end])
}

// value returns the value at an address in one of a function's tables of values by address, -1 if it has none: runtime.pcvalue.
func (p *Program) value(f function, table uint32, address uint64) int32 {
	if table == 0 || uint64(table) >= uint64(len(p.values)) {
		return -1
	}
	data := p.values[table:]
	pc, value := f.entry, int32(-1)
	for first := true; ; first = false {
		delta, n := binary.Uvarint(data)
		if n <= 0 || delta == 0 && !first {
			return -1
		}
		data = data[n:]
		value += int32(uint32(delta>>1) ^ -uint32(delta&1))
		step, n := binary.Uvarint(data)
		if n <= 0 {
			return -1
		}
		data = data[n:]
		if pc += step; address < pc {
			return value
		}
	}
}

// position returns the file and line of an address in a function; "" and 0 if they are not known.
func (p *Program) position(f function, address uint64) (file string, line int) {
	line = int(p.value(f, f.cell(functionLine), address))
	index := p.value(f, f.cell(functionFile), address)
	if index < 0 {
		return "", max(line, 0)
	}
	cell := 4 * (uint64(f.cell(functionUnit)) + uint64(index))
	if cell+4 > uint64(len(p.units)) {
		return "", max(line, 0)
	}
	return text(p.files, binary.LittleEndian.Uint32(p.units[cell:])), max(line, 0)
}

// Addresses returns the entries of functions by name, without those that the program does not have. Of several functions with one
// name, such as an assembly function and the wrapper for the other calling convention, it has the larger.
func (p *Program) Addresses(names ...string) map[string]uint64 {
	wanted := map[string]uint64{}
	for _, name := range names {
		wanted[name] = 0
	}
	sizes, entries := map[string]uint64{}, map[string]uint64{}
	for i := range p.functionCount {
		f := p.functionAt(i)
		name := p.name(f.cell(functionName))
		if _, ok := wanted[name]; ok && f.end-f.entry > sizes[name] {
			entries[name], sizes[name] = f.entry, f.end-f.entry
		}
	}
	return entries
}
