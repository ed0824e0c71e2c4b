// Front is a page of a shop, behind gofiber/fiber: what is in the basket, and
// what that costs, which another service knows.
package main

import (
	"io"
	"log"
	"net/http"
	"sync"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/recover"
	"github.com/gofiber/fiber/v3/middleware/requestid"

	"shop.example/shops/internal/run"
)

type front struct {
	mu      sync.Mutex
	baskets map[string][]string
	client  *http.Client
}

func (f *front) basket(c fiber.Ctx) error {
	f.mu.Lock()
	items := append(f.baskets[c.Params("who")], "pen")
	f.baskets[c.Params("who")] = items[max(0, len(items)-5):]
	f.mu.Unlock()
	price, err := f.price()
	if err != nil {
		return fiber.NewError(http.StatusBadGateway, err.Error())
	}
	return c.JSON(fiber.Map{"items": items, "price": price})
}

func (f *front) price() (string, error) {
	resp, err := f.client.Get("http://" + *run.Peer + "/price")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

func main() {
	run.Parse()
	run.AnswerAsPeer(0, "9.99")
	f := &front{baskets: map[string][]string{}, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 50}}}
	app := fiber.New()
	app.Use(recover.New(), requestid.New())
	app.Get("/basket/:who", f.basket)
	run.Profiles()
	log.Fatal(app.Listen(*run.Listen, fiber.ListenConfig{DisableStartupMessage: true}))
}
