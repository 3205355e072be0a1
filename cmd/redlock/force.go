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

// exitUnconfirmed is the exit code if the user does not confirm.
const exitUnconfirmed = 1

func newForceCommand() *cobra.Command {
	f := &forcer{}
	cmd := &cobra.Command{
		Use:   "force NAME",
		Short: "Revoke a lock from its holders, on any host",
		Long: `Revoke a lock from all of its holders, on any host: all readers, all slots.

The holders are notified, and stop. Until then they may work while the next process
already holds the lock. The storage is safe from that only if it checks fencing tokens.
FORCE is for root and redlockd's own user or, with access rules, for users with "admin"
for the lock. redlockd logs it.

NAME is one lock; a comma in it is written %2C, and shown so.

On a terminal it shows the holders and asks; if nobody holds the lock, it does nothing.
Elsewhere --yes is required.

If the lock was taken together with other locks, in one request, those are lost as well.
But no process can get them until their holder has stopped, or its deadline passes.
Their names are printed if this host's daemon held them.

With --json: {"lock", "forced", "holder": {"host", "pid", "user", "since_ms", "held"},
"also"}. forced is the number of holders that lost the lock; 0 if it was free. holder is
the holder if it is known, else null: since_ms is how long it held the lock, in
milliseconds, held on how many nodes. (Before, redlock who shows more.) also has the names
of other locks that are lost with it, if they are known.

Exit codes: 0 no former holder holds the lock; 1 you did not say yes; 64 usage; 69 the
daemon is not available, or too few nodes answered; 70 internal; 76 redlockd was restarted
meanwhile, and the result is unknown; 77 denied.`,
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

// forcer revokes a lock.
type forcer struct {
	name        string
	yes, asJSON bool
	in          io.Reader
	out, ask    io.Writer
}

func (f *forcer) run(ctx context.Context) error {
	isHeld := true
	if !f.yes {
		var err error
		if isHeld, err = f.confirm(ctx); err != nil {
			return err
		}
	}
	var forced client.Forced
	if isHeld {
		var err error
		if forced, err = socket.Get(ctx, func(c *client.Client, ctx context.Context) (client.Forced, error) { return c.Force(ctx, f.name) }); err != nil {
			return err
		}
	}
	return output.Show(f.out, f.asJSON, f.jsonOf(forced), forcedText(forced)+alsoText(forced)+"\n")
}

// confirm shows the holders and asks. It fails unless the answer is yes. If no client holds the
// lock, it does not ask, because a client that takes the lock in the meantime would lose it.
func (f *forcer) confirm(ctx context.Context) (isHeld bool, err error) {
	if _, ok := term.ScreenOf(f.in); !ok {
		return false, exit.Usagef("force revokes the lock %q: without a terminal to confirm on, --yes is required", lockname.Join(f.name))
	}
	holders, err := fetchHolders(ctx, f.name)
	if err != nil || len(holders) == 0 {
		return false, err
	}
	s := observation{holders: holders}
	fmt.Fprintf(f.ask, "%q is %s\nRevoke it? Its holder may continue to work until it notices. Type yes: ", lockname.Join(f.name), s.text())
	answer, _ := bufio.NewReader(f.in).ReadString('\n') // the end of the input means no
	if !strings.HasSuffix(answer, "\n") {
		fmt.Fprintln(f.ask)
	}
	if strings.TrimSpace(answer) != "yes" {
		return false, exit.Errorf(exitUnconfirmed, "lock %q: not revoked", lockname.Join(f.name))
	}
	return true, nil
}

func forcedText(forced client.Forced) string {
	switch {
	case forced.Holders == 0:
		return "nobody held it"
	case forced.Holder != nil:
		return fmt.Sprintf("taken from %s, which may continue to work until it notices", describe.HolderName(forced.Holder))
	case forced.Holders == 1:
		return "taken from another Redlock client, which does not identify itself and may continue to work until it notices"
	}
	return fmt.Sprintf("taken from %d holders, which may continue to work until they notice", forced.Holders)
}

func alsoText(forced client.Forced) string {
	if len(forced.Also) == 0 {
		return ""
	}
	return fmt.Sprintf("\nlost with it, but still taken until the holder has stopped: %s", output.Cell(strings.ReplaceAll(lockname.Join(forced.Also...), lockname.Separator, ", ")))
}

// forcedJSON is the document that force prints. Its keys never change.
type forcedJSON struct {
	Lock   string            `json:"lock"`
	Forced int               `json:"forced"`
	Holder *forcedHolderJSON `json:"holder"`
	Also   []string          `json:"also,omitempty"`
}

// forcedHolderJSON is the holder in the answer to FORCE.
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
