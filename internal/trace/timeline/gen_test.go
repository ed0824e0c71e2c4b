package timeline

import (
	"reflect"
	"testing"
	"unsafe"
)

// TestResetForgetsEverything fills every field of a generation, also those that are added to it later, and checks that nothing
// but memory is left after a reset. A field that its part forgets would show one generation's data in the next.
func TestResetForgetsEverything(t *testing.T) {
	g := new(Gen)
	open := func(f reflect.Value) reflect.Value {
		return reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem()
	}
	// Locks are not held and what sync.Once did is not told; goids are emptied in decoding.
	var each func(v reflect.Value, path string, f func(v reflect.Value, path string))
	each = func(v reflect.Value, path string, f func(v reflect.Value, path string)) {
		for i := range v.NumField() {
			at, of := open(v.Field(i)), v.Type().Field(i)
			switch {
			case of.Type == reflect.TypeFor[goids](), of.Type.PkgPath() == "sync" && of.Type.Name() == "Mutex":
			case of.Type.Kind() == reflect.Struct:
				each(at, path+"."+of.Name, f)
			default:
				f(at, path+"."+of.Name)
			}
		}
	}
	n := 0
	each(reflect.ValueOf(g).Elem(), "Gen", func(v reflect.Value, path string) {
		n++
		switch v.Kind() {
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		case reflect.Map:
			v.Set(reflect.MakeMap(v.Type()))
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Int, reflect.Int64:
			v.SetInt(1)
		case reflect.Uint8, reflect.Uint32, reflect.Uint64:
			v.SetUint(1)
		case reflect.Array: // padding of atomics
		default:
			t.Fatalf("%s: no value for a %s", path, v.Type())
		}
	})
	if n < 45 {
		t.Errorf("%d fields found", n)
	}
	g.reset()
	each(reflect.ValueOf(g).Elem(), "Gen", func(v reflect.Value, path string) {
		if v.Kind() == reflect.Slice && v.Len() == 0 {
			return
		}
		if !v.IsZero() {
			t.Errorf("%s is left after a reset: %v", path, v)
		}
	})
}
