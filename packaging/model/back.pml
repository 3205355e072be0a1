/* back: the set of nodes changes from one list to another and back, and again. Nodes come back with old state,
 * and writes of hosts arrive late.
 *
 * The list A has all three nodes, the list B only node C. Changes lead from A to B, back to A, and so on. Each
 * list has a number, which a node stores: A is 1, then B is 2, A is 3. See nodes.pml for one change.
 *
 * A host has one config after the other: A, A to B, B, B to A, A. It may be late by any time, or too
 * early. It does not know the number from its config. A host that looks at nodes can be stopped for any time
 * before it writes. So can the packet: no write has a not-after here.
 *
 *   spin -a back.pml && cc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c && ./pan
 *
 * Bounds, each a -D flag:
 *
 *   CHANGES   how many changes there are
 *   CONFIGS   how many configs a host has after its first one
 *   LATE      host 0 is stopped between a look and a write for at most so many times; other looks and writes are one step
 *   CRASHES   how often nodes 0 and 1 lose their data. (An operator who removes the state of a node that left does the same.)
 *   LOSSES    how often node C does
 *   AWAKE     no host sleeps
 *   GRANTS    count fencing tokens, for this many grants; 0: any number of grants, and no tokens
 *
 * Planted mistakes:
 *
 *   NO_NUMBER          a write compares the lists and the step, and not the number
 *   ANY_WITNESS        a node that serves a list shows that the last change to it is done, whatever its number
 *   ONE_SOURCE         a node that lost its data takes the stage of one other node
 *   NO_COUNTERS        a node that is behind keeps its counters
 *   FORGETS_REFUSAL    a host that was refused takes empty nodes for new ones
 *   ASKS_A_MAJORITY    a host that slept takes a majority of empty nodes for new ones without the third
 *
 * What is simpler than in redlockd: a ballot is one step. A look shows all nodes at one instant. Every lease
 * and every wait ends with the next tick. A host that does not sleep sees each refusal by then.
 */

#define D 2
#define NODES 3
#define C 2 /* the node of list B */

#ifndef CHANGES
#define CHANGES 3
#endif
#ifndef CONFIGS
#define CONFIGS 6
#endif
#ifndef LATE
#define LATE 0
#endif
#ifndef CRASHES
#define CRASHES 0
#endif
#ifndef LOSSES
#define LOSSES 0
#endif
#ifndef GRANTS
#define GRANTS 0
#endif

/* What a node has stored: 3 times the number of a list, and the step of the change from it: 0 none, 1 begun, 2
   committed. A change that is done is the next list. Odd numbers are lists A, even ones B. */
#define LOST 0
#define FIRST 3 /* list 1 */
#define NUMBER(p) ((p) / 3)
#define STEP(p) ((p) % 3)
#define BEGUN(k) (3 * (k) + 1)
#define COMMITTED(k) (3 * (k) + 2)
#define LIST(k) (3 * (k))
#define IS_OF_A(p) (NUMBER(p) % 2 == 1)
#define IN_USE(p) ((p) && STEP(p) < 2) /* the node serves hosts with this list */
#define SERVES_A(n) (IN_USE(stored[n]) && IS_OF_A(stored[n]))
#define SERVES_B(n) (IN_USE(stored[n]) && !IS_OF_A(stored[n]))
#define IN_AB(n) (STEP(stored[n]) && IS_OF_A(stored[n]) || STEP(stored[n]) == 0 && stored[n] && !IS_OF_A(stored[n]))
#define IN_BA(n) (STEP(stored[n]) && !IS_OF_A(stored[n]) || STEP(stored[n]) == 0 && stored[n] > FIRST && IS_OF_A(stored[n]))

/* configs, in this order; then A again, and so on */
#define HAS(d) (config[d] % 4)
#define HAS_A 0
#define HAS_AB 1
#define HAS_B 2
#define HAS_BA 3

/* A joint host counts a node of one list as hosts with that list do. */
#define SERVES(n, d) (HAS(d) == HAS_A && SERVES_A(n) || \
	HAS(d) == HAS_AB && (IN_AB(n) || SERVES_A(n) || n == C && SERVES_B(n)) || \
	HAS(d) == HAS_B && n == C && SERVES_B(n) || \
	HAS(d) == HAS_BA && (IN_BA(n) || SERVES_A(n) || n == C && SERVES_B(n)))

