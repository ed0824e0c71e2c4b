// Package sample selects a bounded number of requests from a stream that several workers divide: the slowest ones, or a
// pseudo-random sample. The selection depends only on the requests, not on their order, nor on the workers. For a sample, each
// request has a Key, and a TopN stores the requests with the smallest keys (a bottom-k sample, Cohen and Kaplan, PODC 2007).
// Quantile and Median describe any list of values.
package sample

import "slices"

// A TopN stores the first elements, in an order, of all that are added: at most a limit. A nil TopN is empty, and cannot be added to.
type TopN[T any] struct {
	limit    int
	compare  func(a, b T) int
	elements []T // as many as the limit: a heap, its last element in the order at index 0, unless isSorted
	isSorted bool
}

// New returns an empty TopN. The limit must be positive. If compare returns 0 for different elements, which of them is stored
// depends on their order of arrival.
func New[T any](limit int, compare func(a, b T) int) *TopN[T] {
	return &TopN[T]{limit: limit, compare: compare}
}

// Last returns the last stored element, which the next Add may replace. It returns false if the limit is not reached.
func (t *TopN[T]) Last() (last T, isFull bool) {
	switch {
	case t == nil || len(t.elements) < t.limit:
		return last, false
	case t.isSorted:
		return t.elements[t.limit-1], true
	}
	return t.elements[0], true
}

// Add adds an element. If that exceeds the limit, it drops the last one, perhaps x, and returns it and true.
func (t *TopN[T]) Add(x T) (dropped T, isFull bool) {
	last, isFull := t.Last()
	if isFull && t.compare(x, last) >= 0 {
		return x, true
	}
	if isFull {
		if t.isSorted {
			slices.Reverse(t.elements) // a heap
		}
		t.place(x, 0)
	} else if t.elements = append(t.elements, x); len(t.elements) == t.limit {
		for i := t.limit/2 - 1; i >= 0; i-- {
			t.place(t.elements[i], i)
		}
	}
	t.isSorted = false
	return last, isFull
}

// place puts x at index i of the heap, or below. The subtrees of i must be heaps.
func (t *TopN[T]) place(x T, i int) {
	for child := 2*i + 1; child < len(t.elements); child = 2*i + 1 {
		if child+1 < len(t.elements) && t.compare(t.elements[child+1], t.elements[child]) > 0 {
			child++
		}
		if t.compare(x, t.elements[child]) >= 0 {
			break
		}
		t.elements[i] = t.elements[child]
		i = child
	}
	t.elements[i] = x
}

// Merge adds the elements of another TopN.
func (t *TopN[T]) Merge(other *TopN[T]) {
	for _, x := range other.Elements() {
		t.Add(x)
	}
}

// Elements returns the stored elements in no order. The slice is valid until the next call of another method. Only what does not decide the
// order may be changed.
func (t *TopN[T]) Elements() []T {
	if t == nil {
		return nil
	}
	return t.elements
}

// Sorted sorts the stored elements and returns them. The slice is valid until the next Add, and must not be changed.
func (t *TopN[T]) Sorted() []T {
	if t == nil {
		return nil
	}
	if !t.isSorted {
		slices.SortFunc(t.elements, t.compare)
		t.isSorted = true
	}
	return t.elements
}
