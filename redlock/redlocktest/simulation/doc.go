// Package simulation searches for broken promises of package redlock.
//
// Simulate puts nodes, daemons and clients into a bubble of fake time and injects faults:
//   - latency, lost requests and replies, connections whose bytes arrive late, partitions;
//   - hung and crashed nodes, and nodes with lost, foreign or older data;
//   - addresses that lead to another Redis and back;
//   - wrong and stepped clocks;
//   - crashed daemons, clients that pause or stop waiting, an operator that forces locks
//     away.
//
// A seed determines all of it. Simulate checks what was granted, extended, lost and
// released against the promises of package redlock.
//
// TestSearch in package redlock calls it with many seeds; REDLOCKD_LONG=1 with many more;
// -seed N repeats one. The simulated node is [redlocktest.Sim].
//
// Mistakes that were planted on purpose, one at a time, show what it finds. The columns
// are the check that found each, the seeds needed, and the seconds on a slow processor:
//
//	quorum of half the nodes            exclusion     1  0.1
//	one token for all attempts          leftover      1  0.1
//	start read after the answers        exclusion    24  0.6
//	drift left out                      exclusion    44  1.0
//	no check of elapsed time            validity      2  0.1
//	acquire without not-after           leftover      1  0.1
//	LOST at the deadline                loss          1  0.1
//	release at LOST                     exclusion     4  0.1
//	lapsed lease extended               finality     16  0.4
//	extension that shortens a deadline  shortening    3  0.1
//	extension that shortens an expiry   exclusion     7  0.1
//	extension that re-acquires a lock   order        16  0.5
//	repair counts at once               order       133  3.4
//	release overtakes acquire           order         1  0.1
//	old connection not killed           order        52  1.2
//	releases not repeated               debris        1  0.1
//	DEL without comparing               exclusion     1  0.1
//	token from a minority               fence         4  0.1
//	write-back without ownership        quorum       23  0.5
//	no quarantine                       exclusion     8  0.2
//	quarantine by uptime                quarantine    8  0.3
//	vote of a quarantined node          quorum        1  0.1
//	counters not copied                 counters     21  0.5
//	counters copied too early           counters     21  0.5
//	former node believed                quorum       68  1.6
//	blind FORCE                         exclusion   113  2.8
//	epoch checked on connect only       exclusion    69  1.9
//	hand-over without a new token       fence         1  0.1
//	semaphore as a counter              exclusion     7  0.2
//	reader admitted by a minority       exclusion     1  0.1
//	slots=3 beside slots=5              exclusion     1  0.1
//	wake-up lost between refusal
//	and arming                          wake          1  0.1
//	foreign client beside readers       exclusion     1  0.1
//	released lease adopted              liveness      5  0.2
//	lapsed lease adopted                exclusion     1  0.1
//	attempt noted too late              debris       10  0.3
//	vouchers that compare nothing       quarantine   33  0.9
package simulation
