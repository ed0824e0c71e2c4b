package timeline

// mergeSorted sorts a list that consists of a few sorted parts, such as the concatenated lists of threads, by merging the
// parts. It is stable.
func mergeSorted[T any](list []T, isLess func(a, b T) bool) {
	var ends []int // ends of the parts
	for i := 1; i < len(list); i++ {
		if isLess(list[i], list[i-1]) {
			ends = append(ends, i)
		}
	}
	if ends == nil {
		return
	}
	ends = append(ends, len(list))
	src, dst := list, make([]T, len(list))
	for len(ends) > 1 {
		from, out := 0, ends[:0]
		for i := 0; i < len(ends); i += 2 {
			mid, end := ends[i], ends[min(i+1, len(ends)-1)]
			mergeInto(dst[from:end], src[from:mid], src[mid:end], isLess)
			from, out = end, append(out, end)
		}
		ends = out
		src, dst = dst, src
	}
	copy(list, src) // src may be list
}

// appendDoubling is append for long lists. It doubles the capacity: append's quarter copies a list five times, and each copy
// takes memory that the process has not touched yet.
func appendDoubling[T any](list []T, v T) []T {
	if len(list) == cap(list) {
		list = append(make([]T, 0, max(2*len(list), 64)), list...)
	}
	return append(list, v)
}

// mergeInto merges the sorted lists a and b into dst.
func mergeInto[T any](dst, a, b []T, isLess func(a, b T) bool) {
	for len(a) > 0 && len(b) > 0 {
		if isLess(b[0], a[0]) {
			dst[0], b = b[0], b[1:]
		} else {
			dst[0], a = a[0], a[1:]
		}
		dst = dst[1:]
	}
	copy(dst[copy(dst, a):], b)
}