byte stored[NODES];
byte key[NODES];        /* the host that has the lock, plus 1 */
bit waited[NODES];      /* a tick has passed since it got its stage, or lost its data */
byte counter[NODES];
byte config[D];
bit deadline[D];        /* in ticks: it holds the lock until the next one */
bit sleeps[D];
bit refused[D];         /* it knows that its list A is not in use */
byte late;              /* how often host 0 was stopped */
byte lateNode, lateFrom, lateTo, lateCounter; /* the write of host 0: the node plus 1; 0: none */
byte crashes, losses, grants, largest, fence;
byte i;
byte to, by;            /* a stage and a counter to write */

#if GRANTS
#define COUNTED(count) count
#else
#define COUNTED(count) 0
#endif
#define OTHER(n, k) ((n + k) % NODES)
#define MAX(x, y) ((x) > (y) -> (x) : (y))
/* The number of list A that a node shows; 0: none. A node that is done with a change from A shows A's, too. */
#define A_NUMBER(n) (IS_OF_A(stored[n]) -> NUMBER(stored[n]) : (STEP(stored[n]) == 0 && stored[n] -> NUMBER(stored[n]) - 1 : 0))
#define B_NUMBER(n) (stored[n] && !IS_OF_A(stored[n]) -> NUMBER(stored[n]) : (STEP(stored[n]) == 0 && stored[n] > FIRST -> NUMBER(stored[n]) - 1 : 0))
/* A node has refused list k for a tick, and has kept its data. */
#define REFUSED(n, k) ((stored[n] == COMMITTED(k) || stored[n] == LIST(k + 1)) && waited[n])
#define BEFORE_DONE(n, k) (stored[n] == BEGUN(k) || stored[n] == COMMITTED(k))

inline store(n, what) {
	if :: STEP(stored[n]) == 2 && what == stored[n] + 1 -> skip :: else -> waited[n] = 0 fi; /* done: it goes on refusing */
	stored[n] = what
}

/* write gives node n what host d has decided after its look, to and by: now or later. */
inline write(d, n) {
	if
	:: d == 0 && late < LATE && lateNode == 0 -> late++; lateNode = n + 1; lateFrom = stored[n]; lateTo = to; lateCounter = COUNTED(by)
	:: true -> store(n, to); counter[n] = MAX(counter[n], COUNTED(by))
	fi;
	to = 0; by = 0
}

#ifdef NO_NUMBER
#define IS_AS_SEEN(n) (stored[n] && lateFrom && stored[n] % 6 == lateFrom % 6)
#else
#define IS_AS_SEEN(n) (stored[n] == lateFrom)
#endif

#define GIVES(n, d) (SERVES(n, d) && key[n] == 0)
#define MAY_TAKE(d) (!deadline[d] && !sleeps[d] && (GRANTS == 0 || grants < GRANTS))

/* take lets host d take the lock with the votes of nodes a and b, which may be the same. */
inline take(d, a, b) {
	key[a] = d + 1; key[b] = d + 1; deadline[d] = 1;
	assert(!(deadline[0] > 0 && deadline[1] > 0)); /* one holder */
#if GRANTS
	grants++;
	fence = MAX(counter[a], counter[b]) + 1;
	counter[a] = fence; counter[b] = fence;
	assert(fence > largest); /* token order */
	largest = fence;
	fence = 0
#endif
}

#ifdef FORGETS_REFUSAL
#define MAY_BE_NEW(d, third) true
#elif defined(ASKS_A_MAJORITY)
#define MAY_BE_NEW(d, third) (!refused[d])
#else
#define MAY_BE_NEW(d, third) (!refused[d] && (stored[third] == LOST || SERVES_A(third)))
#endif

/* Pair is what host d does with nodes a and b: two nodes are a majority of A. A quorum of joint hosts has node C, too, or is
   one of hosts with the old list. */
