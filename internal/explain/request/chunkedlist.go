package request

import "iter"

// chunkedList is a list that grows without copying.
type chunkedList[T any] struct {
	chunks []*[chunkSize]T
	length int
}

const chunkSize = 1 << 10

// append appends an element, which the caller sets, and returns a pointer to it, which stays valid.
func (c *chunkedList[T]) append() *T {
	index := c.length / chunkSize
	if index == len(c.chunks) {
		c.chunks = append(c.chunks, new([chunkSize]T))
	}
	c.length++
	return c.element(c.length - 1)
}

// reset empties the list and gives its memory back.
func (c *chunkedList[T]) reset() { *c = chunkedList[T]{} }

func (c *chunkedList[T]) element(i int) *T { return &c.chunks[i/chunkSize][i%chunkSize] }

// elements yields the elements from index from up to end.
func (c *chunkedList[T]) elements(from, end int) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for from < end {
			part := c.chunks[from/chunkSize][from%chunkSize:]
			part = part[:min(len(part), end-from)]
			for i := range part {
				if !yield(&part[i]) {
					return
				}
			}
			from += len(part)
		}
	}
}

// remove removes the elements from index from on for which isRemoved returns true.
func (c *chunkedList[T]) remove(from int, isRemoved func(*T) bool) {
	end := from
	for element := range c.elements(from, c.length) {
		if !isRemoved(element) {
			*c.element(end) = *element
			end++
		}
	}
	c.length = end
}
