package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// Example takes a lock on five Redis masters, and stops its work when the lock is lost.
func Example() {
	var nodes []redlock.Node
	for i := range 5 {
		address := fmt.Sprintf("redis-%d.example.com:6379", i+1)
		nodes = append(nodes, redlock.RedisNode(redlock.NodeOptions{Name: fmt.Sprintf("redis-%d", i+1), Address: address}))
	}
	q, err := redlock.New(redlock.Options{Nodes: nodes, Prefix: "redlock:"})
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close()

	ctx := context.Background()
	host, _ := os.Hostname()
	lease, err := q.Acquire(ctx, redlock.Request{
		Name:   "nightly-report",
		TTL:    10 * time.Second,
		Wait:   time.Minute,
		Keep:   true,
		Holder: redlock.Holder{Host: host, PID: os.Getpid(), UID: os.Getuid(), User: "cron"},
	})
	if err != nil {
		log.Fatal(err)
	}
	for step := range 100 {
		select {
		case <-lease.Lost():
			log.Fatal("the lock is lost: stopped before its deadline")
		case <-time.After(100 * time.Millisecond):
			log.Printf("step %d, to a store that refuses fencing tokens below %d", step, lease.Fence())
		}
	}
	if err := lease.Release(ctx); err != nil {
		log.Print(err)
	}
}

// ExampleQuorum_Acquire shows the two errors of a lock that is not granted: a client holds it, or
// too few nodes can vote.
func ExampleQuorum_Acquire() {
	var nodes []redlock.Node
	var sims []*redlocktest.Sim // nodes that exist in this process only
	for _, name := range []string{"a", "b", "c"} {
		sim := redlocktest.NewSim(name)
		defer sim.Close()
		nodes, sims = append(nodes, sim.Node()), append(sims, sim)
	}
	// NoQuarantine is safe here: no other process uses these nodes.
	q, err := redlock.New(redlock.Options{Nodes: nodes, Prefix: "redlock:", NoQuarantine: true})
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close()
	ctx := context.Background()
	q.Settle(ctx)

	ours := redlock.Holder{Host: "web3", PID: 4121, User: "cron"}
	lease, err := q.Acquire(ctx, redlock.Request{Name: "report", TTL: 10 * time.Second, Holder: ours})
	if err != nil {
		log.Fatal(err)
	}

	_, err = q.Acquire(ctx, redlock.Request{Name: "report", TTL: 10 * time.Second})
	fmt.Println(errors.Is(err, redlock.ErrHeld), err)

	fmt.Println("released:", lease.Release(ctx) == nil)

	sims[0].Down()
	sims[1].Down()
	_, err = q.Acquire(ctx, redlock.Request{Name: "report", TTL: 10 * time.Second})
	fmt.Println("no quorum:", errors.Is(err, redlock.ErrNoQuorum))
	// Output:
	// true report: held by cron on web3 (pid 4121)
	// released: true
	// no quorum: true
}
