// Package redlocktest is what package redlock and everything built on it is
// tested with: redis-servers that are started for one test and can be killed
// and stopped (StartRedis), a simulated node whose network, clock and memory
// fail as the test says (Sim), and one suite that both must pass
// (Conformance), so that what holds on the simulated node holds on Redis.
//
// # A simulation that searches
//
// Simulate puts nodes, daemons and clients into a bubble of fake time and has
// things go wrong there: latency, lost requests and replies, connections whose
// bytes arrive late, hung and crashed nodes, lost, foreign and older data,
// partitions, wrong and stepped clocks, crashed daemons, clients that stand still
// or give up, an operator who forces locks away. All follows from a seed. What was
// granted, extended, lost and released is checked against what package redlock
// promises. TestSearch there looks through seeds; REDLOCKD_LONG=1 through many
// more; -seed N repeats one.
//
// What it would find is shown by mistakes planted on purpose, one at a time, and
// by what found them (seeds needed, and seconds on a slow processor):
//
//	quorum of half the nodes            exclusion     1   0.1
//	one token for all attempts          leftover      4   0.1
//	start read after the answers        exclusion    61   3.9
//	drift left out                      exclusion   181  12.0
//	no check of elapsed time            validity     10   0.6
//	acquire without not-after           leftover      3   0.1
//	LOST at the deadline                loss          6   0.2
//	release at LOST                     exclusion     4   0.1
//	lapsed lease extended               finality    155   7.6
//	extension that shortens a deadline  shortening    6   0.2
//	extension that shortens an expiry   exclusion    23   0.9
//	extension that re-acquires a lock   order         2   0.1
//	repair counts at once               exclusion   179   6.9
//	release overtakes acquire           order         1   0.1
//	old connection not killed           order        41   1.2
//	releases not repeated               debris        8   0.2
//	DEL without comparing               exclusion     1   0.1
//	token from a minority               fence         4   0.1
//	write-back without ownership        quorum       13   0.6
//	no quarantine                       exclusion     8   0.3
//	quarantine by uptime                quarantine    6   0.2
//	vote of a quarantined node          quorum        1   0.1
//	counters not copied                 counters     21   0.9
//	counters copied too early           counters     21   1.5
//	blind FORCE                         exclusion     2   0.1
//	epoch checked on connect only       exclusion    54   2.6
//	hand-over without a new token       fence         2   0.2
//	semaphore as a counter              exclusion     2   0.2
//	reader admitted by a minority       exclusion     1   0.1
//	slots=3 beside slots=5              exclusion     2   0.1
//	wake-up lost between refusal
//	and arming                          wake          1   0.1
//	foreign client beside readers       exclusion     1   0.1
//	vouchers that compare nothing       quarantine   33   1.0
package redlocktest
