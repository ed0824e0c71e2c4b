package words

import (
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
)

func TestFuncName(t *testing.T) {
	for name, want := range map[string]string{
		"main.run": "main.run", "example.org/shop.(*DB).get": "shop.(*DB).get", "gopkg.in/yaml%2ev3.Unmarshal": "yaml.v3.Unmarshal",
		"example.org/bar/v2.F": "bar/v2.F", "a/b.Map[go.shape.struct { X int },x/y.T].Get": "b.Map[go.shape.struct { X int },x/y.T].Get",
		"GET /orders/{id}": "GET /orders/{id}", "HTTP/1 handlers that the trace does not name": "HTTP/1 handlers that the trace does not name",
	} {
		check.Equal(t, FuncName(name), want, "%s", name)
	}
}
