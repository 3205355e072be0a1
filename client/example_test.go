package client_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/redlockd/redlockd/client"
)

// The shortest way: a function that runs under a lock. Its context ends before
// anybody else can hold the lock.
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
		log.Fatal("the backup was stopped, as its lock was lost: ", err)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// A lock that is taken and given back by hand. The fencing token keeps a write
// that was under way when the lock was lost from overwriting that of the next holder.
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

// Who is in the way, where it does not pay to wait.
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
		fmt.Printf("%s on %s deploys already\n", refused.Holder.User, refused.Holder.Host)
		os.Exit(1)
	case errors.Is(err, client.ErrNoQuorum):
		log.Fatal("too few Redis nodes answer: ", err)
	default:
		log.Fatal(err)
	}
}

// A lock that outlives this process, for its ttl: at most one mail in 20 s.
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

// A store that refuses who comes too late: a holder that was paused for longer
// than its lease, and does not know yet that somebody else was here since.
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
			return errors.New("somebody with a later grant was here already")
		}
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}

// A lock that three can hold at a time, on all hosts together.
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

// Two accounts at once, in whatever order others name them.
func ExampleClient_LockAll() {
	ctx := context.Background()
	var c *client.Client // from Dial
	l, err := c.LockAll(ctx, []string{"accounts/17", "accounts/4"})
	if err != nil {
		log.Fatal(err)
	}
	defer l.Unlock(ctx)
}

// Who holds a lock, on whatever host.
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
