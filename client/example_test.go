package client_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"github.com/redlockd/redlockd/client"
)

// Run a function under a lock. Its context ends before another client can hold the lock.
func ExampleClient_Do() {
	ctx := context.Background()
	c, err := client.Dial(ctx, "")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	err = c.Do(ctx, "nightly-backup", func(ctx context.Context, l *client.Lease) error {
		return backup(ctx)
	}, client.WithNote("backup of the shop"))
	if errors.Is(err, client.ErrLost) {
		log.Fatal("the backup was stopped because its lock was lost: ", err)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// Take and release a lock by hand. A write may be under way when the lock is lost. The fencing token
// keeps it from overwriting the next holder's write.
func ExampleClient_Lock() {
	ctx := context.Background()
	c, err := client.Dial(ctx, "")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	l, err := c.Lock(ctx, "accounts/17", client.WithTTL(5*time.Second), client.WithGuard(2*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer l.Unlock(ctx)
	var db *sql.DB
	_, err = db.ExecContext(l.Context(), "UPDATE accounts SET balance = 0, fence = ? WHERE id = 17 AND fence <= ?", l.Fence(), l.Fence())
	if err != nil {
		log.Print(err, ": ", context.Cause(l.Context()))
	}
}

// Take a lock if it is free. Otherwise print its holder.
func ExampleClient_TryLock() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	c, err := client.Dial(ctx, "")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	l, err := c.TryLock(ctx, "deploy")
	var refused *client.Error
	switch {
	case err == nil:
		defer l.Unlock(ctx)
	case errors.As(err, &refused) && refused.Holder != nil:
		fmt.Printf("%s on %s is already deploying\n", refused.Holder.User, refused.Holder.Host)
		os.Exit(1)
	case errors.Is(err, client.ErrNoQuorum):
		log.Fatal("too few Redis nodes answer: ", err)
	default:
		log.Fatal(err)
	}
}

// Take a lock that outlives this process, until its ttl has passed: at most one mail in 20 s.
func ExampleWithHold() {
	ctx := context.Background()
	c, err := client.Dial(ctx, "")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	_, err = c.TryLock(ctx, "mail/disk-full", client.WithHold(client.HoldTTL), client.WithTTL(20*time.Second))
	if err == nil {
		fmt.Println("the disk is full")
	}
}

// Let the database reject a late write: the writer was paused until its lease had expired, and
// another client has held the lock since.
func ExampleLease_Fence() {
	var c *client.Client // from Dial
	var db *sql.DB
	err := c.Do(context.Background(), "report/7", func(ctx context.Context, l *client.Lease) error {
		result, err := db.ExecContext(ctx,
			`UPDATE report SET body = $1, fence = $2 WHERE id = 7 AND fence <= $2`, "…", l.Fence())
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); n == 0 && err == nil {
			return errors.New("a holder with a later grant was here already")
		}
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}

// Let at most three clients hold a lock at once, on all hosts together.
func ExampleWithSlots() {
	var c *client.Client // from Dial
	err := c.Do(context.Background(), "transcode", func(ctx context.Context, l *client.Lease) error {
		fmt.Println("working in slot", l.Slot())
		return ctx.Err()
	}, client.WithSlots(3))
	if err != nil {
		log.Fatal(err)
	}
}

// Lock two accounts at once. Other clients may name them in the other order.
func ExampleClient_LockAll() {
	ctx := context.Background()
	var c *client.Client // from Dial
	l, err := c.LockAll(ctx, []string{"accounts/17", "accounts/4"})
	if err != nil {
		log.Fatal(err)
	}
	defer l.Unlock(ctx)
}

// Elect a leader. Each instance of a service runs this loop. Do waits until this instance is the
// leader, and returns when it loses the lock or lead returns. Then the loop takes part in the next
// election, after a pause: another instance may be healthier.
func ExampleClient_Do_leaderElection() {
	ctx := context.Background() // ends when this instance stops
	c, err := client.Dial(ctx, "")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	for ctx.Err() == nil {
		err := c.Do(ctx, "leader/billing", func(ctx context.Context, l *client.Lease) error {
			log.Print("leading with fencing token ", l.Fence())
			return lead(ctx, l.Fence()) // must return soon after ctx has ended
		}, client.WithTTL(5*time.Second))
		log.Print("not leading: ", err)
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// Use a lock that spans hosts in code that expects a sync.Locker.
func ExampleClient_Locker() {
	c, err := client.Dial(context.Background(), "")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	var mu sync.Locker = c.Locker("index/rebuild")
	mu.Lock()
	defer mu.Unlock() // panics if the lock was lost meanwhile
	fmt.Println("rebuilding the index")
}

// List the holders of a lock, on all hosts.
func ExampleClient_Who() {
	ctx := context.Background()
	c, err := client.Dial(ctx, "")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	holders, err := c.Who(ctx, "nightly-backup")
	if err != nil {
		log.Fatal(err)
	}
	for _, h := range holders {
		fmt.Printf("%s on %s (pid %d) for %v\n", h.User, h.Host, h.PID, h.Since)
	}
}

func backup(context.Context) error { return nil }

func lead(context.Context, uint64) error { return nil }
