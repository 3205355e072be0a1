// Package simulation searches for broken promises of package redlock.
//
// Simulate puts nodes, daemons and clients into a bubble of fake time and injects faults:
//   - latency, lost requests and replies, connections that deliver late, partitions;
//   - hung and crashed nodes; nodes that lost their data, or got foreign or older data;
//   - addresses that move to another Redis and back;
//   - wrong and stepped clocks;
//   - crashed daemons; clients that pause or stop waiting; an operator that sends FORCE;
//   - downgrades from exclusive to shared;
//   - passes that come late, go to a client that has ended, or race with a FORCE;
//   - locks that stay taken after their holders have ended (min=);
//   - listings of all locks (redlock list --all) while all this happens;
//   - tokens that are exchanged after a pass, during a FORCE or a restart.
//
// The seed determines everything. Simulate checks what was granted, extended, lost and released
// against the promises of package redlock.
//
// TestSearch in package redlock calls it with many seeds, and with REDLOCKD_LONG=1 with many more;
// -seed N repeats one. The simulated node is [redlocktest.Sim].
//
// A [Scene] has no random faults. It makes certain calls in a certain order that a random search
// does not reach. [Crowd] is the scene of TestSearchCrowd: many hosts want one lock, and messages are
// late or lost. It checks the wait queues: how long a free lock stays free while clients wait (idle), how
// often a waiter is overtaken, which entries stay (entry), and whom the nodes call (called, twice).
//
// [Traced] records what hosts and nodes do, for a comparison with the model (packaging/model).
//
// The table lists mistakes that were planted on purpose, one at a time. The columns are the check
// that found the mistake, and how many seeds that took, counted from the first one. (In a normal
// run, the search for a mistake starts with a seed that finds it. Mistakes that are marked as rare are
// only searched for with REDLOCKD_LONG.)
//
//	quorum of half the nodes                exclusion     1
//	one token for all attempts              leftover      3
//	start read after the answers            exclusion   rare
//	drift left out                          exclusion   rare
//	no check of elapsed time                validity     14
//	acquire without not-after               leftover    46
//	LOST at the deadline                    loss          1
//	release at LOST                         exclusion     1
//	expired lease extended                  finality     64
//	extension that shortens a deadline      shortening    4
//	extension that shortens an expiry       exclusion     7
//	extension that re-acquires a lock       order        11
//	repair counts at once                   order   rare
//	release overtakes acquire               order         1
//	old connection not killed               order   rare
//	later groups counted as not sent        debris      983
//	releases not repeated                   debris        2
//	DEL without comparing                   exclusion     1
//	token from a minority                   fence         4
//	write-back without ownership            fence         1
//	no quarantine                           exclusion    11
//	quarantine by uptime                    quarantine    3
//	vote of a quarantined node              quorum        1
//	counters not copied                     counters    68
//	counters copied too early               counters   rare
//	former node believed                    quorum       68
//	blind FORCE                             exclusion     2
//	epoch checked on connect only           exclusion    92
//	hand-over without a new fencing token   fence         1
//	semaphore as a counter                  exclusion     7
//	reader admitted by a minority           exclusion     2
//	slots=3 beside slots=5                  exclusion     1
//	a release calls nobody                   wake          1
//	a turn does not end                     idle          1
//	an entry stays after a grant            called        2
//	END_WAIT is ignored                     entry         1
//	tickets are ignored                     overtaken     3
//	dead hosts are called                   called        1
//	called twice for one turn               twice         1
//	foreign client beside readers           exclusion     1
//	released lease adopted                  adoption      2
//	expired lease adopted                   finality      2
//	attempt noted too late                  debris     5
//	pass window from the answer             window    24
//	pass window not read again              window        6
//	pass to a client that is gone           gone          6
//	write-back to the start of the block    quorum        2
//	block used after a loss                 fence   rare
//	FORCE that does not wait                force   rare
//	confirmation in spite of FORCE          force   rare
//	passes not counted in a row             starvation    2
//	pass noted too late                     adoption      2
//	downgraded lease adopted as exclusive   adoption     24
//	downgrade confirmed by a minority       downgrade   rare
//	downgrade asked for once                downgrade   rare
//	downgraded lease repaired as exclusive  downgrade    46
//	kept lock released when its holder ends min   rare
//	min forgotten by a restart              min   rare
//	kept lock not released after min        liveness     54
//	list that walks a node too few          list          8
//	minority taken for a holder             list          4
//	token abandoned that was passed on      exclusion    64
//	block handed out again by a restart     window   rare
//	exchange in spite of FORCE              force   rare
//	exchange noted too late                 adoption   rare
//	lost lease passed on                    lost         77
//	vouchers that compare nothing           quarantine   57
package simulation
