package client

import (
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestForce(t *testing.T) {
	web3 := &Holder{Name: "job", Host: "web3", PID: 12, User: "cron", Since: 100 * time.Millisecond, Held: 3}
	for _, test := range []struct {
		answer string
		want   Forced
	}{
		{"OK lock=job n=0 : nobody held it", Forced{}},
		{"OK lock=job n=1 held=3 host=web3 pid=12 user=cron since=100 : told", Forced{1, web3, nil}},
		{"OK lock=job n=1 held=3 : told", Forced{1, nil, nil}},
		{"OK lock=job n=7 also=a,b%20c", Forced{7, nil, []string{"a", "b c"}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			c, d := dialScripted(t)
			asked := async(func() (Forced, error) { return c.Force(t.Context(), "job") })
			d.expect("@0 FORCE job")
			d.say("@0 " + test.answer)
			if got := asked.must(t); !reflect.DeepEqual(got, test.want) {
				t.Errorf("%s: %+v, want %+v", test.answer, got, test.want)
			}
		})
	}
}

func TestAdmit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		asked := async(func() ([]string, error) { return c.Admit(t.Context(), "all") })
		d.expect("@0 ADMIT all")
		d.say("@0 - node=a state=ready", "@0 - node=b state=ready", "@0 OK n=2")
		if got := asked.must(t); !reflect.DeepEqual(got, []string{"a", "b"}) {
			t.Errorf("admitted: %q, want a and b", got)
		}
	})
}

func TestAdminIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		forced := async(func() (Forced, error) { return c.Force(t.Context(), "job") })
		d.expect("@0 FORCE job")
		d.say("@0 ERR DENIED : only root")
		_, err := forced.wait()
		want(t, "force", err, ErrDenied)
		admitted := async(func() ([]string, error) { return c.Admit(t.Context(), "x") })
		d.expect("@0 ADMIT x")
		d.say("@0 ERR OPTION : no such node")
		_, err = admitted.wait()
		want(t, "admit", err, ErrInvalid)
		_, err = c.Force(t.Context(), "redlockd:node")
		want(t, "force of a reserved name", err, ErrInvalid)
		for _, node := range []string{"", strings.Repeat("n", 201)} {
			_, err = c.Admit(t.Context(), node)
			want(t, "admit of "+node, err, ErrInvalid)
		}
	})
}
