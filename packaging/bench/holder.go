package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// holderCommand is the first argument of this program if it is a process that holds a lock until it
// is killed.
const holderCommand = "holder"

// heldMark is what the process writes when it has the lock.
const heldMark = "has the lock\n"

// startHolder starts a process that takes the lock, and returns when it has it.
func startHolder(dir, contender, name string, addresses []string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c, err := startChild(dir, "holder-"+name, append([]string{self, holderCommand, contender, name}, addresses...)...)
	if err != nil {
		return nil, err
	}
	err = c.ready(startLimit, func() error {
		text, err := os.ReadFile(c.log)
		if err == nil && !strings.Contains(string(text), heldMark) {
			err = fmt.Errorf("it has not said %q", strings.TrimSpace(heldMark))
		}
		return err
	})
	if err != nil {
		c.kill()
		return nil, err
	}
	return c, nil
}

// runHolder is the process. Its arguments are the name of an alternative, that of a lock, and the
// addresses to connect to. It ends only with an error, or when it is killed.
func runHolder(args []string, stdout, stderr io.Writer) int {
	if err := hold(args, stdout); err != nil {
		fmt.Fprintln(stderr, "bench holder:", err)
	}
	return 1
}

// hold takes the lock, and extends it if its library leaves that to its user.
func hold(args []string, stdout io.Writer) error {
	ctx := context.Background()
	if len(args) < 3 {
		return fmt.Errorf("want an alternative, a lock and addresses, got %q", args)
	}
	i := slices.IndexFunc(alternatives, func(a alternative) bool { return a.name == args[0] })
	if i < 0 {
		return fmt.Errorf("no alternative is called %q", args[0])
	}
	c, err := alternatives[i].connect(ctx, args[2:])
	if err != nil {
		return err
	}
	l, err := c.locker(0).lock(ctx, args[1], pairTTL)
	if err != nil {
		return err
	}
	fmt.Fprint(stdout, heldMark)
	for {
		time.Sleep(pairTTL / 3)
		if e, ok := l.(extender); ok {
			if err := e.extend(ctx); err != nil {
				return err
			}
		}
	}
}
