// Gin is a shop's front behind gin-gonic/gin with its logger and recovery and
// a wrapper of its own. It asks a service for stock.
//
// Faults: serial (it asks for five items one after the other, each of which
// takes 4 ms; the healthy twin asks for all at once).
package main

import (
	"io"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"shop.example/shops/internal/run"
)

var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 50}}

// stock asks for an item, or for several.
func stock(items string) (string, error) {
	resp, err := client.Get("http://" + *run.Peer + "/stock?items=" + items)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

func basket(c *gin.Context) {
	var all []string
	ask := []string{"1,2,3,4,5"}
	if run.Fault("serial") {
		ask = []string{"1", "2", "3", "4", "5"}
	}
	for _, items := range ask {
		s, err := stock(items)
		if err != nil {
			c.String(http.StatusBadGateway, err.Error())
			return
		}
		all = append(all, s)
	}
	c.JSON(http.StatusOK, all)
}

func named(c *gin.Context) {
	c.Header("Server", "shop")
	c.Next()
}

func main() {
	run.Parse("serial")
	run.AnswerAsPeer(4*time.Millisecond, "7")
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	e.Use(gin.LoggerWithWriter(io.Discard), gin.Recovery(), named)
	e.GET("/basket", basket)
	// Gin writes a route's pattern nowhere outside of itself; there is one.
	run.ServeRequests(e)
}
