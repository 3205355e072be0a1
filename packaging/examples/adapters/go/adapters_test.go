package adapters

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redlockd/redlockd/client"
	"github.com/robfig/cron/v3"
)

// patient waits for nodes that a busy machine starves.
var patient = client.WithWait(time.Minute)

// dial returns a client of the redlockd that packaging/e2e has started.
func dial(t *testing.T) *client.Client {
	t.Helper()
	if os.Getenv("REDLOCK_SOCKET") == "" {
		t.Skip("packaging/e2e runs this test with a redlockd, whose socket is $REDLOCK_SOCKET")
	}
	c, err := client.Dial(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// force repeats it while a busy machine starves the nodes.
func force(t *testing.T, c *client.Client, name string) {
	t.Helper()
	for left := 50; ; left-- {
		if _, err := c.Force(t.Context(), name); err == nil {
			return
		} else if left == 0 || !errors.Is(err, client.ErrNoQuorum) {
			t.Fatal(err)
		}
	}
}

// schedule runs a job at once in a scheduler of gocron.
func schedule(t *testing.T, option gocron.SchedulerOption, name string, task any, listeners ...gocron.EventListener) {
	t.Helper()
	s, err := gocron.NewScheduler(option)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Shutdown() })
	_, err = s.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), gocron.NewTask(task), gocron.WithName(name), gocron.WithEventListeners(listeners...))
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
}

func TestGocronLocker(t *testing.T) {
	c, name := dial(t), t.Name()
	first := &Locker{Client: c, Options: []client.Option{patient}}
	second := &Locker{Client: dial(t), Options: []client.Option{client.WithWait(time.Second)}}
	began, finish, released := make(chan error, 1), make(chan struct{}), make(chan error, 1)
	schedule(t, gocron.WithDistributedLocker(first), name, func(ctx context.Context) {
		began <- first.Check(ctx, name)
		<-finish
	})
	if err := <-began; err != nil {
		t.Fatalf("in the job: %v", err)
	}
	refused := make(chan error, 1)
	schedule(t, gocron.WithDistributedLocker(second), name, func() { refused <- nil }, gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) { refused <- err }))
	if err := <-refused; !errors.Is(err, client.ErrHeld) {
		t.Errorf("the second scheduler got %v, want ErrHeld", err)
	}
	force(t, c, name)
	if err := first.Check(t.Context(), name); !errors.Is(err, client.ErrLost) {
		t.Errorf("the job got %v after the loss, want ErrLost", err)
	}
	close(finish)
	// A lock is free after its job, also if the context has ended.
	ctx, cancel := context.WithCancel(t.Context())
	lock, err := first.Lock(ctx, name+" other")
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	_ = lock.Unlock(ctx)
	go func() {
		_, err := second.Client.Lock(t.Context(), name+" other")
		released <- err
	}()
	if err := <-released; err != nil {
		t.Error(err)
	}
}

func TestGocronElector(t *testing.T) {
	c, name := dial(t), t.Name()
	leader, other := &Elector{}, &Elector{}
	if leader.IsLeader(t.Context()) == nil {
		t.Error("it is leader without a lock")
	}
	ctx, resign := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		leader.Run(ctx, c, name)
	}()
	lead(t, leader)
	ran := make(chan struct{})
	schedule(t, gocron.WithDistributedElector(leader), name, func() { close(ran) })
	<-ran
	go other.Run(t.Context(), dial(t), name)
	if other.IsLeader(t.Context()) == nil {
		t.Error("there are two leaders")
	}
	resign()
	<-ended
	lead(t, other)
	if leader.IsLeader(t.Context()) == nil {
		t.Error("it is leader after its end")
	}
}

func lead(t *testing.T, e *Elector) {
	t.Helper()
	for e.IsLeader(t.Context()) != nil {
		time.Sleep(time.Millisecond)
	}
}

// notes is a cron.Logger.
type notes chan string

func (n notes) Info(text string, _ ...any)             { n <- text }
func (n notes) Error(err error, text string, _ ...any) { n <- text + ": " + err.Error() }

func TestCronWrapper(t *testing.T) {
	c, name := dial(t), t.Name()
	said, began, lost := make(notes, 1), make(chan struct{}), make(chan error, 1)
	wrapper := OnOneHost(c, name, said, client.WithWait(time.Second))
	scheduler := cron.New(cron.WithSeconds(), cron.WithChain(wrapper))
	id, err := scheduler.AddJob("0 0 0 1 1 *", Job(func(ctx context.Context) {
		close(began)
		<-ctx.Done()
		lost <- context.Cause(ctx)
	}))
	if err != nil {
		t.Fatal(err)
	}
	job := scheduler.Entry(id).WrappedJob
	go job.Run()
	<-began
	wrapper(cron.FuncJob(func() { t.Error("two runs at the same time") })).Run()
	if note := <-said; note != "skip" {
		t.Errorf("the second run says %q", note)
	}
	force(t, c, name)
	if err := <-lost; !errors.Is(err, client.ErrLost) {
		t.Errorf("the context of the job ends with %v", err)
	}
	if note := <-said; note == "skip" {
		t.Errorf("the loss is logged as %q", note)
	}
	ran := false
	OnOneHost(c, name, said)(cron.FuncJob(func() { ran = true })).Run()
	if !ran {
		t.Error("a job without a context did not run")
	}
}

func TestAsynqMiddleware(t *testing.T) {
	c, name := dial(t), t.Name()
	mux, began, finish, done := asynq.NewServeMux(), make(chan struct{}, 2), make(chan struct{}), make(chan error, 1)
	mux.Use(Exclusive(c, func(task *asynq.Task) string { return string(task.Payload()) }, client.WithWait(time.Second)))
	mux.HandleFunc("backup", func(ctx context.Context, _ *asynq.Task) error {
		began <- struct{}{}
		<-finish
		return ctx.Err()
	})
	task := asynq.NewTask("backup", []byte(name))
	go func() { done <- mux.ProcessTask(t.Context(), task) }()
	<-began
	if err := mux.ProcessTask(t.Context(), task); !errors.Is(err, client.ErrHeld) || IsFailure(err) {
		t.Errorf("the second task ends with %v, a failure: %v", err, IsFailure(err))
	}
	close(finish)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := mux.ProcessTask(t.Context(), asynq.NewTask("backup", nil)); err != nil {
		t.Errorf("without a lock: %v", err)
	}
	if !IsFailure(errors.New("another")) {
		t.Error("another error is no failure")
	}
}
