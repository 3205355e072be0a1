package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/redlockd/redlockd/ipc"
)

// The text of an error names the operation, the lock and the reason, each once.
func TestTextsOfErrors(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	because, cancelCause := context.WithCancelCause(t.Context())
	cancelCause(errors.New("the caller hung up"))
	for _, test := range []struct {
		err  error
		want string
	}{
		{&Error{Op: "check", Name: "job", Code: "NOTHELD"}, `check "job": not held`},
		{&Error{Op: "lock", Name: "job", Code: "HELD", Text: "job: held by alice on web3"}, `lock "job": held by alice on web3`},
		{&Error{Op: "lock", Name: "a,b", Code: "HELD", Text: "b: held by alice on web3"}, `lock "a,b": b: held by alice on web3`},
		{&Error{Op: "lock", Name: "job", Code: "HELD", Text: "job: kept for alice on web3"}, `lock "job": HELD: kept for alice on web3`},
		{&Error{Op: "lock", Name: "job", Code: "NOQUORUM", Text: "job: no quorum: 3 nodes failed"}, `lock "job": no quorum: 3 nodes failed`},
		{&Error{Op: "status", Code: "DENIED", Text: "no rule"}, `status: DENIED: no rule`},
		{&Error{Op: "status", Text: "no code"}, `status: no code`},
		{lostError("job", "", ErrClosed), `lease "job": LOST: client closed`},
		{lostError("job", "it is gone", ErrClosed), `lease "job": LOST: it is gone`},
		{notHeldError(ipc.VerbExtend, "job"), `extend "job": NOTHELD: it is already unlocked`},
		{contextError("lock", "job", cancelled), `lock "job": gave up waiting: context canceled`},
		{contextError("lock", "job", because), `lock "job": gave up waiting: context canceled (the caller hung up)`},
	} {
		if got := test.err.Error(); got != test.want {
			t.Errorf("error %q, want %q", got, test.want)
		}
	}
}

// The error of each protocol code matches its own sentinel, and no other.
func TestSentinelsOfAllCodes(t *testing.T) {
	want := map[ipc.Code]error{
		ipc.CodeSyntax: ErrInvalid, ipc.CodeVerb: ErrInvalid, ipc.CodeName: ErrInvalid, ipc.CodeOption: ErrInvalid, ipc.CodeTooLong: ErrInvalid,
		ipc.CodeHeld: ErrHeld, ipc.CodeAlready: ErrHeld, ipc.CodeDeadlock: ErrDeadlock, ipc.CodeNoQuorum: ErrNoQuorum,
		ipc.CodeNotHeld: ErrNotHeld, ipc.CodeLost: ErrLost, ipc.CodeDenied: ErrDenied, ipc.CodeLimit: ErrLimit,
		ipc.CodeShutdown: ErrShutdown, ipc.CodeInternal: ErrInternal, ipc.CodeUnknown: ErrUnknown, ipc.CodeCancelled: ErrCancelled,
	}
	for code, own := range want {
		for _, sentinel := range want {
			if got := errors.Is(&Error{Code: string(code)}, sentinel); got != (sentinel == own) {
				t.Errorf("%s matches %v: %v", code, sentinel, got)
			}
		}
	}
}

// The text of a loss explains it, even if the daemon gave only a reason.
func TestTextsOfLosses(t *testing.T) {
	for event, want := range map[string]string{
		"LOST lock=job lease=abc reason=quorum":         "it could not be extended on a quorum of nodes",
		"LOST lock=job lease=abc reason=forced":         "it was revoked with FORCE: others may already hold it",
		"LOST lock=job lease=abc reason=max":            "its maximum holding time has passed",
		"LOST lock=job lease=abc reason=beat":           "no BEAT came in time",
		"LOST lock=job lease=abc reason=expired":        "its ttl has passed",
		"LOST lock=job lease=abc reason=newer":          "reason newer",
		"LOST lock=job lease=abc reason=max : by FORCE": "by FORCE",
	} {
		var r ipc.Response
		if err := ipc.ParseResponse([]byte(event), &r); err != nil {
			t.Fatal(err)
		}
		if got := lostByEvent("job", &r); got.Error() != `lease "job": LOST: `+want || !errors.Is(got, ErrLost) || got.Fields["lease"] != "abc" {
			t.Errorf("%s: %v, want %q", event, got, want)
		}
	}
}

func TestCodesMatchSentinels(t *testing.T) {
	for code, sentinel := range sentinels {
		if code == ipc.CodeShutdown {
			continue // not an answer: see TestShutdownIsNoAnswer
		}
		synctest.Test(t, func(t *testing.T) {
			c, d := dialScripted(t)
			locked := async(func() (*Lease, error) { return c.Lock(t.Context(), "job") })
			d.line()
			d.say("@0 ERR " + string(code) + " lock=job retry=500 : some reason")
			_, err := locked.wait()
			want(t, string(code), err, sentinel)
			var e *Error
			if !errors.As(err, &e) || e.Code != string(code) || e.Name != "job" || e.Text != "some reason" || e.Fields["retry"] != "500" {
				t.Errorf("%s: %#v, want the code, lock, text and fields of the reply", code, err)
			}
		})
	}
}

func TestNoSentinelForAnUnknownCode(t *testing.T) {
	e := &Error{Op: "lock", Name: "job", Code: "NEWER"}
	for _, sentinel := range sentinels {
		if errors.Is(e, sentinel) {
			t.Errorf("%v matches %v", e, sentinel)
		}
	}
	if want := `lock "job": NEWER: refused by redlockd`; e.Error() != want {
		t.Errorf("error %q, want %q", e.Error(), want)
	}
}
