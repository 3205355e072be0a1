package adapters

import (
	"context"
	"errors"

	"github.com/hibiken/asynq"
	"github.com/redlockd/redlockd/client"
)

// Exclusive is a middleware for asynq: tasks with the same lock do not run at the same time, on any host.
//
//	mux := asynq.NewServeMux()
//	mux.Use(adapters.Exclusive(c, func(t *asynq.Task) string { return t.Type() }, client.WithMax(time.Hour)))
//	server := asynq.NewServer(redis, asynq.Config{IsFailure: adapters.IsFailure})
//
// asynq.Unique and TaskID are about tasks that are queued, and end when their ttl is over. The context of the
// handler ends before another task can have the lock. name returns "" for a task without a lock.
func Exclusive(c *client.Client, name func(*asynq.Task) string, options ...client.Option) asynq.MiddlewareFunc {
	return func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			lock := name(task)
			if lock == "" {
				return next.ProcessTask(ctx, task)
			}
			return c.Do(ctx, lock, func(ctx context.Context, _ *client.Lease) error {
				return next.ProcessTask(ctx, task)
			}, append([]client.Option{client.WithWait(0)}, options...)...)
		})
	}
}

// IsFailure tells asynq to retry a task whose lock was held, later, without counting that as a failure.
func IsFailure(err error) bool { return !errors.Is(err, client.ErrHeld) }
