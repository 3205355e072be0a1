package daemon

import "github.com/hashicorp/hcl/v2"

// unsupported refuses what the config format has and this version does not
// enforce: a rule that is read and ignored would protect nobody.
func unsupported(cfg *Config, at map[string]hcl.Range) []ConfigFault {
	var faults []ConfigFault
	refuse := func(name, text string) {
		faults = append(faults, configFaultAt(at[name], name+": not supported by this version of redlockd; "+text))
	}
	if cfg.Access != nil {
		refuse("access", "remove the block: everyone who can open the socket may lock anything (see socket.mode and socket.group)")
	}
	return faults
}