proctype Pair(byte d; byte a; byte b; byte third) {
end:	do
	:: d_step { MAY_TAKE(d) && GIVES(a, d) && GIVES(b, d) && (HAS(d) == HAS_A ||
			(HAS(d) == HAS_AB || HAS(d) == HAS_BA) && b == C ||
			HAS(d) == HAS_AB && SERVES_A(a) && SERVES_A(b)) -> take(d, a, b) }
	/* A majority of A lost its data at one instant. A host with that list believes all nodes to be new. */
	:: d_step { !sleeps[d] && HAS(d) == HAS_A && stored[a] == LOST && waited[a] && stored[b] == LOST && waited[b] && MAY_BE_NEW(d, third) ->
		store(a, FIRST); store(b, FIRST) }
	/* A change from A begins with the number that a majority shows. */
	:: atomic { !sleeps[d] && HAS(d) == HAS_AB && SERVES_A(a) && STEP(stored[a]) == 0 && stored[b] && A_NUMBER(b) <= NUMBER(stored[a]) && NUMBER(stored[a]) <= CHANGES ->
		to = stored[a] + 1; write(d, a) }
	:: atomic { !sleeps[d] && HAS(d) == HAS_AB && SERVES_A(b) && STEP(stored[b]) == 0 && stored[a] && A_NUMBER(a) <= NUMBER(stored[b]) && NUMBER(stored[b]) <= CHANGES ->
		to = stored[b] + 1; write(d, b) }
	/* It is done on C: a majority refused the old list at one instant, and still does after the wait. */
	:: atomic { !sleeps[d] && HAS(d) == HAS_AB && IS_OF_A(stored[C]) && STEP(stored[C]) && REFUSED(a, NUMBER(stored[C])) && REFUSED(b, NUMBER(stored[C])) ->
		to = LIST(NUMBER(stored[C]) + 1); by = MAX(counter[a], counter[b]); write(d, C) }
	od
}

proctype Host(byte d) {
end:	do
	:: d_step { config[d] < CONFIGS -> config[d]++; refused[d] = 0 }
	:: d_step { MAY_TAKE(d) && (HAS(d) == HAS_B || HAS(d) == HAS_BA && SERVES_B(C)) && GIVES(C, d) -> take(d, C, C) }
#if CRASHES && !defined(AWAKE)
	:: d_step { d == 0 -> sleeps[d] = !sleeps[d] }
#endif
	od
}

#ifdef NO_COUNTERS
#define COUNTER(n) 0
#else
#define COUNTER(n) counter[n]
#endif

#ifdef ANY_WITNESS
#define IS_BEHIND(n, w) (!SERVES_A(n) && IN_BA(n))
#define SHOWN(n, w) LIST(NUMBER(stored[n]) + 1)
#else
#define IS_BEHIND(n, w) (NUMBER(stored[n]) < NUMBER(stored[w]))
#define SHOWN(n, w) LIST(NUMBER(stored[w]))
#endif

