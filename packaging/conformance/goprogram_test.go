package conformance

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redlockd/redlockd/client"
)

// goProgram is the program of README.md for the Go client. It has one client for each script.
type goProgram struct {
	path   string
	dial   sync.Mutex // guards client
	client *client.Client
	mu     sync.Mutex // guards the fields below
	leases map[string]*client.Lease
	cancel map[string]context.CancelFunc
	onLost map[string]bool
	all    sync.WaitGroup
}

func runProgram() {
	var p *goProgram
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		words := strings.Fields(in.Text())
		switch words[0] {
		case "begin":
			p = &goProgram{path: words[1], leases: map[string]*client.Lease{}, cancel: map[string]context.CancelFunc{}, onLost: map[string]bool{}}
		case "end":
			p.end()
		case "lock":
			ctx, cancel := context.WithCancel(context.Background())
			p.mu.Lock()
			p.cancel[words[1]] = cancel
			p.mu.Unlock()
			p.all.Go(func() { p.lock(ctx, words[1], words[2], words[3:]) })
		case "cancel":
			p.mu.Lock()
			p.cancel[words[1]]()
			p.mu.Unlock()
		case "check":
			p.all.Go(func() { p.check(words[1]) })
		case "remaining":
			say("remaining", words[1], strconv.FormatInt(p.lease(words[1]).Validity().Milliseconds(), 10))
		case "onlost":
			p.mu.Lock()
			p.onLost[words[1]] = true
			p.mu.Unlock()
		case "release":
			p.all.Go(func() { p.release(words[1]) })
		case "list":
			p.all.Go(p.list)
		}
	}
}

func (p *goProgram) end() {
	p.dial.Lock()
	if p.client != nil {
		p.client.Close()
	}
	p.dial.Unlock()
	p.all.Wait()
	say("ended")
}

// connection returns the client. It waits for a daemon.
func (p *goProgram) connection(wait time.Duration) (c *client.Client, err error) {
	p.dial.Lock()
	defer p.dial.Unlock()
	if p.client == nil {
		p.client, err = client.Dial(context.Background(), p.path, client.WithDialWait(wait))
	}
	return p.client, err
}

func (p *goProgram) lock(ctx context.Context, key, names string, options []string) {
	wait := time.Hour
	var opts []client.Option
	for _, option := range options {
		name, value, _ := strings.Cut(option, "=")
		ms, _ := strconv.Atoi(value)
		d := time.Duration(ms) * time.Millisecond
		switch name {
		case "wait":
			wait = d
			opts = append(opts, client.WithWait(d))
		case "ttl":
			opts = append(opts, client.WithTTL(d))
		case "guard":
			opts = append(opts, client.WithGuard(d))
		case "mode":
			opts = append(opts, client.WithShared())
		}
	}
	c, err := p.connection(wait)
	if err != nil {
		say("refused", key, code(err))
		return
	}
	var all []string
	for name := range strings.SplitSeq(names, ",") {
		name, _ = url.PathUnescape(name)
		all = append(all, name)
	}
	l, err := c.LockAll(ctx, all, opts...)
	switch {
	case errors.Is(err, context.Canceled):
		say("cancelled", key)
	case err != nil:
		say("refused", key, code(err))
	default:
		p.mu.Lock()
		p.leases[key] = l
		p.mu.Unlock()
		say("granted", key, fmt.Sprint("fence=", l.Fence()))
		<-l.Context().Done()
		if cause := context.Cause(l.Context()); errors.Is(cause, client.ErrLost) && !errors.Is(cause, client.ErrClosed) {
			say("lost", key)
			p.mu.Lock()
			releases := p.onLost[key]
			p.mu.Unlock()
			if releases {
				p.release(key)
			}
		}
	}
}

func (p *goProgram) lease(key string) *client.Lease {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.leases[key]
}

func (p *goProgram) check(key string) {
	if err := p.lease(key).Check(context.Background()); err != nil {
		say("refused", key, code(err))
		return
	}
	say("checked", key)
}

func (p *goProgram) release(key string) {
	if err := p.lease(key).Unlock(context.Background()); err != nil {
		say("refused", key, code(err))
		return
	}
	say("released", key)
}

func (p *goProgram) list() {
	c, err := p.connection(time.Minute)
	if err != nil {
		say("refused", "list", code(err))
		return
	}
	entries, err := c.List(context.Background())
	if err != nil {
		say("refused", "list", code(err))
		return
	}
	say("listed", strconv.Itoa(len(entries)))
}

func code(err error) string {
	if refused, ok := errors.AsType[*client.Error](err); ok && refused.Code != "" {
		return refused.Code
	}
	return "UNAVAILABLE"
}

var output sync.Mutex // one line at a time

func say(words ...string) {
	output.Lock()
	defer output.Unlock()
	fmt.Println(strings.Join(words, " "))
}
