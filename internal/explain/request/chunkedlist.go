package request

import "iter"

// chunkedList is a list that grows without copying.
type chunkedList[T any] struct {
	chunks []*[chunkSize]T
	length int
}

const chunkSize = 1 << 10

// appendZero appends a zero element and returns a pointer to it, which stays valid.
func (c *chunkedList[T]) appendZero() *T {
	index := c.length / chunkSize
	if index == len(c.chunks) {
		c.chunks = append(c.chunks, new([chunkSize]T))
	}
	c.length++
	return c.element(c.length - 1)
}

func (c *chunkedList[T]) element(i int) *T { return &c.chunks[i/chunkSize][i%chunkSize] }

// deleteFunc deletes the elements for which del returns true.
func (c *chunkedList[T]) deleteFunc(del func(T) bool) {
	n := 0
	for i := range c.length {
		if e := c.element(i); !del(*e) {
			*c.element(n) = *e
			n++
		}
	}
	c.length = n
}

// elements yields the elements from index from up to end.
func (c *chunkedList[T]) elements(from, end int) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for i := from; i < end; i++ {
			if !yield(c.element(i)) {
				return
			}
		}
	}
}
