// Echo is an image service behind labstack/echo with its usual middleware. It
// makes small pictures.
//
// Faults: quality (it computes 4 ms for a picture, where 0.2 ms would do).
package main

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"net/http"
	"sync"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"shop.example/shops/internal/run"
)

// picture draws a picture with so many points on a side.
func picture(size int) *image.NRGBA {
	m := image.NewNRGBA(image.Rect(0, 0, size, size))
	for y := range size {
		for x := range size {
			m.SetNRGBA(x, y, color.NRGBA{uint8(x * y), uint8(x + y), uint8(x ^ y), 255})
		}
	}
	return m
}

// pool keeps what the encoder works with.
type pool struct{ sync.Pool }

func (p *pool) Get() *png.EncoderBuffer {
	b, _ := p.Pool.Get().(*png.EncoderBuffer)
	return b
}

func (p *pool) Put(b *png.EncoderBuffer) { p.Pool.Put(b) }

var buffers pool

// thumbnail makes the picture of a product.
func thumbnail(c echo.Context) error {
	size, level := 32, png.BestSpeed
	if run.Fault("quality") {
		size, level = 160, png.BestCompression
	}
	var b bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: level, BufferPool: &buffers}).Encode(&b, picture(size)); err != nil {
		return err
	}
	return c.Blob(http.StatusOK, "image/png", b.Bytes())
}

func main() {
	run.Parse("quality")
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.Use(middleware.Recover(), middleware.RequestID(), middleware.Secure())
	e.GET("/thumbnail", thumbnail)
	run.ServeRequests(e)
}
