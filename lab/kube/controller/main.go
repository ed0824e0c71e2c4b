// Controller is a Kubernetes controller as most are written: an informer, a rate-limited work queue, workers that reconcile one
// object at a time and write its status back. Its API server is given by -server.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	_ "net/http/pprof"
	"os"
	"os/signal"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

func main() {
	server := flag.String("server", "", "URL of the API server")
	workers := flag.Int("workers", 4, "")
	qps := flag.Float64("qps", 1000, "the client's rate limit")
	fault := flag.String("fault", "", "slow-check: reconciling waits for something else; few-qps: client-go's default limit of 5 requests a second")
	pprof := flag.String("pprof", "", "")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	config := &rest.Config{Host: *server, QPS: float32(*qps), Burst: int(*qps), ContentConfig: rest.ContentConfig{ContentType: "application/json", AcceptContentTypes: "application/json"}}
	if *fault == "few-qps" {
		config.QPS, config.Burst = 0, 0
	}
	if *fault == "slow-check" {
		*workers = 1
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	informer := factory.Core().V1().ConfigMaps()
	c := &controller{client: client, lister: informer.Lister(), slow: *fault == "slow-check", queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](5*time.Millisecond, time.Second))}
	informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: c.enqueue,
		UpdateFunc: func(old, now any) {
			if o, n := old.(*corev1.ConfigMap), now.(*corev1.ConfigMap); o.Data["spec"] != n.Data["spec"] {
				c.enqueue(now)
			}
		},
	})
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for range *workers {
		go wait.UntilWithContext(ctx, c.work, time.Second)
	}
	go http.ListenAndServe(*pprof, nil)
	<-ctx.Done()
}

type controller struct {
	client kubernetes.Interface
	lister listers.ConfigMapLister
	queue  workqueue.TypedRateLimitingInterface[string]
	slow   bool
}

func (c *controller) enqueue(obj any) {
	if key, err := cache.MetaNamespaceKeyFunc(obj); err == nil {
		c.queue.Add(key)
	}
}

func (c *controller) work(ctx context.Context) {
	for c.next(ctx) {
	}
}

func (c *controller) next(ctx context.Context) bool {
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(key)
	if err := c.reconcile(ctx, key); err != nil {
		c.queue.AddRateLimited(key)
		return true
	}
	c.queue.Forget(key)
	return true
}

// reconcile brings the object's status in line with what it asks for, and says on standard output how long that took.
func (c *controller) reconcile(ctx context.Context, key string) (err error) {
	began := time.Now()
	defer func() {
		is := "ok"
		if err != nil {
			is = "err"
		}
		fmt.Println("sample", time.Now().UnixNano(), int64(time.Since(began)), is)
	}()
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return err
	}
	m, err := c.lister.ConfigMaps(namespace).Get(name)
	if err != nil {
		return err
	}
	if c.slow {
		c.check()
	}
	m = m.DeepCopy()
	if m.Data == nil {
		return errors.New("no data")
	}
	m.Data["status"] = m.Data["spec"]
	_, err = c.client.CoreV1().ConfigMaps(namespace).Update(ctx, m, metav1.UpdateOptions{})
	return err
}

// check waits until something outside the cluster is ready, as badly as it is often done.
func (c *controller) check() { time.Sleep(15 * time.Millisecond) }
