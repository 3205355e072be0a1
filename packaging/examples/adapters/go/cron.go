package adapters

import (
	"context"
	"errors"

	"github.com/redlockd/redlockd/client"
	"github.com/robfig/cron/v3"
)

// OnOneHost is a cron.JobWrapper (v3): a run of a job happens on one of the hosts that schedule it.
//
//	wrapper := adapters.OnOneHost(c, "nightly-backup", logger, client.WithWait(0), client.WithMin(time.Minute))
//	cron.New().AddJob("0 3 * * *", cron.NewChain(wrapper).Then(adapters.Job(backup)))
//
// Without WithWait(0), runs wait for each other. WithMin skips the run of a host whose clock is late.
func OnOneHost(c *client.Client, name string, logger cron.Logger, options ...client.Option) cron.JobWrapper {
	return func(job cron.Job) cron.Job {
		run, ok := job.(Job)
		if !ok {
			run = func(context.Context) { job.Run() }
		}
		return cron.FuncJob(func() {
			err := c.Do(context.Background(), name, func(ctx context.Context, _ *client.Lease) error {
				run(ctx)
				return nil
			}, options...)
			if errors.Is(err, client.ErrHeld) {
				logger.Info("skip", "lock", name)
			} else if err != nil {
				logger.Error(err, "lock", "name", name)
			}
		})
	}
}

// Job is a job whose context ends before another host can have the lock. Of several wrappers, OnOneHost must be the last.
type Job func(context.Context)

func (j Job) Run() { j(context.Background()) }