/* Lane is what host d does with node n, besides locks. */
proctype Lane(byte d; byte n) {
	byte w;
end:	do
	:: atomic { !sleeps[d] && HAS(d) == HAS_AB && IS_OF_A(stored[n]) && STEP(stored[n]) == 1 -> to = stored[n] + 1; write(d, n) } /* commit */
	:: atomic { !sleeps[d] && HAS(d) == HAS_A && IS_OF_A(stored[n]) && STEP(stored[n]) == 1 -> to = stored[n] - 1; write(d, n) } /* undo */

	:: atomic { !sleeps[d] && HAS(d) == HAS_BA && n == C && SERVES_B(n) && STEP(stored[n]) == 0 && NUMBER(stored[n]) <= CHANGES -> to = stored[n] + 1; write(d, n) }
	:: atomic { !sleeps[d] && HAS(d) == HAS_BA && n == C && SERVES_B(n) && STEP(stored[n]) == 1 -> to = stored[n] + 1; write(d, n) }
	:: atomic { !sleeps[d] && HAS(d) == HAS_B && n == C && SERVES_B(n) && STEP(stored[n]) == 1 -> to = stored[n] - 1; write(d, n) }
	/* A node that left joins again, whatever its state is: its number shows that it is behind. */
	:: atomic { !sleeps[d] && HAS(d) == HAS_BA && n != C && stored[n] && B_NUMBER(C) && B_NUMBER(C) <= CHANGES && stored[n] < BEGUN(B_NUMBER(C)) ->
		to = BEGUN(B_NUMBER(C)); write(d, n) }
	:: atomic { !sleeps[d] && HAS(d) == HAS_BA && STEP(stored[n]) && !IS_OF_A(stored[n]) && REFUSED(C, NUMBER(stored[n])) ->
		to = LIST(NUMBER(stored[n]) + 1); by = counter[C]; write(d, n) }

	/* A node that missed steps gets the list that another node serves with a larger number, and its counters. */
	:: atomic { !sleeps[d] && HAS(d) != HAS_B && stored[n] ->
		w = OTHER(n, 1);
		if :: !(SERVES_A(w) && IS_BEHIND(n, w)) -> w = OTHER(n, 2) :: else fi;
		if :: SERVES_A(w) && IS_BEHIND(n, w) -> to = SHOWN(n, w); by = COUNTER(w); write(d, n) :: else fi;
		w = 0
	}

#if CRASHES + LOSSES
#ifdef ONE_SOURCE
#define HAS_SOURCES(n, d) (SERVES(OTHER(n, 1), d) || SERVES(OTHER(n, 2), d))
#define SOURCE(n, k, d) (SERVES(OTHER(n, k), d) -> stored[OTHER(n, k)] : 0)
#else
#define HAS_SOURCES(n, d) (SERVES(OTHER(n, 1), d) && SERVES(OTHER(n, 2), d))
#define SOURCE(n, k, d) stored[OTHER(n, k)]
#endif
	/* The end of a quarantine, by a host that two other nodes serve: the latest stage that they show. See Pair for another one. */
	:: atomic { !sleeps[d] && stored[n] == LOST && waited[n] && HAS_SOURCES(n, d) && HAS(d) != HAS_B ->
		w = MAX(SOURCE(n, 1, d), SOURCE(n, 2, d));
		if
		:: HAS(d) == HAS_AB && NUMBER(w) <= CHANGES && IS_OF_A(w) && STEP(w) == 0 -> w = w + 1
		:: HAS(d) == HAS_BA && NUMBER(w) <= CHANGES && !IS_OF_A(w) && STEP(w) == 0 -> w = w + 1
		:: else
		fi;
		to = w; by = MAX(counter[OTHER(n, 1)], counter[OTHER(n, 2)]); write(d, n);
		w = 0
	}
	:: d_step { d == 0 && (n != C && crashes < CRASHES || n == C && losses < LOSSES) ->
		if :: n == C -> losses++ :: else -> crashes++ fi;
		stored[n] = LOST; waited[n] = 0; key[n] = 0; counter[n] = 0;
		if :: lateNode == n + 1 -> lateNode = 0; lateFrom = 0; lateTo = 0; lateCounter = 0 :: else fi /* it has another word */
	}
#endif
	od
}

#if LATE
/* Late delivers the write of host 0. */
proctype Late() {
end:	do
	:: d_step { lateNode ->
		i = lateNode - 1;
		if
		:: IS_AS_SEEN(i) ->
			store(i, stored[i] + lateTo - lateFrom);
			counter[i] = MAX(counter[i], lateCounter)
		:: else
		fi;
		lateNode = 0; lateFrom = 0; lateTo = 0; lateCounter = 0; i = 0
	}
	od
}
#endif

/* A tick ends all leases and waits. Each host that does not sleep sees what the nodes have stored. */
proctype Clock() {
end:	do
	:: d_step { true ->
		do
		:: i < NODES ->
			key[i] = 0;
			waited[i] = (STEP(stored[i]) == 1 || stored[i] == FIRST -> 0 : 1);
			i++
		:: else -> break
		od;
		i = 0;
#if CRASHES
		do
		:: i < D ->
			if
			:: sleeps[i] || HAS(i) != HAS_A -> skip
			:: else ->
				if
				:: stored[0] && !SERVES_A(0) || stored[1] && !SERVES_A(1) || stored[C] && !SERVES_A(C) -> refused[i] = 1
				:: else -> if :: SERVES_A(0) || SERVES_A(1) || SERVES_A(C) -> refused[i] = 0 :: else fi
				fi
			fi;
			i++
		:: else -> break
		od;
		i = 0;
#endif
		deadline[0] = 0; deadline[1] = 0
	}
	od
}

init {
	atomic {
		stored[0] = FIRST; stored[1] = FIRST; stored[C] = FIRST;
		run Clock();
#if LATE
		run Late();
#endif
		do
		:: i < D ->
			run Host(i);
			run Pair(i, 0, 1, C); run Pair(i, 0, C, 1); run Pair(i, 1, C, 0);
			run Lane(i, 0); run Lane(i, 1); run Lane(i, C);
			i++
		:: else -> break
		od;
		i = 0
	}
}
