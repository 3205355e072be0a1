package session

import (
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/daemon/logging"
)

func loadRules(t *testing.T, rules string) *config.Access {
	t.Helper()
	return mustLoad(t, nodesSource(3)+"access {\n"+rules+"\n}\n").Access
}

const exampleRules = `
rule "web" {
  users = ["4001"]
  locks = ["web/*"]
  allow = ["lock", "inspect"]
}
rule "batch" {
  groups = ["4102"]
  locks  = ["batch/**", "web/shared"]
  allow  = ["lock"]
}
rule "watch" {
  users = ["4003"]
  locks = ["web/*", "batch/a"]
  allow = ["inspect"]
}
rule "ops" {
  users = ["4004"]
  locks = ["**"]
  allow = ["admin"]
}
rule "web-ops" {
  users = ["4001", "4005"]
  locks = ["web/**"]
  allow = ["admin"]
}`

func TestAccessDenialIsLogged(t *testing.T) {
	d := startDaemon(t, 1, func(cfg *config.Config) { cfg.Access = loadRules(t, exampleRules) })
	var log daemontest.Log
	w := d.anotherWithLog(logging.New(&log, hclog.Info, logging.Text)).dial()
	w.Say("FORCE x", `ERR DENIED lock=x : .*`)
	if !strings.Contains(log.String(), "[INFO]  denied: user=") {
		t.Errorf("the log lacks the denial:\n%s", log.String())
	}
}
