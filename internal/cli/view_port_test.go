package cli

import "testing"

// TestViewPort: a file has the same port each time, and two views of it have different ports.
func TestViewPort(t *testing.T) {
	v := viewFlags{listen: "127.0.0.1:0"}
	first, err := v.listenForFile("some.trace")
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	second, err := v.listenForFile("some.trace")
	if err != nil {
		t.Fatal("a second view of a file:", err)
	}
	defer second.Close()
	if first.Addr().String() == second.Addr().String() {
		t.Errorf("two views share %s", first.Addr())
	}
	address := first.Addr().String()
	first.Close()
	again, err := v.listenForFile("some.trace")
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if again.Addr().String() != address {
		t.Skipf("%s was taken by another program: at first, or in between", address)
	}
}
