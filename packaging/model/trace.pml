/* trace: redlockd.pml, driven by what the code did.
 *
 * trace_test.go makes a file of a simulation: the bounds, an #include of this file, and a process that
 * loads the steps of the code, one after the other. Each observable step of the model must be the step that
 * was loaded, with the same outcome. If the model can take the last one, it allows what the code did.
 * The model's other steps are free: ticks, lost messages, the start of a write-back, counters that are copied.
 *
 * Time: the model is as many ticks from the beginning as the code, or up to LAG more.
 *
 * What only traces have: calls are lost, FORCE finds its token on any two nodes, the client of an extension
 * stops waiting before the ttl is over, daemons see a new epoch at once, and there are more tokens.
 */

#define TRACE
#define SET int
#define SHARED 31

#define LAG 1
#define DRIFT 3 /* how much sooner a deadline of the code may be: the drift allowance is 17 ms, and a tick 15 ms */

/* steps */
#define BEGINS 1
#define FAILS 2
#define GRANTS 3
#define EXTENDS_LEASE 4
#define EXTENDED_LEASE 5
#define EXTENSION_FAILS 6
#define STOPS 7
#define FORCES_LOCK 8
#define EXECUTES 9
#define RELEASES_TOKEN 10
#define LOSES_DATA 11
#define MARKS 12
#define ADMITS 13
#define FORCE_ANSWERED 14
#define READS_COUNTERS 15
#define EXCHANGES_TOKEN 16 /* no trace has it yet */
#define DEVIATES 255 /* the outcome is another one than in the code: no step follows */

byte step;   /* the step that was loaded; 0: none */
byte who;    /* its daemon */
byte where;  /* its node */
byte which;  /* its token */
byte op;     /* EXECUTES: the call */
byte can_vote; /* 0: the node has no vote */
byte result; /* 1: it did what was asked for */
byte value;  /* the fencing token; 0: none */
byte left;   /* ticks until the new deadline */
short due;   /* the tick of the code */
short ticks;
byte forcer; /* the daemon that an operator sent FORCE, plus 1 */

#define IS(s) (step == (s) && ticks >= due)
#define MAY(s, d, n) (IS(s) && who == (d) && where == (n))
#define DONE step = 0
#define MAY_GRANT(d) (MAY(GRANTS, d, 0) && value == fence[d] && left <= VALIDITY(d) + LAG)
#define MAY_EXTEND(d) (MAY(EXTENDED_LEASE, d, 0) && left <= (VALIDITY(d) > deadline[d] -> VALIDITY(d) : deadline[d]) + LAG)
#define FAILS_EARLY(d) MAY(EXTENSION_FAILS, d, 0)

#define TOKEN_OF(k) (call[k] == SWAP -> argument[k] : subject[k])
#define MAY_EXECUTE(d, n, k) (MAY(EXECUTES, d, n) && can_vote && op == call[k] && which == TOKEN_OF(k) && VOTES(d, n) && \
	(op != FORCE || result == (key[n] == which)))
#define IS_RESULT(n) (op == FORCE || result == (key[n] == which) && (!value || value == counter[n]))
#define EXECUTED(n, k) step = (IS_RESULT(n) -> 0 : DEVIATES)
#define MAY_RELEASE(d, n, k) (MAY(RELEASES_TOKEN, d, n) && which == key[n] && result)

/* Steps that cannot be observed are free only when a step of their daemon follows, which may need them. */
#define IN_TURN(d) (step && who == (d))
#define ENDS(d) (IN_TURN(d) && deadline[d] <= DRIFT)
#define MAY_LOSE_CALL(d, k) (IN_TURN(d) && !(step == EXECUTES && op == call[k]))
#define MAY_READ(n) (IS(READS_COUNTERS) && where == (n))

#define MAY_FORCE(d) (forcer == (d) + 1)
#define FORCE_BEGAN forcer = 0
#define SHOWN (key[1] && key[1] == key[2] -> key[1] : (key[0] && (key[0] == key[1] || key[0] == key[2]) -> key[0] : 0))

#define MAY_TICK (step && step != DEVIATES && ticks < due + LAG)
#define COUNT_TICK ticks++
#define MAY_LOSE true
#define COUNT_LOSS skip
#define MAY_CRASH false

#include "redlockd.pml"

/* Daemons have looked at every node since its epoch changed. (In the code, they look once a second.) */
#define SEES(k, n) (epoch[n] == 0 || epoch[n] == (pending & BIT(n) -> marker[k] : known[k]))
#define LOOKED (SEES(0, 0) && SEES(1, 1) && SEES(2, 2) && SEES(3, 0) && SEES(4, 1) && SEES(5, 2))

/* What the model has no step for. */
active proctype Observer() {
end:	do
	:: d_step { IS(LOSES_DATA) -> lose_data(where); step = 0 }
	:: d_step { IS(FORCES_LOCK) -> forcer = who + 1; step = 0 }
	:: d_step { IS(FORCE_ANSWERED) && !result -> forcer = 0; forced = 0; noted = 0; deleted = 0; window = 0; step = 0 }
	:: d_step { IS(READS_COUNTERS) -> step = 0 }
	/* Its daemon may not have seen the node's present epoch yet. */
	:: d_step { IS(EXECUTES) && !can_vote -> step = 0 }
	/* A release of a token that the node does not have, which may be repeated. */
	:: d_step { IS(RELEASES_TOKEN) && !result && key[where] != which -> step = 0 }
	od
}

#define STEP(s, d, n, t, o, v, r, f, l, at) \
	d_step { step == 0 && LOOKED -> step = s; who = d; where = n; which = t; op = o; can_vote = v; result = r; value = f; left = l; due = at }
