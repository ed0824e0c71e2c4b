package inspect

// Columns of millions of rows consist of chunks, so that growth needs no additional memory and copies nothing.
// Most numbers take less than eight bytes.

const (
	chunkBits = 12
	chunkRows = 1 << chunkBits
	chunkMask = chunkRows - 1
)

// A column holds 4 bytes for each row.
type column struct {
	chunks []*[chunkRows]uint32
	length int
}

// add adds a row.
func (c *column) add(v uint32) {
	if c.length&chunkMask == 0 {
		c.chunks = append(c.chunks, new([chunkRows]uint32))
	}
	c.chunks[c.length>>chunkBits][c.length&chunkMask] = v
	c.length++
}

// cell returns the address of a row's value.
func (c *column) cell(row int32) *uint32 { return &c.chunks[row>>chunkBits][row&chunkMask] }

func (c *column) bytes() int64 { return int64(len(c.chunks)) * chunkRows * 4 }

// A numbers column holds int64s. A number takes 4 bytes if it is near the first one of its chunk (in a relative
// column) or near 0 (in others), and 12 bytes otherwise.
type numbers struct {
	column
	relative bool
	base     []int64 // first number of each chunk of a relative column
	far      []int64
}

const (
	farBit   = 1 << 31 // the other bits are an index in far
	zeroWord = 1 << 30 // the word for a difference of 0
)

// add adds a row.
func (c *numbers) add(v int64) {
	if c.relative && c.length&chunkMask == 0 {
		c.base = append(c.base, v)
	}
	c.column.add(0)
	c.store(int32(c.length-1), v)
}

// encodeNear returns the word that represents a number near the column's base; false if the number is too far from it for a word.
func (c *numbers) encodeNear(row int32, v int64) (uint32, bool) {
	if c.relative {
		v -= c.base[row>>chunkBits]
	}
	v += zeroWord
	return uint32(v), v >= 0 && v < farBit
}

// store stores a number in a row that has no far number.
func (c *numbers) store(row int32, v int64) {
	word, ok := c.encodeNear(row, v)
	if !ok {
		word = farBit | uint32(len(c.far))
		c.far = append(c.far, v)
	}
	*c.column.cell(row) = word
}

// set changes the number of a row.
func (c *numbers) set(row int32, v int64) {
	if word := *c.column.cell(row); word&farBit != 0 {
		c.far[word&^farBit] = v
		return
	}
	c.store(row, v)
}

// get returns the number of a row.
func (c *numbers) get(row int32) int64 {
	word := *c.column.cell(row)
	switch {
	case word&farBit != 0:
		return c.far[word&^farBit]
	case c.relative:
		return int64(word) - zeroWord + c.base[row>>chunkBits]
	}
	return int64(word) - zeroWord
}

func (c *numbers) bytes() int64 { return c.column.bytes() + int64(cap(c.far)+cap(c.base))*8 }

// A rowTable maps goroutine ids to rows. The runtime assigns ids in blocks of sixteen, so the ids of a trace are
// near each other.
type rowTable struct {
	pages     map[uint64]uint32 // for each page number, the page's index in rows
	rows      []*[tablePages][pageIDs]int32
	pageCount int
}

const (
	pageIDs    = 8
	tablePages = 512
)

func (t *rowTable) init() { t.pages = make(map[uint64]uint32) }

// get returns the row of a goroutine; ok is false if it has none.
func (t *rowTable) get(id uint64) (row int32, ok bool) {
	p, ok := t.pages[id/pageIDs]
	if !ok {
		return 0, false
	}
	row = t.rows[p/tablePages][p%tablePages][id%pageIDs] - 1
	return row, row >= 0
}

// put sets the row of a goroutine.
func (t *rowTable) put(id uint64, row int32) {
	p, ok := t.pages[id/pageIDs]
	if !ok {
		if t.pageCount%tablePages == 0 {
			t.rows = append(t.rows, new([tablePages][pageIDs]int32))
		}
		p = uint32(t.pageCount)
		t.pageCount++
		t.pages[id/pageIDs] = p
	}
	t.rows[p/tablePages][p%tablePages][id%pageIDs] = row + 1
}

// bytes returns its approximate memory.
func (t *rowTable) bytes() int64 {
	return int64(len(t.rows))*tablePages*pageIDs*4 + int64(len(t.pages))*26
}

// A texts column holds bytes of any length for each row.
type texts struct {
	positions column // number of the chunk and offset in it
	chunks    [][]byte
}

const (
	textBits  = 18
	textChunk = 1 << textBits
	textMask  = textChunk - 1
)

// add adds a row. It returns false if the column is full, at 4 GiB.
func (t *texts) add(b []byte) bool {
	k := len(t.chunks) - 1
	if k < 0 || len(t.chunks[k])+len(b) > textChunk {
		if k++; k == 1<<(32-textBits) || len(b) > textChunk {
			return false
		}
		t.chunks = append(t.chunks, make([]byte, 0, textChunk))
	}
	t.positions.add(uint32(k<<textBits | len(t.chunks[k])))
	t.chunks[k] = append(t.chunks[k], b...)
	return true
}

// bytesFrom returns the bytes from the begin of a row to the end of its chunk; the row's bytes determine their own
// length.
func (t *texts) bytesFrom(row int32) []byte {
	place := *t.positions.cell(row)
	return t.chunks[place>>textBits][place&textMask:]
}

// release frees the memory of a whole chunk of rows, of which row is the last, and of earlier ones; their texts must not be read any more.
func (t *texts) release(row int32) {
	k := *t.positions.cell(row) >> textBits
	for ; k > 0 && t.chunks[k-1] != nil; k-- {
		t.chunks[k-1] = nil
	}
	t.positions.chunks[row>>chunkBits] = nil
}

func (t *texts) bytes() int64 { return t.positions.bytes() + int64(len(t.chunks))*textChunk }
