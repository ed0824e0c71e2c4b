// Package entry returns entries of maps and slices that are made when they are first asked for, as most sums are.
package entry

// GetOrAdd returns the entry of a key in a map.
func GetOrAdd[K comparable, V any](m map[K]*V, k K) *V {
	v := m[k]
	if v == nil {
		v = new(V)
		m[k] = v
	}
	return v
}

// GetOrGrow returns the entry of an id in a slice that grows with the ids. It is valid until the next call.
func GetOrGrow[ID ~int32 | ~uint32, V any](s *[]V, id ID) *V {
	for int(id) >= len(*s) {
		var zero V
		*s = append(*s, zero)
	}
	return &(*s)[id]
}
