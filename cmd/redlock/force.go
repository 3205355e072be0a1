package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/describe"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/cmd/redlock/internal/flags"
	"github.com/redlockd/redlockd/cmd/redlock/internal/lockname"
	"github.com/redlockd/redlockd/cmd/redlock/internal/output"
	"github.com/redlockd/redlockd/cmd/redlock/internal/socket"
	"github.com/redlockd/redlockd/cmd/redlock/internal/term"
)

// exitUnconfirmed is for who was asked and did not say yes.
const exitUnconfirmed = 1

func newForceCommand() *cobra.Command {
	f := &forcer{}
	cmd := &cobra.Command{
		Use:   "force NAME",
		Short: "Take a lock from whoever holds it, on whatever host",
		Long: `Take a lock from whoever holds it, on whatever host: all readers, all slots.

They are told and stop, but may be at work until they have noticed, while others
hold the lock already: what is written to is safe from that only if it checks
fencing tokens. It is for root and redlockd's own user or, where there are access
rules, for whoever has "admin" for the lock; and it is logged.

NAME is one lock; a comma in it is written %2C, and shown so.

On a terminal it shows the holders and asks. Elsewhere --yes is wanted.

Where it was held together with other locks, by one request, those are lost as well,
but nobody can have them before their holder has stopped, or until its deadline. They
are named where it was this host's daemon that held them.

With --json: {"lock", "forced", "holder": {"host", "pid", "user", "since_ms", "held"},
"also"}. forced is from how many it was taken, 0 if nobody held it. holder is who had it
where it was one that says so, null otherwise: since_ms is for how long, in milliseconds,
held on how many nodes. (What else there is to know of it, redlock who tells before.)
also is there where other locks are lost with it, and known: their names.

Exit codes: 0 nobody who held it holds it any more; 1 you did not say yes; 64
usage; 69 the daemon is not available, or too few nodes answered; 70 internal; 77
denied.`,
		Example: `  redlock force nightly-backup
  redlock force --yes nightly-backup --json`,
		Args:              flags.OneLock,
		ValidArgsFunction: completeNames,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if f.name, err = lockname.One("force", args[0]); err != nil {
				return err
			}
			f.in, f.out, f.ask = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
			return f.run(cmd.Context())
		},
	}
	flags.JSON(cmd, &f.asJSON)
	cmd.Flags().BoolVar(&f.yes, "yes", false, "do not ask")
	return cmd
}

// forcer takes a lock away.
type forcer struct {
	name        string
	yes, asJSON bool
	in          io.Reader
	out, ask    io.Writer
}

func (f *forcer) run(ctx context.Context) error {
	if !f.yes {
		if err := f.confirm(ctx); err != nil {
			return err
		}
	}
	var forced client.Forced
	err := socket.Ask(ctx, func(ctx context.Context, c *client.Client) (err error) {
		forced, err = c.Force(ctx, f.name)
		return err
	})
	if err != nil {
		return err
	}
	if f.asJSON {
		return output.PrintJSON(f.out, f.jsonOf(forced))
	}
	_, err = fmt.Fprintln(f.out, forcedText(forced)+alsoText(forced))
	return output.WriteError(err)
}

// confirm shows what is about to happen, and errs unless the answer is yes.
func (f *forcer) confirm(ctx context.Context) error {
	if _, ok := term.ScreenOf(f.in); !ok {
		return exit.Usagef("force takes the lock %q from whoever holds it: without a terminal to ask, --yes is wanted", lockname.Join(f.name))
	}
	holders, err := fetchHolders(ctx, f.name)
	if err != nil {
		return err
	}
	s := observation{holders: holders}
	fmt.Fprintf(f.ask, "%q is %s\nTake it away? They may be at work until they notice. Type yes: ", lockname.Join(f.name), s.text())
	answer, _ := bufio.NewReader(f.in).ReadString('\n') // what ends before a line is no yes either
	if !strings.HasSuffix(answer, "\n") {
		fmt.Fprintln(f.ask)
	}
	if strings.TrimSpace(answer) != "yes" {
		return exit.Errorf(exitUnconfirmed, "lock %q: it was left as it is", lockname.Join(f.name))
	}
	return nil
}

func forcedText(forced client.Forced) string {
	switch {
	case forced.Holders == 0:
		return "nobody held it"
	case forced.Holder != nil:
		return fmt.Sprintf("taken from %s, who may be at work until it notices", describe.HolderName(forced.Holder))
	case forced.Holders == 1:
		return "taken from another Redlock client, which does not say who it is and may be at work until it notices"
	}
	return fmt.Sprintf("taken from %d holders, who may be at work until they notice", forced.Holders)
}

func alsoText(forced client.Forced) string {
	if len(forced.Also) == 0 {
		return ""
	}
	return fmt.Sprintf("\nlost with it, and taken until the holder has stopped: %s", output.Cell(strings.ReplaceAll(lockname.Join(forced.Also...), lockname.Separator, ", ")))
}

// forcedJSON is what force prints for programs. Names are never changed.
type forcedJSON struct {
	Lock   string            `json:"lock"`
	Forced int               `json:"forced"`
	Holder *forcedHolderJSON `json:"holder"`
	Also   []string          `json:"also,omitempty"`
}

// forcedHolderJSON is what the answer to FORCE tells of a holder.
type forcedHolderJSON struct {
	Host  string `json:"host"`
	PID   int    `json:"pid"`
	User  string `json:"user"`
	Since int64  `json:"since_ms"`
	Held  int    `json:"held"`
}

func (f *forcer) jsonOf(forced client.Forced) forcedJSON {
	value := forcedJSON{Lock: lockname.Join(f.name), Forced: forced.Holders, Also: forced.Also}
	if h := forced.Holder; h != nil {
		value.Holder = &forcedHolderJSON{Host: h.Host, PID: h.PID, User: h.User, Since: h.Since.Milliseconds(), Held: h.Held}
	}
	return value
}
